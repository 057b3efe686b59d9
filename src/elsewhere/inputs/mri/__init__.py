"""Breast MRI: files, grids and orientation of volumes."""
