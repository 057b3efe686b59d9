"""A release bundle held against itself: its files, its scores from its predictions, its tables from its scores."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.errors import UserError
from elsewhere.files import DAMAGED_ARCHIVE
from elsewhere.predictions import ReadOptions
from elsewhere.recipes.base import RESPONSE
from elsewhere.scoring.prepared import prepare
from elsewhere.scoring.task import ScoreOptions, read_predictions, tasks
from elsewhere.study.bundle import broken_files, read_mark
from elsewhere.study.recipe_bundle import FORMAT, read_recipe_bundle
from elsewhere.study.recipe_report import PRIVATE
from elsewhere.study.recipe_results import PROBABILITIES, RecipeResults
from elsewhere.tables import write_table

CLOSE = 1e-9
"""Numbers that lie no further apart, by part of their size, are the same: libraries sum in other orders."""
DRAWN = {"hardest": ("case",)}
"""Hashes of the report, whose key is drawn anew each time."""


@dataclass(frozen=True, kw_only=True)
class BundleCheck:
    """What was checked, and what does not fit."""

    study: str
    kind: str
    files: int
    broken_files: tuple[str, ...] = ()
    scored_again: int = 0
    """Runs of the response."""
    other_scores: tuple[str, ...] = ()
    metrics: int = 0
    """Runs of which `scores.csv` tells the metrics."""
    other_metrics: tuple[str, ...] = ()
    tables: int = 0
    other_tables: tuple[str, ...] = ()

    @property
    def wrong(self) -> tuple[str, ...]:
        return (*self.broken_files, *self.other_scores, *self.other_metrics, *self.other_tables)


def check_bundle_folder(
    folder: Path, *, progress: Callable[[str, int, int], None] | None = None
) -> BundleCheck:
    """Digests of every kind of bundle; scores and tables of one of recipes."""
    about = read_mark(folder)
    files, wrong = broken_files(folder)
    known: dict[str, Any] = {"study": str(about.get("study", "")), "kind": str(about.get("format", ""))}
    known |= {"files": files, "broken_files": tuple(wrong)}
    if about.get("format") != FORMAT or wrong:
        return BundleCheck(**known)
    results = read_recipe_bundle(folder, about)
    scored, other = _tried(lambda: _scores_again(results), "the scores of the response")
    metrics, odd = _tried(lambda: (len(results.scores), _metrics_again(results, folder)), "the metrics")
    made, differ = _tried(lambda: _tables_again(results, folder, progress), "the tables")
    return BundleCheck(
        **known,
        scored_again=scored,
        other_scores=tuple(other),
        metrics=metrics,
        other_metrics=tuple(odd),
        tables=made,
        other_tables=tuple(differ),
    )


def _tried(again: Callable[[], tuple[int, list[str]]], what: str) -> tuple[int, list[str]]:
    """What making it again tells; where the bundle's own files do not allow it, that is what is wrong with it."""
    try:
        return again()
    except UserError as mistake:
        return 0, [f"{what} cannot be made again: {mistake.what}"]
    except (*DAMAGED_ARCHIVE, OSError, pd.errors.IndexingError) as error:
        return 0, [f"{what} cannot be made again ({type(error).__name__}: {str(error)[:200]})"]


def _scores_again(results: RecipeResults) -> tuple[int, list[str]]:
    """The response, from the probabilities and the outcomes that the bundle holds."""
    done, wrong = 0, []
    for key, scores in results.scores.items():
        task, recipe, scenario, seed = key
        if task != RESPONSE:
            continue
        section = (results.settings.get("tasks") or {}).get(task) or {}
        options = ScoreOptions(read=ReadOptions(), fairness_weight=section.get("fairness_weight"))
        wanted = set(scores.cases["case_id"].astype("str"))
        cohort = results.cohort.subset(results.cohort.cases["case_id"].astype("str").isin(wanted))
        said = read_predictions(task, results.folder(key) / PROBABILITIES, ReadOptions(), cohort)
        again = tasks.get(task).score(cohort, said, scores.protocol, options).cases
        place = again["case_id"].astype("str").tolist()
        ours = scores.cases.set_index(scores.cases["case_id"].astype("str")).loc[place].reset_index(drop=True)
        odd = [c for c in ours.columns if c not in again.columns or not _same(ours[c], again[c])]
        if odd or len(ours) != len(again):
            shown = ", ".join(odd) or "who was scored"
            wrong.append(f"response, {recipe}, {scenario}, seed {seed}: {shown} differ when scored again")
        done += 1
    return done, wrong


