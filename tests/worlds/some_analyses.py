"""A study analysed in part: for tests that read the tables of some analyses, since groups and cases take most of the time."""

from __future__ import annotations

import pytest

from elsewhere.analysis.study import summary
from elsewhere.analysis.study.registry import Analysis, in_order
from elsewhere.study.results import Results


def analyse_some(results: Results, *names: str, resamples: int) -> summary.StudySummary:
    """Make the summary of a study from some of the analyses.

    Args:
        results: Results of the study.
        names: The analyses that run, as they are registered.
        resamples: Number of resamples of patients.

    Returns:
        The summary; its other tables are not there.
    """
    return _analysed(results, [one for one in _named(names) if one.name in names], resamples)


def analyse_without(results: Results, *names: str, resamples: int) -> summary.StudySummary:
    """Make the summary of a study from all but some of the analyses.

    Args:
        results: Results of the study.
        names: The analyses that are left out, as they are registered.
        resamples: Number of resamples of patients.

    Returns:
        The summary; the tables of those analyses are not there.
    """
    return _analysed(results, [one for one in _named(names) if one.name not in names], resamples)


def _named(names: tuple[str, ...]) -> list[Analysis]:
    known = in_order()
    assert set(names) <= {one.name for one in known}, names
    return known


def _analysed(results: Results, run: list[Analysis], resamples: int) -> summary.StudySummary:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summary, "in_order", lambda: run)
        return summary.analyse(results, resamples=resamples)
