"""Cases that stand in a study twice, under two ids (US-30): the same pixels, whatever their header or packing.

Near-duplicates are not searched for: two exams of one breast are two exams. What is the same to the last value is one
exam under two names, and must not train on one side and be tested on the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pandas as pd


def join_identical_cases(
    frame: pd.DataFrame,
    identity: Mapping[str, str],
    *,
    keep_together: bool,
    noun: str = "volumes",
    values: str = "values",
) -> tuple[pd.Series, dict[str, Any], list[str]]:
    """Join the groups of cases that are the same under two names.

    Args:
        frame: With the columns case, patient, group, collection and label.
        identity: Of each case with pixels, what the same pixels have in common.
        keep_together: Whether the study asks for it.
        noun: What the cases are called, in the plural.
        values: What is the same in identical cases.

    Returns:
        The groups, what the audit says, and warnings.
    """
    if not keep_together:
        why = "not searched for: keep_duplicates_together = false"
        return frame["group"], {"kept_together": False, "why": why}, []
    by_digest: dict[str, list[int]] = {}
    for at, case in enumerate(frame["case"]):
        if case in identity:
            by_digest.setdefault(identity[case], []).append(at)
    sets = [rows for rows in by_digest.values() if len(rows) > 1]
    pairs = [pair for rows in sets for pair in combinations(rows, 2)]

    def across(column: str) -> int:
        held = frame[column].tolist()
        return sum(held[a] != held[b] for a, b in pairs)

    counts = {
        "pairs": len(pairs),
        noun: sum(len(rows) for rows in sets),
        "pairs_across_patients": across("patient"),
        "pairs_across_datasets": across("collection"),
        "pairs_across_labels": across("label"),
    }
    names = frame["case"].tolist()
    told = {
        "kept_together": True,
        "what": f"the same {values}; near-duplicates of {noun} are not searched for",
        "counts": counts,
        "pairs": [[names[a], names[b]] for a, b in pairs],
    }
    warnings = []
    if counts["pairs_across_patients"]:
        also = f", {counts['pairs_across_labels']} with two outcomes" if counts["pairs_across_labels"] else ""
        warnings.append(
            f"{counts['pairs_across_patients']} pairs of patients share a {noun.removesuffix('s')} to the last value "
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
