"""Curated training sets: features of patches, their clusters, what the clusters are, and sets drawn evenly from them (LN-06 to LN-08, LN-23)."""
