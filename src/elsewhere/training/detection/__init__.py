"""Detection of lesions in pictures: a small segmentation network whose largest region becomes a box."""
