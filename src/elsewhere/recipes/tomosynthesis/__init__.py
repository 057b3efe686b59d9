"""Detectors of lesions in breast tomosynthesis: one file per published method (DBT-10 to DBT-17)."""
