"""Read the results that a release bundle holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.cohort import IdGrade, load_cohort
from elsewhere.errors import UserError
from elsewhere.files import DAMAGED_ARCHIVE
from elsewhere.protocols import protocols
from elsewhere.scoring.task import Scores
from elsewhere.study.file import parse_study
from elsewhere.study.results import SCORE_KEYS, Results, RunKey
from elsewhere.tables import read_table
from elsewhere.untrusted import MAX_JSON_BYTES, parse_json, read_json, read_text


def read_bundle(folder: Path, about: Mapping[str, Any]) -> Results:
    """Read the results that a bundle holds, as the analyses read them.

    Args:
        folder: Of the bundle.
        about: What its mark says.

    Returns:
        The results.

    Raises:
        UserError: A file holds something else than `run --bundle` writes.
    """
    try:
        return _read(folder, about)
    except DAMAGED_ARCHIVE as error:
        raise UserError(
            f"the bundle cannot be read ({type(error).__name__}: {str(error)[:200]})",
            where=str(folder),
            fix="Fetch it again, or ask whoever made it: its files are not those that `run --bundle` writes.",
        ) from error


def _read(folder: Path, about: Mapping[str, Any]) -> Results:
    stated = about["cohort"]
    lesions = folder / "lesions.csv"
    cohort = replace(
        load_cohort(folder / "cohort.csv"),
        hash=str(stated["hash"]),
        reader=str(stated["reader"]),
        id_grades={name: IdGrade(**grade) for name, grade in stated["id_grades"].items()},
        warnings=tuple(stated["warnings"]),
        synthetic=bool(stated["synthetic"]),
        lesions=read_table(lesions, allow_empty=True, strings=("case_id", "lesion_id", "class"))
        if lesions.exists()
        else None,
    )
    trainings = pd.read_csv(folder / "trainings.csv", keep_default_na=False)
    trainings["notes"] = [
        parse_json(text, where=str(folder / "trainings.csv")) if text else [] for text in trainings["notes"]
    ]
    skipped = pd.read_csv(folder / "skipped.csv", keep_default_na=False)
    return Results(
        name=str(about["study"]),
        study=parse_study(read_json(folder / "study.json"), where=str(folder / "study.json")),
        cohort=cohort,
        table=pd.read_csv(
            folder / "manifest.csv", keep_default_na=False, dtype={"case_id": "str", "case": "str"}
        ),
        runs=_runs(folder / "runs.csv"),
        scores=_scores(folder, str(about.get("elsewhere"))),
        answers=_Answers(folder / "predictions.parquet"),
        costs=pd.read_csv(folder / "costs.csv", dtype={"case": "str"}),
        trainings=trainings,
        skipped=skipped,
        audit=read_json(folder / "audit.json"),
        predictions_folder=folder / "predictions",
    )


def _runs(file: Path) -> pd.DataFrame:
    runs = pd.read_csv(file, keep_default_na=False)
    runs["margin"] = pd.to_numeric(runs["margin"], errors="coerce")
    return runs


def _scores(folder: Path, version: str) -> dict[RunKey, Scores]:
    place = folder / "scores.json"
    listed = parse_json(read_text(place, most=MAX_JSON_BYTES), where=str(place))
    tables: dict[str, Mapping[tuple[Any, ...], pd.DataFrame]] = {}
    events: dict[str, Mapping[tuple[Any, ...], pd.DataFrame]] = {}
    scores: dict[RunKey, Scores] = {}
    for one in listed:
        key = RunKey(one["task"], one["method"], one["scenario"], int(one["seed"]))
        if not all(isinstance(part, str) for part in key[:3]) or "/" in key.task:
            raise TypeError("scores.json holds something else than names")
        protocol = protocols.get(one["protocol"])
        if protocol.digest() != one["protocol_digest"]:
            raise UserError(
                f"protocol {protocol.name} has other rules here than in the bundle",
                where=str(folder),
                fix=f"Use the version of Elsewhere that wrote it: {version}.",
            )
        if key.task not in tables:
            tables[key.task] = _by_run(folder / f"scores_{key.task}.parquet")
            events[key.task] = _by_run(folder / f"events_{key.task}.parquet")
        of_run = (key.method, key.scenario, key.seed)
        scores[key] = Scores(
            task=key.task,
            protocol=protocol,
            cases=tables[key.task][of_run],
            events=events[key.task].get(of_run),
            counts={str(k): int(v) for k, v in one["counts"].items()},
            flow=tuple(one["flow"]),
            warnings=tuple(one["warnings"]),
            extras=dict(one["extras"]),
        )
    return scores


def _by_run(file: Path) -> dict[tuple[Any, ...], pd.DataFrame]:
    """The rows of each run; nothing for a task that has no such table."""
    if not file.exists():
        return {}
    columns = list(SCORE_KEYS)
    groups = read_table(file, allow_empty=True).groupby(columns, sort=False)
    return {key: rows.drop(columns=columns).reset_index(drop=True) for key, rows in groups}


class _Answers:
    """The answers of every run by part, as `Results.answers` gives them. A study without probabilities has no file."""

    def __init__(self, file: Path) -> None:
        self._parts: dict[str, dict[str, pd.DataFrame]] = {}
        if not file.exists():
            return
        whole = read_table(file)
        for (run, part), rows in whole.groupby(["run", "part"], sort=False):
            table = (
                rows.drop(columns=["run", "part"]).dropna(axis="columns", how="all").reset_index(drop=True)
            )
            self._parts.setdefault(str(run), {})[str(part)] = table

    def __call__(self, run: str) -> dict[str, pd.DataFrame]:
        return self._parts.get(run, {})
