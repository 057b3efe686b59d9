"""Splits by patient: internal, external, leave one dataset out, and folds (US-05 to US-11, US-31).

From a study table to named parts. What may not be split is the *group*: a patient, or patients whom
duplicate pictures join (US-30). A scenario that cannot be split is `Skipped` with the reason: there is no
fall-back to single pictures (US-08).
"""

from __future__ import annotations

from elsewhere.scenarios.checks import LeakError, check_split
from elsewhere.scenarios.files import read_partition, read_splits, write_partition, write_splits
from elsewhere.scenarios.groups import StudyGroups
from elsewhere.scenarios.making import make_partitions, make_split
from elsewhere.scenarios.scenario import KINDS, Scenario, nested_scenarios, scenarios_of
from elsewhere.scenarios.split import PARTS, Skipped, Split, count_parts, split_hash

__all__ = [
    "KINDS",
    "PARTS",
    "LeakError",
    "Scenario",
    "Skipped",
    "Split",
    "StudyGroups",
    "check_split",
    "count_parts",
    "make_partitions",
    "make_split",
    "nested_scenarios",
    "read_partition",
    "read_splits",
    "scenarios_of",
    "split_hash",
    "write_partition",
    "write_splits",
]
