"""A split and its hash, and the record of a scenario that cannot be split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from elsewhere.scenarios.scenario import Scenario

PARTS = ("train", "validation", "test", "normal")
LEFT_OUT = "left-out"
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Split:
    """The parts of one scenario and seed: names of cases, in the order of the study table.

    Args:
        scenario: The scenario that was split.
        seed: The seed of the allocation.
        train: Cases to train on.
        validation: Cases to stop training and to calibrate on.
        test: Lesion images to test on.
        normal: Normal images of the target: tested against the lesions (US-18), never used for training.
        warnings: What a reader of the results should know about the split, as sentences.
        hash: Hash of the scenario, the seed and the part of every case; it is reported with every result.
        left_out: Lesion images left out of training because a duplicate is in another dataset, and normal
            images of patients used for training or validation. The warnings count them.
    """

    scenario: Scenario
    seed: int
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    normal: tuple[str, ...]
    warnings: tuple[str, ...]
    hash: str
    left_out: tuple[str, ...] = ()

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """The cases of each part by its name, without those left out."""
        return {name: getattr(self, name) for name in PARTS}

    def part_of(self) -> dict[str, str]:
        """Return the part of each case.

        Returns:
            Case to part; cases that were left out have the part 'left-out'.
        """
        found = {case: part for part, cases in self.parts.items() for case in cases}
        return found | dict.fromkeys(self.left_out, LEFT_OUT)


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A scenario that cannot be split without splitting a patient (US-08).

    Args:
        scenario: The scenario.
        seed: The seed of the allocation; None where an index of splits states none.
        reason: Why there is no split, as a sentence without a full stop.
    """

    scenario: Scenario
    seed: int | None
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as a mapping that json can hold.

        Returns:
            The scenario as a mapping, the seed and the reason.
        """
        return {"scenario": self.scenario.to_dict(), "seed": self.seed, "reason": self.reason}


def counted(count: int, thing: str) -> str:
    """Write a count with its noun, in the singular or the plural.

    Args:
        count: The number.
        thing: The noun in the singular; its plural takes an s.

    Returns:
        Text such as '1 patient' or '2 patients'.

    Example:
        >>> counted(1, "patient"), counted(2, "patient")
        ('1 patient', '2 patients')
    """
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def split_hash(scenario: Scenario, seed: int, parts: Mapping[str, Iterable[str]]) -> str:
    """Compute the hash of a split: sha256 of its canonical content.

    Args:
        scenario: The scenario.
        seed: The seed of the allocation.
        parts: The cases of each part by its name, with those left out; their order does not count.

    Returns:
        64 hexadecimal digits.

    Example:
        >>> one = Scenario(name="A", kind="internal", sources=("A",), target="A")
        >>> split_hash(one, 1, {"train": ["a", "b"]}) == split_hash(one, 1, {"train": ["b", "a"]})
        True
    """
    content = {
        "version": _VERSION,
        "scenario": scenario.to_dict(),
        "seed": int(seed),
        "parts": sorted([case, part] for part, cases in parts.items() for case in cases),
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def hash_of(partition: Split) -> str:
    """Compute the hash that a split must have.

    Args:
        partition: The split, whose own `hash` is not read.

    Returns:
        64 hexadecimal digits.
    """
    parts = {**partition.parts, LEFT_OUT: partition.left_out}
    return split_hash(partition.scenario, partition.seed, parts)


def count_parts(partitions: Iterable[Split | Skipped], table: pd.DataFrame) -> pd.DataFrame:
    """Count images, classes, patients and groups in each part of each split, one row per part.

    The audit prints this table. It also shows whether a validation part is large enough to calibrate on
    (US-16).

    Args:
        partitions: The splits; skipped scenarios have no row.
        table: The study table, with the columns case, label, patient and group.

    Returns:
        One row per scenario, seed and part, with the hash of the split.
    """
    known = table.set_index("case")[["label", "patient", "group"]]
    rows = []
    for made in partitions:
        if isinstance(made, Skipped):
            continue
        for part, cases in {**made.parts, LEFT_OUT: made.left_out}.items():
            held = known.loc[list(cases)]
            classes = held["label"].value_counts()
            rows.append(
                {
                    "scenario": made.scenario.name,
                    "kind": made.scenario.kind,
                    "source": made.scenario.source,
                    "target": made.scenario.target,
                    "seed": made.seed,
                    "part": part,
                    "images": len(held),
                    **{name: int(classes.get(name, 0)) for name in ("benign", "malignant", "normal")},
                    "patients": int(held["patient"].nunique()),
                    "groups": int(held["group"].nunique()),
                    "hash": made.hash,
                }
            )
    return pd.DataFrame(rows, columns=_COUNT_COLUMNS)


_COUNT_COLUMNS = [
    "scenario",
    "kind",
    "source",
    "target",
    "seed",
    "part",
    "images",
    "benign",
    "malignant",
    "normal",
    "patients",
    "groups",
    "hash",
]
