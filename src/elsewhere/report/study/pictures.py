"""Pictures of patients in a study's report, on request: relevance maps and contours of masks."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import pandas as pd


@dataclass(frozen=True, kw_only=True)
class RunMaps:
    """The relevance maps of one run.

    Args:
        name: The name of the run, for readers.
        task: The task of the run.
        summary: The numbers of the run, with the sanity check (`Looked.to_dict`).
        pictures: (caption, JPEG) of the chosen cases.
    """

    name: str
    task: str
    summary: dict[str, Any]
    pictures: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, kw_only=True)
class CasePictures:
    """The pictures of patients in a report.

    Args:
        maps: Relevance maps, one entry per run.
        runs_left: How many more runs have saved weights.
        contours: (caption, PNG) of the hardest cases of each task; None where a case cannot be drawn.
    """

    maps: tuple[RunMaps, ...] = ()
    runs_left: int = 0
    contours: Mapping[str, tuple[tuple[str, bytes | None], ...]] = field(default_factory=dict)

    def elements(self) -> dict[str, str]:
        """Make the pictures elements of the page.

        Returns:
            The HTML of each picture by name.
        """
        found = {}
        for run in self.maps:
            for number, (caption, content) in enumerate(run.pictures):
                found[map_name(run, number)] = _element(caption, content, "jpeg")
        for shown in self.contours.values():
            for caption, picture in shown:
                found[caption] = (
                    '<p class="note">No picture: its volume or mask cannot be read.</p>'
                    if picture is None
                    else _element(caption, picture, "png")
                )
        return found

    def tables(self) -> dict[str, pd.DataFrame]:
        """Make the table `relevance`: one row per run.

        Returns:
            The table by its name; empty where there are no maps.
        """
        rows = []
        for run in self.maps:
            numbers = {k: v for k, v in run.summary.items() if k not in ("sanity", "warnings")}
            check = run.summary["sanity"]
            rows.append(
                numbers
                | {"sanity_passed": check["passed"], "sanity_rank_correlation": check["rank_correlation"]}
            )
        return {"relevance": pd.DataFrame(rows)} if rows else {}


def map_name(run: RunMaps, number: int) -> str:
    """Name a relevance map among the pictures of the page.

    Args:
        run: The maps of a run.
        number: The position of the map among those of the run.

    Returns:
        The name.
    """
    return f"relevance, {run.name}, {number}"


def _element(caption: str, content: bytes, kind: str) -> str:
    data = base64.b64encode(content).decode()
    return f'<img alt="{escape(caption, quote=True)}" src="data:image/{kind};base64,{data}">'
