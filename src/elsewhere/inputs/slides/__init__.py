"""Whole slides."""
