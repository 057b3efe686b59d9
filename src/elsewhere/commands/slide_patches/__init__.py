"""`slides patches`: whole slides and their annotations become one table of patches (LN-02, LN-04, LN-05)."""

from elsewhere.commands.slide_patches.cutting import CutSettings
from elsewhere.commands.slide_patches.run import PatchesReport, cut_patches

__all__ = ["CutSettings", "PatchesReport", "cut_patches"]
