"""`slides train`: segmenters on sets of patches of a store, in folds by patient, and their answers to test patches (LN-09, LN-10)."""
