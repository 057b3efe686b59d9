"""Many models on one cohort: the sections and the figures of a ranking and of a comparison of two models."""
