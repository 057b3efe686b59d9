"""Reads tomosynthesis volumes: DICOM slice by slice, orientation, the breast's box, a cache, and the source 'tomosynthesis'."""
