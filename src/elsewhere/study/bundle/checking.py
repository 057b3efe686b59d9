"""Check a release bundle: its files by their digests, its scores from its predictions, its tables from its scores."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.errors import UserError
from elsewhere.files import DAMAGED_ARCHIVE
from elsewhere.predictions import Predictions, ReadOptions
from elsewhere.predictions.answers import answer_kinds
from elsewhere.scoring.prepared import prepare
from elsewhere.scoring.task import ScoreOptions, tasks
from elsewhere.study.bundle.reading import read_bundle
from elsewhere.study.bundle.seal import FORMAT, broken_files, read_mark
from elsewhere.study.results import Results, RunKey, run_name
from elsewhere.tables import write_table

CLOSE = 1e-9
"""Numbers that differ by no more than this part of their size are the same: libraries sum in other orders."""
DRAWN = {"hardest": ("case",)}
"""Hashes of the report, whose key is drawn anew each time."""
MakeTables = Callable[[Results], Mapping[str, pd.DataFrame]]


@dataclass(frozen=True, kw_only=True)
class BundleCheck:
    """What was checked, and what does not agree.

    Args:
        study: The name of the study.
        kind: The format of the bundle.
        files: How many files the bundle lists.
        broken_files: What is wrong with files.
        scored_again: Runs that were scored again from their probabilities.
        other_scores: Runs whose scores differ.
        metrics: Runs of which `scores.csv` has the metrics.
        other_metrics: Metrics that do not follow from the scores.
        tables: How many tables the bundle has.
        other_tables: Tables that differ when they are made again.
    """

    study: str
    kind: str
    files: int
    broken_files: tuple[str, ...] = ()
    scored_again: int = 0
    other_scores: tuple[str, ...] = ()
    metrics: int = 0
    other_metrics: tuple[str, ...] = ()
    tables: int = 0
    other_tables: tuple[str, ...] = ()

    @property
    def wrong(self) -> tuple[str, ...]:
        """Everything that does not agree."""
        return (*self.broken_files, *self.other_scores, *self.other_metrics, *self.other_tables)


def check_bundle_folder(folder: Path, make_tables: MakeTables) -> BundleCheck:
    """Check a bundle.

    Args:
        folder: Of the bundle.
        make_tables: Makes the tables of results, by name.

    Returns:
        What was checked, and what does not agree. Of a bundle of an earlier version, or with a broken file, only the
        digests are checked.

    Raises:
        UserError: The folder is no bundle.
    """
    about = read_mark(folder)
    files, wrong = broken_files(folder)
    known: dict[str, Any] = {"study": str(about.get("study", "")), "kind": str(about.get("format", ""))}
    known |= {"files": files, "broken_files": tuple(wrong)}
    if about.get("format") != FORMAT or wrong:
        return BundleCheck(**known)
    results = read_bundle(folder, about)
    scored, other = _tried(lambda: _scores_again(results), "the scores")
    metrics, odd = _tried(lambda: (len(results.scores), _metrics_again(results, folder)), "the metrics")
    made, differ = _tried(lambda: _tables_again(results, folder, make_tables), "the tables")
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
    """Make something again; where the bundle's own files do not allow it, that is what is wrong with it."""
    try:
        return again()
    except UserError as mistake:
        return 0, [f"{what} cannot be made again: {mistake.what}"]
    except (*DAMAGED_ARCHIVE, OSError, pd.errors.IndexingError) as error:
        return 0, [f"{what} cannot be made again ({type(error).__name__}: {str(error)[:200]})"]


def _options(results: Results, task: str) -> ScoreOptions:
    return ScoreOptions(read=ReadOptions(), fairness_weight=results.study.task(task).fairness_weight)


def _scores_again(results: Results) -> tuple[int, list[str]]:
    """Score every run with probabilities again, and compare both forms of its predictions."""
    done, wrong = 0, []
    for key, scores in results.scores.items():
        kind = answer_kinds.get(tasks.get(key.task).answer_kind)
        if kind.own_folder:
            continue
        wanted = set(scores.cases["case_id"].astype("str"))
        cohort = results.cohort.subset(results.cohort.cases["case_id"].astype("str").isin(wanted))
        handed_in = _only(results.predictions(key), wanted)
        again = (
            tasks.get(key.task).score(cohort, handed_in, scores.protocol, _options(results, key.task)).cases
        )
        order = again["case_id"].astype("str").tolist()
        ours = scores.cases.set_index(scores.cases["case_id"].astype("str")).loc[order].reset_index(drop=True)
        odd = [c for c in again.columns if c not in ours.columns or not _same(ours[c], again[c])]
        if odd or len(ours) != len(again):
            shown = ", ".join(odd) or "who was scored"
            wrong.append(f"{_named(key)}: {shown} differ when scored again")
        test = results.answers(run_name(key)).get("test")
        if test is not None and not _agree(test, handed_in.table):
            wrong.append(
                f"{_named(key)}: predictions.parquet and {Path(handed_in.source).name} have other probabilities"
            )
        done += 1
    return done, wrong


def _only(predictions: Predictions, wanted: set[str]) -> Predictions:
    """Without the images of no lesion, which are predicted and not scored."""
    table = predictions.table
    return replace(
        predictions, table=table[table["case_id"].astype("str").isin(wanted)].reset_index(drop=True)
    )


def _agree(test: pd.DataFrame, handed_in: pd.DataFrame) -> bool:
    one = test.set_index("case_id")["probability"]
    other = handed_in.set_index(handed_in["case_id"].astype("str"))["probability"]
    return len(one) == len(other) and _same(one.sort_index(), other.sort_index())


def _named(key: RunKey) -> str:
    return f"{key.task}, {key.method}, {key.scenario}, seed {key.seed}"


def _metrics_again(results: Results, folder: Path) -> list[str]:
    """Compare `scores.csv` with the metrics that follow from the scores of the cases."""
    stated = pd.read_csv(folder / "scores.csv")
    wrong, seen = [], set()
    for row in _records(stated):
        key = RunKey(
            str(row.pop("task")), str(row.pop("method")), str(row.pop("scenario")), int(row.pop("seed"))
        )
        seen.add(key)
        try:
            again = prepare(results.scores[key], _options(results, key.task)).evaluator.values()
        except KeyError:
            wrong.append(f"scores.csv: {_named(key)} has no scores of its cases")
            continue
        except UserError:  # invalid by the protocol: it has no metrics, and may state none
            again = {}
        odd = [
            name
            for name, value in row.items()
            if not np.isclose(
                float(again.get(name, np.nan)), float(value), rtol=CLOSE, atol=CLOSE, equal_nan=True
            )
        ]
        if odd:
            wrong.append(f"scores.csv: {', '.join(odd)} of {_named(key)} differ when made again")
    done = {
        RunKey(str(r["task"]), str(r["method"]), str(r["scenario"]), int(r["seed"]))
        for r in _records(results.done())
    }
    return wrong + [f"scores.csv: {_named(key)} is not there" for key in sorted(done - seen)]


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict(orient="records")]


def _tables_again(results: Results, folder: Path, make_tables: MakeTables) -> tuple[int, list[str]]:
    made = make_tables(results)
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
    """What differs between two tables; empty for nothing."""
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
    texts = [part.astype("string").fillna("").to_numpy(dtype=object) for part in (one, other)]
    return bool(
        np.allclose(a[~words], b[~words], rtol=CLOSE, atol=CLOSE)
        and (texts[0][words] == texts[1][words]).all()
    )
