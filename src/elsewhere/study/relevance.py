"""Relevance maps for a study's report (US-23, US-24): of the scenarios whose weights are kept, on request alone.

Cases are chosen by rule, and named nowhere: a caption has the label and the answer.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pandas as pd

from elsewhere.engine.store import Store
from elsewhere.errors import UserError
from elsewhere.explain.run import Looked, look_at_run
from elsewhere.study.analysis_design import configuration
from elsewhere.study.pictures import Report

if TYPE_CHECKING:
    from elsewhere.study.file import StudyFile
    from elsewhere.study.picture_results import StudyResults
    from elsewhere.study.plan import Plan

MOST_RUNS = 8
PANELS = 4
SIZE_PX = 200
BYTES = 30_000
"""Of one panel: thirty-two of them leave the report under its limit."""
QUALITIES = (85, 70, 55, 40)


@dataclass(frozen=True, kw_only=True)
class RunMaps:
    """One run in the report: its numbers, and (caption, JPEG) of the chosen cases."""

    name: str
    summary: dict[str, Any]
    pictures: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, kw_only=True)
class Relevance:
    """Every run that is shown; `left`: how many more have weights."""

    runs: tuple[RunMaps, ...]
    left: int = 0

    def table(self) -> pd.DataFrame:
        """A row a run, for `tables/relevance.csv`."""
        rows = []
        for one in self.runs:
            told = {k: v for k, v in one.summary.items() if k not in ("sanity", "warnings")}
            check = one.summary["sanity"]
            rows.append(
                told
                | {"sanity_passed": check["passed"], "sanity_rank_correlation": check["rank_correlation"]}
            )
        return pd.DataFrame(rows)


def check_maps_can_be_drawn(file: StudyFile) -> None:
    """Before anything is trained: maps need kept weights, and torch."""
    if not file.study.study.keep_weights:
        raise UserError(
            "the study keeps no weights, and relevance maps need them",
            where="--pictures",
            fix='Write keep_weights = ["A>B"] under [study], with the scenarios to look at; trainings that are in the '
            "store without weights are done again.",
        )
    if find_spec("torch") is None:
        raise UserError("relevance maps need torch", where="--pictures", fix="pip install 'elsewhere[train]'")


def unit_of(results: StudyResults, run: str) -> str:
    """The key of the training that a run comes from."""
    return str(results.runs.loc[results.runs["run"] == run, "unit"].iloc[0])


def look(run: str, results: StudyResults, plan: Plan, store: Store, **wanted: Any) -> Looked:
    """A run of the study looked at; `wanted` are the keywords of `look_at_run`."""
    key = unit_of(results, run)
    unit = plan.units[key]
    needs = {role: store.load(needed) for role, needed in unit.needs.items()}
    test = results.outputs(run)["test"]
    return look_at_run(run, unit, store.load(key), plan.work, test, needs=needs, **wanted)


def relevance_maps(
    results: StudyResults, plan: Plan, store: Store, *, device: str = "auto", progress: Report | None = None
) -> Relevance:
    """Maps of the kept scenarios: of each with every model and input, the first seed."""
    done = results.done()
    done = done[done["scenario"].isin(plan.kept())].drop_duplicates(["scenario", "model", "input"])
    made = []
    for number, row in enumerate(done.head(MOST_RUNS).to_dict(orient="records"), start=1):
        run = str(row["run"])
        seen = look(run, results, plan, store, choose=PANELS, device=device.split(",")[0])
        named = f"{configuration(str(row['model']), str(row['input']))}, {row['scenario']}"
        made.append(RunMaps(name=named, summary=seen.to_dict(), pictures=_pictures(seen, named)))
        if progress:
            progress("relevance maps", number, min(len(done), MOST_RUNS))
    return Relevance(runs=tuple(made), left=max(0, len(done) - MOST_RUNS))


def _pictures(looked: Looked, named: str) -> tuple[tuple[str, bytes], ...]:
    made = []
    for at, case in enumerate(looked.seen.case):
        if case not in looked.shown:
            continue
        probability, malignant = float(looked.seen.probability[at]), bool(looked.label[case])
        right = (probability >= 0.5) == malignant
        caption = f"{looked.word(at).capitalize()}, answered {'rightly' if right else 'wrongly'}: {probability:.2f} for malignant"
        made.append((caption, _jpeg(looked.panel(at, named, size_px=SIZE_PX))))
    return tuple(made)


def _jpeg(image: Any) -> bytes:
    for quality in QUALITIES:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        if len(buffer.getvalue()) <= BYTES:
            break
    return buffer.getvalue()
