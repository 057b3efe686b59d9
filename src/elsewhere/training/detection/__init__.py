"""Detection of lesions: a small segmentation network for pictures, and detectors for the slices of volumes."""