def _metrics_again(results: RecipeResults, folder: Path) -> list[str]:
    """`scores.csv`: the metrics of every run, from the scores of its cases."""
    told = pd.read_csv(folder / "scores.csv")
    wrong, seen = [], set()
    for row in _records(told):
        key = (str(row.pop("task")), str(row.pop("recipe")), str(row.pop("scenario")), int(row.pop("seed")))
        seen.add(key)
        try:
            section = (results.settings.get("tasks") or {}).get(key[0]) or {}
            options = ScoreOptions(read=ReadOptions(), fairness_weight=section.get("fairness_weight"))
            again = prepare(results.scores[key], options).evaluator.values()
        except KeyError:
            wrong.append(f"scores.csv: {', '.join(map(str, key))} has no scores of its cases")
            continue
        except UserError:  # invalid by the protocol: it has no metrics, and must tell none
            again = {}
        odd = [
            name
            for name, value in row.items()
            if not np.isclose(
                float(again.get(name, np.nan)), float(value), rtol=CLOSE, atol=CLOSE, equal_nan=True
            )
        ]
        if odd:
            wrong.append(f"scores.csv: {', '.join(odd)} of {', '.join(map(str, key))} differ when made again")
    done = results.runs[results.runs["status"] == "done"]
    columns = ("task", "recipe", "scenario", "seed")
    lost = {tuple(row[name] for name in columns) for row in _records(done)} - seen
    return wrong + [f"scores.csv: {', '.join(map(str, key))} is not there" for key in sorted(lost)]


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict(orient="records")]


def _tables_again(
    results: RecipeResults, folder: Path, progress: Callable[[str, int, int], None] | None
) -> tuple[int, list[str]]:
    from elsewhere.study.recipe_analysis import analyse_recipes

    summary = analyse_recipes(results, progress=progress)
    made = {name: table for name, table in summary.tables.items() if name not in PRIVATE}
    there = {path.stem for path in (folder / "tables").glob("*.csv")}
    wrong = [f"tables/{name}.csv cannot be made again" for name in sorted(there - set(made))]
    wrong += [f"tables/{name}.csv is not there" for name in sorted(set(made) - there)]
    with tempfile.TemporaryDirectory(prefix="elsewhere-bundle-") as scratch:
        for name in sorted(there & set(made)):
            again = Path(scratch) / f"{name}.csv"
            write_table(made[name], again)
            odd = _differences(folder / "tables" / f"{name}.csv", again, but=DRAWN.get(name, ()))
            if odd:
                wrong.append(f"tables/{name}.csv: {odd}")
    return len(there), wrong


def _differences(one: Path, other: Path, *, but: tuple[str, ...]) -> str:
    """What differs between two tables, '' for nothing."""
    a, b = (pd.read_csv(path) for path in (one, other))
    if list(a.columns) != list(b.columns) or len(a) != len(b):
        return f"{len(a)} rows and {len(a.columns)} columns, made again {len(b)} and {len(b.columns)}"
    odd = [c for c in a.columns if c not in but and not _same(a[c], b[c])]
    return f"{', '.join(odd[:5])} differ when made again" if odd else ""


def _same(one: pd.Series, other: pd.Series) -> bool:
    a, b = (
        pd.to_numeric(part, errors="coerce").to_numpy(dtype=float, na_value=np.nan) for part in (one, other)
    )
    words = np.isnan(a) & np.isnan(b)
    told = [part.astype("string").fillna("").to_numpy(dtype=object) for part in (one, other)]
    return bool(
        np.allclose(a[~words], b[~words], rtol=CLOSE, atol=CLOSE) and (told[0][words] == told[1][words]).all()
    )
