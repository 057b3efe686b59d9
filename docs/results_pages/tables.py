"""Committed tables of finished studies, and how a page prints them.

A study's tables lie under benchmarks/results/STUDY/ with numbers to six places. A page is `page.md` there with marks
such as `{{drop}}`; a block is the text that takes the place of a mark.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Tables:
    """The tables of one study.

    Attributes:
        folder: Where they lie.
    """

    folder: Path

    def part(self, name: str) -> Tables:
        """The tables of one run of the study."""
        return Tables(self.folder / name)

    def read(self, name: str) -> pd.DataFrame:
        """A table, or an empty one where the study has none of this name."""
        path = self.folder / f"{name}.csv"
        return pd.read_csv(path) if path.exists() else pd.DataFrame()

    def facts(self, name: str) -> Any:
        """A JSON file, or nothing."""
        path = self.folder / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def write(self, frame: pd.DataFrame, name: str) -> None:
        """Numbers to six places."""
        self.folder.mkdir(parents=True, exist_ok=True)
        frame.round(6).to_csv(self.folder / f"{name}.csv", index=False, lineterminator="\n")

    def write_facts(self, content: Any, name: str) -> None:
        """A JSON file with sorted keys."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, indent=1, sort_keys=True)
        (self.folder / f"{name}.json").write_text(text + "\n")

    def copy(self, report: Path, names: Sequence[str], columns: Mapping[str, Sequence[str]]) -> None:
        """Take tables of a finished study's report: all of `names`, and some columns of those in `columns`."""
        for name in (*names, *columns):
            if not (report / f"{name}.csv").exists():
                continue
            frame = pd.read_csv(report / f"{name}.csv")
            for column in ("variable", "by"):  # no single site: most are of a dozen patients
                frame = frame[frame[column] != "site"] if column in frame.columns else frame
            kept = [c for c in columns.get(name, frame.columns) if c in frame.columns]
            self.write(frame[kept], name)

    def fill(self, blocks: Mapping[str, Callable[[], str]]) -> str:
        """The page with a block in place of each mark."""
        text = (self.folder / "page.md").read_text()
        for name, make in blocks.items():
            mark = "{{" + name + "}}"
            if mark in text:
                text = text.replace(mark, make().strip())
        return text


def number(value: float, digits: int = 3, *, sign: bool = False) -> str:
    """A number as the pages print it; nothing where it is not known."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def interval(value: float, lo: float, hi: float, *, sign: bool = False) -> str:
    """A number with its interval."""
    text = number(value, sign=sign)
    return f"{text} [{number(lo, sign=sign)}, {number(hi, sign=sign)}]" if number(lo) else text


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"
