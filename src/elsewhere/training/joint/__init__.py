"""Networks on top of the segmentation core: masked autoencoding, one encoder for two tasks, subgroups (MRI-15)."""
