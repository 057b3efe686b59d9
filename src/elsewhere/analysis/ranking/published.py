"""The printed table of the DBTex challenge next to a ranking of the published predictions.

A difference is a finding to explain, never an error: the tables of truth have been revised since, and the two texts
of the rule of a hit differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import pandas as pd

SOURCE = (
    "Konz et al., JAMA Netw Open 2023;6(2):e230524, doi:10.1001/jamanetworkopen.2023.0524, supplement, eTable"
)
METRIC = "sensitivity_at_2_all"
READER = "bcs-dbt"
TEST_SET = {"patients": 418, "volumes": 1721}
_NOT_A_NAME = re.compile(r"\(.*?\)|\bteam\b|[^a-z0-9]+")


@cache
def printed_table() -> pd.DataFrame:
    """Read the printed table of the challenge's test set.

    Returns:
        One row per team and phase: `rank`, `team`, `phase`, the sensitivity at 2 false positives per volume over all
        volumes, `lo` and `hi`.

    Example:
        >>> printed_table()["phase"].value_counts().to_dict()
        {1: 8, 2: 5}
    """
    folder = resources.files("elsewhere.analysis.ranking").joinpath("published_tables")
    with folder.joinpath("tomosynthesis_teams.csv").open("r", encoding="utf-8") as file:
        return pd.read_csv(file, keep_default_na=False)


def plain_team(name: str) -> str:
    """Reduce a team's name to what its spellings share.

    Args:
        name: The name, as printed or as in the name of a file.

    Returns:
        Lower case letters and digits, without 'team' and remarks in brackets.

    Example:
        >>> plain_team("NYU B-Team"), plain_team("nyu_b_team"), plain_team("Team-PittRad")
        ('nyub', 'nyub', 'pittrad')
    """
    return _NOT_A_NAME.sub("", re.sub(r"[_-]+", " ", name.lower()))


def printed_comparison(
    ranking: Mapping[str, Any], counts: Mapping[str, Any], *, phase: int
) -> dict[str, Any]:
    """Set our values next to the printed ones.

    Args:
        ranking: The ranking part of a summary, with the metric of the printed table among its metrics.
        counts: Numbers of cases and patients of the cohort.
        phase: The phase of the challenge that the predictions are of.

    Returns:
        `rows`, one per model in the order of our ranking, with the printed value where there is one; the teams that are
        printed and have no file; and whether the cohort has as many patients and volumes as the challenge's test set.
    """
    table = printed_table()
    printed = {plain_team(str(row["team"])): row for row in table[table["phase"] == phase].to_dict("records")}
    rows = []
    seen = set()
    for model in ranking["table"]:
        name = plain_team(str(model["model"]))
        ours = ranking["metrics"][model["model"]].get(METRIC) or {}
        known = printed.get(name)
        seen |= {name} if known else set()
        value, theirs = ours.get("value"), None if known is None else float(known[_COLUMN])
        rows.append(
            {
                "model": model["model"],
                "rank": model["rank"],
                "printed_rank": None if known is None else str(known["rank"]),
                "value": value,
                "lo": ours.get("lo"),
                "hi": ours.get("hi"),
                "printed_value": theirs,
                "printed_lo": None if known is None else float(known["lo"]),
                "printed_hi": None if known is None else float(known["hi"]),
                "difference": None if value is None or theirs is None else value - theirs,
            }
        )
    same = counts.get("patients") == TEST_SET["patients"] and counts.get("cases") == TEST_SET["volumes"]
    return {
        "source": SOURCE,
        "phase": phase,
        "same_number_of_patients_and_volumes": same,
        "printed_without_a_file": [str(row["team"]) for name, row in printed.items() if name not in seen],
        "rows": rows,
    }


_COLUMN = "sensitivity_at_2fp_all_volumes"


def comparison_lines(part: Mapping[str, Any]) -> Sequence[str]:
    """Write the comparison with the printed table for a terminal.

    Args:
        part: What `printed_comparison` returned.

    Returns:
        One line of text per model, with a heading.
    """

    def shown(row: Mapping[str, Any], prefix: str) -> str:
        value, lo, hi = (row[f"{prefix}{name}"] for name in ("value", "lo", "hi"))
        if value is None:
            return "-"
        return f"{value:.3f}" + ("" if lo is None else f" [{lo:.3f}, {hi:.3f}]")

    lines = [
        f"sensitivity at 2 false positives per volume, all volumes, phase {part['phase']}: ours | printed"
    ]
    for row in part["rows"]:
        gap = "" if row["difference"] is None else f"  {row['difference']:+.3f}"
        rank = f" (printed rank {row['printed_rank']})" if row["printed_rank"] else ""
        lines.append(
            f"  {row['rank']:>3}  {row['model']:30s} {shown(row, ''):22s} | {shown(row, 'printed_'):22s}{gap}{rank}"
        )
    if part["printed_without_a_file"]:
        lines.append(f"  printed, no file: {', '.join(part['printed_without_a_file'])}")
    if not part["same_number_of_patients_and_volumes"]:
        lines.append(
            "  The cohort has another number of patients or volumes than the challenge's test set (418, 1,721): the "
            "printed values are of other volumes."
        )
    lines.append(f"  printed: {part['source']}")
    return lines
