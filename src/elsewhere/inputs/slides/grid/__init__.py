"""Patches of slides on a grid: where they lie, how much of each is tissue, and how much is tumour (LN-02).

Example:
    >>> from elsewhere.inputs.slides.grid import lay_grid, tissue_shares, tumour_shares_on
"""

from elsewhere.inputs.slides.grid.geometry import PatchGrid, lay_grid, lay_outline_grid
from elsewhere.inputs.slides.grid.tissue_shares import TissueShares, tissue_shares
from elsewhere.inputs.slides.grid.tumour_shares import TumourShares, tumour_shares_on

__all__ = [
    "PatchGrid",
    "TissueShares",
    "TumourShares",
    "lay_grid",
    "lay_outline_grid",
    "tissue_shares",
    "tumour_shares_on",
]
