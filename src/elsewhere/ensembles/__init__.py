"""Predictions of several models made one."""
