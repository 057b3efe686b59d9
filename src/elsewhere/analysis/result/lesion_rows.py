"""Models compared lesion by lesion, as it may be shared: groups that few patients have are withheld."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elsewhere.privacy import SUPPRESSED, is_withheld, suppress_counts

_KEPT_OF_SMALL = ("attribute", "level", "a", "b", "budget_fp_per_volume")


def withhold_small_strata(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Withhold the numbers of groups of lesions that one to four patients have.

    Where only one group of an attribute is small, the next one is rounded, since the small one would otherwise be the
    total less the others.

    Args:
        summary: A summary; `difficulty` and `lesions_paired` may have `strata`.

    Returns:
        The same summary with these groups withheld.

    Example:
        >>> row = {"attribute": "class", "level": "benign", "patients": 3, "lesions": 3}
        >>> withhold_small_strata({"difficulty": {"strata": [row]}})["difficulty"]["strata"][0]["lesions"] is None
        True
    """
    out = dict(summary)
    for key in ("difficulty", "lesions_paired"):
        part = out.get(key)
        if isinstance(part, Mapping) and part.get("strata"):
            out[key] = {**part, "strata": _withheld(part["strata"])}
    return out


def _withheld(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    partitions: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        partitions.setdefault(_partition(row), {})[str(row["level"])] = row["patients"]
    shown = {name: suppress_counts(sizes) for name, sizes in partitions.items()}
    made = []
    for row in rows:
        patients = shown[_partition(row)][str(row["level"])]
        if patients == SUPPRESSED:
            blank = {name: (row[name] if name in _KEPT_OF_SMALL else None) for name in row}
            made.append({**blank, "patients": patients, "note": "fewer than 5 patients: not shown"})
        elif is_withheld(patients):
            # The exact number of lesions would give the rounded number of patients away.
            counts = {name: None for name, value in row.items() if isinstance(value, int) and name != "rank"}
            made.append({**row, **counts, "patients": patients})
        else:
            made.append(dict(row))
    return made


def _partition(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["attribute"], row.get("a"), row.get("b")


def paired_line(row: Mapping[str, Any]) -> str:
    """Write one comparison of two models lesion by lesion.

    Args:
        row: A row of `lesions_paired`.

    Returns:
        One line of text.

    Example:
        >>> row = {"a": "A", "b": "B", "budget_fp_per_volume": 2.0, "lesions": 9, "only_a": 3, "only_b": 1, "p": 0.5}
        >>> paired_line(row)
        'of 9 lesions at 2 false positives per volume, A alone finds 3 and B alone 1, p 0.5'
    """
    p = row.get("p_holm") if row.get("p_holm") is not None else row.get("p")
    return (
        f"of {row['lesions']} lesions at {row['budget_fp_per_volume']:g} false positives per volume, {row['a']} alone finds "
        f"{row['only_a']} and {row['b']} alone {row['only_b']}" + ("" if p is None else f", p {p:.3g}")
    )
