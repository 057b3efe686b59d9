"""Reads whole slides: pixels at a stated number of microns, in little memory, and what lies on them."""
