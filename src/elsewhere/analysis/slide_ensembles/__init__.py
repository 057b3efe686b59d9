"""Ensembles of many models on slides: members, votes, their rates, and what the choice of members is worth (LN-16)."""
