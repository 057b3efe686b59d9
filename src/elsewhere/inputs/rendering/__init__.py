"""Patches of one laboratory rendered as another one would have made them: stain, sharpness, compression, scale (LN-22)."""
