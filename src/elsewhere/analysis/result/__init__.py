"""Results of one model on one cohort, and comparisons of two.

`scoring` makes an assessment from predictions or from scores, `summary` computes it, `acceptance` judges a
vendor's claim, `comparison`, `equivalence` and `changes` take assessments that exist. Nothing here prints,
parses a command line or draws a page, so that a server can use it as the commands do.
"""
