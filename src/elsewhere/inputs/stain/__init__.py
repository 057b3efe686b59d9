"""Stain normalisation of H&E pictures: Macenko (the default), Reinhard and Vahadane (LN-03)."""
