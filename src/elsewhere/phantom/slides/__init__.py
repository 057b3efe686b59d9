"""Synthetic H&E slides of lymph nodes with a known truth, in the layout of CAMELYON17."""
