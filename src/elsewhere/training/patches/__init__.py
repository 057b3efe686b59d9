"""Training of segmenters on patches of slides (LN-03, LN-09).

`folds` and `settings` need numpy alone; the rest needs torch. `concurrent.train_segmenters` trains many at the same time.
"""
