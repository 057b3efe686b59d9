"""Analyses of a study: functions of its results that make tables."""
