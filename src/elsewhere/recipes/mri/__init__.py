"""Recipes that read breast MRI: segmentation of the tumour, and response to therapy."""
