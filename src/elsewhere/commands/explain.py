"""`explain`: draw where the networks of a study looked, on chosen cases of chosen runs (US-23)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere._version import __version__
from elsewhere.commands.output import Report
from elsewhere.engine.store import Store
from elsewhere.errors import UserError, check_seed, name_rows, unknown_name
from elsewhere.explain.gradcam import METHODS
from elsewhere.explain.run import Looked
from elsewhere.explain.study_maps import look
from elsewhere.report.page.numbers import format_number
from elsewhere.study.file import load_study
from elsewhere.study.run import plan_of, study_paths
from elsewhere.study.stored import StoredRuns
from elsewhere.tables import check_out, staged_directory, write_json, write_table

MOST_RUNS = 20
COLUMNS = (
    "run",
    "case",
    "chosen",
    "label",
    "probability",
    "stored_probability",
    "method",
    "region",
    "share_inside",
    "area_inside",
    "enrichment",
    "hit",
    "panel",
)


@dataclass(frozen=True, kw_only=True)
class Explanations:
    """What was measured on relevance maps; the panels are written to the folder.

    Args:
        summary: The content of explain.json: the numbers of every run.
        cases: One row per run and case.
        path: The folder that was written.
    """

    summary: dict[str, Any]
    cases: pd.DataFrame
    path: Path

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The summary of the explanations.
        """
        return self.summary

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        for run in self.summary["runs"]:
            check = run["sanity"]
            yield f"{run['run']}: {run['method']}, {run['cases']} cases"
            if run["with_region"]:
                yield (
                    f"  relevance inside the lesion {format_number(run['share_inside'], 2)}, which covers "
                    f"{format_number(run['area_inside'], 2)} of the input; the largest value lies inside in "
                    f"{format_number(run['hits'], 2)} of {run['with_region']} cases"
                )
            if check is not None:
                word = "passed" if check["passed"] else "FAILED"
                yield (
                    f"  sanity check {word}: rank correlation {format_number(check['rank_correlation'], 2)} "
                    f"with the maps of random weights ({check['reason']})"
                )
            for warning in run["warnings"]:
                yield f"  warning: {warning}"
        for run in self.summary["without_weights"]:
            yield f"left out, because its weights were not saved: {run}"
        yield f"maps are hints, not causes; table: {self.path / 'cases.csv'}"
        shown = self.summary["panels"]
        yield f"panels: {shown} in {self.path / 'panels'}" if shown else "no pictures written: add --pictures"


def explain(
    study: str | Path,
    *,
    out: str | Path,
    replace: bool = False,
    run: str,
    cases: Sequence[str] = (),
    choose: int = 4,
    measure: int = 16,
    method: str = "",
    pictures: bool = False,
    sanity: bool = True,
    results: str | Path | None = None,
    store: str | Path | None = None,
    data: str | Path | None = None,
    changes: Sequence[str] = (),
    device: str = "auto",
    seed: int = 42,
    progress: Report | None = None,
) -> Explanations:
    """Draw maps of the runs whose name starts with `run`.

    Panels show the named `cases`, or `choose` of them by rule (`choose_cases`); the numbers rest on these
    and on `measure` further ones, drawn with `seed`. Pictures are written only on request.

    Args:
        study: A study file, or the name of a shipped study.
        out: The folder to write.
        replace: Whether files that exist may be replaced.
        run: The beginning of the names of the runs.
        cases: The test cases to show; empty to choose them by rule.
        choose: How many cases are chosen by rule.
        measure: How many further cases the numbers rest on.
        method: 'grad-cam' or 'occlusion'; empty for the one that suits each network.
        pictures: Whether panels are written, which hold pixels of patients.
        sanity: Whether maps are compared with those of networks with random weights.
        results: The folder of the study's results; None for the study's name.
        store: The folder of finished trainings; None for `store` in `results`.
        data: The folder of the data, for {data} in the study file.
        changes: Changes of the study file, such as 'models.cnn.epochs=2'.
        device: 'auto', 'cpu', 'cuda' or 'cuda:N'.
        seed: The seed of the drawn cases and of the random weights.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        What was measured and written.

    Raises:
        UserError: There is no such method, run or case, no matching run has saved weights, more than 20 runs
            match, or torch is not installed.
    """
    check_seed(seed)
    if method and method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if find_spec("torch") is None:
        raise UserError("relevance maps need torch", fix="pip install 'elsewhere[train]'")
    inputs = (study, results, store)
    check_out(out, replace=replace, inputs=inputs)
    file = load_study(study, data=data, changes=changes)
    paths = study_paths(file, out=results, store=store)
    plan = plan_of(file, paths, progress=progress)
    stored = StoredRuns(plan, Store(paths.store))
    wanted, bare = _runs(stored, run, where=str(paths.store))
    rows: list[dict[str, Any]] = []
    told: list[dict[str, Any]] = []
    with staged_directory(out, replace=replace, inputs=inputs) as folder:
        for number, name in enumerate(wanted, start=1):
            looked = look(
                name,
                stored,
                cases=cases,
                choose=choose,
                measure=measure,
                method=method,
                sanity=sanity,
                device=device,
                seed=seed,
            )
            told.append(looked.to_dict() | {"training": str(stored.row(name)["training"])})
            rows += _rows(looked, folder if pictures else None)
            if progress:
                progress("explaining", number, len(wanted))
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        summary = {
            "elsewhere": __version__,
            "study": file.name,
            "seed": seed,
            "runs": told,
            "without_weights": bare,
            "panels": int((table["panel"] != "").sum()),
        }
        write_table(table, folder / "cases.csv")
        write_json(summary, folder / "explain.json")
    return Explanations(summary=summary, cases=table, path=Path(out))


