"""Synthetic hospitals with a known truth, and small twins of public tables."""
