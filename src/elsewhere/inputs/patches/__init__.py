"""Patches of slides that were cut once and are read many times."""