def _runs(stored: StoredRuns, prefix: str, *, where: str) -> tuple[list[str], list[str]]:
    """Find the runs to explain, and those that match but whose weights were not saved."""
    runs = stored.with_status()
    named = runs[runs["run"].str.startswith(prefix)]
    if named.empty:
        raise unknown_name("run", prefix, list(runs["run"]))
    done = named[named["status"] == "done"]
    if done.empty:
        raise UserError(
            f"no run that starts with '{prefix}' is done: {named['reason'].iloc[0]}",
            where=where,
            fix="Run the study first; --results names its folder, --store its trainings.",
        )
    kept = [stored.store.load(key).weights is not None for key in done["training"]]
    with_weights = list(done.loc[kept, "run"])
    bare = list(done.loc[[not one for one in kept], "run"])
    if not with_weights:
        scenario = str(done["scenario"].iloc[0])
        raise UserError(
            f"the weights of {name_rows(bare, limit=2)} were not saved",
            where=where,
            fix=f'Write keep_weights = ["{scenario}"] under [study] and run the study again: it repeats '
            "these trainings.",
        )
    if len(with_weights) > MOST_RUNS:
        raise UserError(
            f"{len(with_weights)} runs start with '{prefix}'",
            where="--run",
            fix=f"Say which, at most {MOST_RUNS}: '{with_weights[0]}'.",
        )
    return with_weights, bare


def _rows(looked: Looked, folder: Path | None) -> list[dict[str, Any]]:
    """Make one row per case; panels of the shown cases are written where there is a folder."""
    rows = []
    for at, case in enumerate(looked.seen.case):
        chosen = case in looked.shown
        place = _write_panel(folder, looked, at) if folder is not None and chosen else ""
        rows.append(_row(looked, at, chosen=chosen, place=place))
    return rows


def _row(looked: Looked, at: int, *, chosen: bool, place: str) -> dict[str, Any]:
    seen = looked.seen
    one = seen.inside[at]
    return {
        "run": looked.run,
        "case": seen.case[at],
        "chosen": chosen,
        "label": looked.word(at),
        "probability": float(seen.probability[at]),
        "stored_probability": float(seen.stored[at]),
        "method": seen.method,
        "region": seen.region[at],
        "share_inside": None if one is None else one.share,
        "area_inside": None if one is None else one.area,
        "enrichment": None if one is None else one.enrichment,
        "hit": None if one is None else one.hit,
        "panel": place,
    }


def _write_panel(folder: Path, looked: Looked, at: int) -> str:
    case = looked.seen.case[at]
    place = Path("panels") / f"{_plain(looked.run)}__{_plain(case)}.png"
    (folder / place).parent.mkdir(exist_ok=True)
    looked.panel(at, f"{case}  {looked.run}").save(folder / place, "PNG")
    return str(place)


def _plain(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z._-]+", "_", name.replace(">", "-to-")).strip("._") or "x"
