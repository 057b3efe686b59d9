"""Runs trainings on this machine or on a Ray cluster, and stores their outcomes.

The package imports with numpy alone; torch is loaded by the worker that trains. `python -m elsewhere.engine`
works on a GPU machine that has no more than torch, numpy and Pillow.
"""
