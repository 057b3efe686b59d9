"""Partitions that never split a patient: internal, external, leave one dataset out, folds (US-05 to US-11, US-31).

A study table in, named parts out. What may not be split is the *group*: a patient, or patients whom
duplicate pictures join (US-30). A scenario that cannot be split is `Skipped` with the reason: there is no
fall-back to single pictures (US-08).
"""

from __future__ import annotations

from elsewhere.scenarios.checks import LeakError, check_partition
from elsewhere.scenarios.files import read_partition, read_partitions, write_partition, write_partitions
from elsewhere.scenarios.making import make_partition, make_partitions
from elsewhere.scenarios.partition import PARTS, Partition, Skipped, count_parts, partition_hash
from elsewhere.scenarios.scenario import KINDS, Scenario, nested_scenarios, scenarios_of
from elsewhere.scenarios.units import StudyUnits

__all__ = [
    "KINDS",
    "PARTS",
    "LeakError",
    "Partition",
    "Scenario",
    "Skipped",
    "StudyUnits",
    "check_partition",
    "count_parts",
    "make_partition",
    "make_partitions",
    "nested_scenarios",
    "partition_hash",
    "read_partition",
    "read_partitions",
    "scenarios_of",
    "write_partition",
    "write_partitions",
]
