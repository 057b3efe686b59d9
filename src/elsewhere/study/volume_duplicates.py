"""Volumes that stand in a study twice, under two ids (US-30): the same voxels, whatever their header or packing.

Near-duplicates of volumes are not searched for: two exams of one breast are two exams. What is the same to the
last voxel is one exam under two names, and must not train on one side and be tested on the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pandas as pd


def volume_duplicates(
    frame: pd.DataFrame, voxels: Mapping[str, str], *, keep_together: bool
) -> tuple[pd.Series, dict[str, Any], list[str]]:
    """The groups with those of the same voxels joined, what the audit says, and warnings. `frame` has the columns
    case, patient, group, collection and label; `voxels` a digest a case that has a volume."""
    if not keep_together:
        why = "keep_duplicates_together = false: nobody looked"
        return frame["group"], {"kept_together": False, "why": why}, []
    by_digest: dict[str, list[int]] = {}
    for at, case in enumerate(frame["case"]):
        if case in voxels:
            by_digest.setdefault(voxels[case], []).append(at)
    sets = [rows for rows in by_digest.values() if len(rows) > 1]
    pairs = [pair for rows in sets for pair in combinations(rows, 2)]

    def across(column: str) -> int:
        held = frame[column].tolist()
        return sum(held[a] != held[b] for a, b in pairs)

    counts = {
        "pairs": len(pairs),
        "volumes": sum(len(rows) for rows in sets),
        "pairs_across_patients": across("patient"),
        "pairs_across_datasets": across("collection"),
        "pairs_across_labels": across("label"),
    }
    names = frame["case"].tolist()
    told = {
        "kept_together": True,
        "what": "the same voxels of the first phase; near-duplicates of volumes are not searched for",
        "counts": counts,
        "pairs": [[names[a], names[b]] for a, b in pairs],
    }
    warnings = []
    if counts["pairs_across_patients"]:
        also = f", {counts['pairs_across_labels']} with two outcomes" if counts["pairs_across_labels"] else ""
        warnings.append(
            f"{counts['pairs_across_patients']} pairs of patients share a volume to the last voxel "
            f"({counts['pairs_across_datasets']} across datasets{also}): no split parts them"
        )
    return _joined(frame["group"], sets), told, warnings


def _joined(group: pd.Series, sets: list[list[int]]) -> pd.Series:
    """Groups that share a volume under the name of the first of them."""
    held = group.tolist()
    root = {name: name for name in held}

    def find(name: str) -> str:
        while root[name] != name:
            name = root[name]
        return name

    for rows in sets:
        first = find(held[rows[0]])
        for at in rows[1:]:
            root[find(held[at])] = first
    return pd.Series([find(name) for name in held], index=group.index, dtype="str")
