"""A partition and its hash; what a scenario that cannot be split leaves behind."""

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
    """The parts of one scenario and seed: names of cases, in the order of the study table."""

    scenario: Scenario
    seed: int
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    normal: tuple[str, ...]
    """Normal images of the target: they are judged against the lesions (US-18), and never train."""
    warnings: tuple[str, ...]
    hash: str
    """Of the scenario, the seed and the part of every case: the split hash that goes with every number."""
    left_out: tuple[str, ...] = ()
    """Lesion images that do not train since a duplicate stands in another dataset, and normal images of
    patients who train or validate. The warnings count them."""

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        return {name: getattr(self, name) for name in PARTS}

    def part_of(self) -> dict[str, str]:
        """Case to part, the cases left out among them."""
        found = {case: part for part, cases in self.parts.items() for case in cases}
        return found | dict.fromkeys(self.left_out, LEFT_OUT)


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A scenario that cannot be split without splitting a patient (US-08)."""

    scenario: Scenario
    seed: int | None
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {"scenario": self.scenario.to_dict(), "seed": self.seed, "reason": self.reason}


def counted(count: int, thing: str) -> str:
    """'1 patient', '2 patients'."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def split_hash(scenario: Scenario, seed: int, parts: Mapping[str, Iterable[str]]) -> str:
    """sha256 of canonical content. The order of the cases does not count."""
    content = {
        "version": _VERSION,
        "scenario": scenario.to_dict(),
        "seed": int(seed),
        "parts": sorted([case, part] for part, cases in parts.items() for case in cases),
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def hash_of(partition: Split) -> str:
    """What the partition's hash must be."""
    parts = {**partition.parts, LEFT_OUT: partition.left_out}
    return split_hash(partition.scenario, partition.seed, parts)


def count_parts(partitions: Iterable[Split | Skipped], table: pd.DataFrame) -> pd.DataFrame:
    """One row a scenario, seed and part: images, benign, malignant, normal, patients and groups.

    Skipped scenarios have no row. What the audit prints, and what shows whether a validation part is large enough to
    calibrate on (US-16).
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
