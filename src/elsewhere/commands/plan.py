"""`plan`: what a study will run, what is done already, and about how long the rest takes."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.commands.output import Report
from elsewhere.engine.store import Store
from elsewhere.study.estimate import Estimate, estimate
from elsewhere.study.file import load_study
from elsewhere.study.plan import Plan
from elsewhere.study.run import (
    Status,
    StudyPaths,
    by_configuration,
    plan_of,
    status_of,
    study_paths,
    write_plan_splits,
)
from elsewhere.tables import check_out


@dataclass(frozen=True, kw_only=True)
class PlannedStudy:
    """A plan, as it is printed.

    Args:
        plan: What the study will do.
        status: Which of its trainings the store has.
        estimate: How long the rest takes.
        places: Where the study's files are.
        configurations: One row per method, with counts of its scenarios, runs and trainings.
        splits: The folder that the splits were written to; None where they were not.
        exported: The work folder that was written; None where none was.
        notes: What the exported work folder lacks.
        again: The `elsewhere run` that takes up the exported trainings, with all that was given here.
    """

    plan: Plan
    status: Status
    estimate: Estimate
    places: StudyPaths
    configurations: pd.DataFrame
    splits: Path | None = None
    exported: Path | None = None
    notes: tuple[str, ...] = ()
    again: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `study`, `file`, `store`, `datasets`, `left_out`, `duplicates`, `warnings`,
            `scenarios`, `seeds`, `runs`, `trainings`, `done`, `to_do`, `failed_before`, `skipped`, `estimate`,
            `configurations`, `roi_fallbacks`, `splits`, `exported` and `notes`.
        """
        audit = self.plan.audit()
        return {
            "study": self.plan.file.name,
            "file": str(self.plan.file.path),
            "store": str(self.places.store),
            "datasets": audit["cohorts"],
            "left_out": audit["left_out"],
            "duplicates": audit["duplicates"],
            "warnings": audit["warnings"],
            "scenarios": len({name for name, _ in self.plan.partitions}),
            "seeds": list(self.plan.study.scenarios.seeds),
            "runs": len(self.plan.planned()),
            "trainings": len(self.plan.units),
            "done": len(self.status.done),
            "to_do": len(self.status.todo),
            "failed_before": self.status.failed,
            "skipped": self.plan.skipped_table().to_dict(orient="records"),
            "estimate": self.estimate.to_dict(),
            "configurations": self.configurations.to_dict(orient="records"),
            "roi_fallbacks": audit.get("roi_fallbacks", {}),
            "splits": None if self.splits is None else str(self.splits),
            "exported": None if self.exported is None else str(self.exported),
            "notes": list(self.notes),
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        audit = self.plan.audit()
        yield f"study {self.plan.file.name} ({self.plan.file.path})"
        for name, about in audit["cohorts"].items():
            counts = ", ".join(f"{n} {label}" for label, n in _counted(about).items())
            yield f"  {name}: {counts}; {about['patients']} patients, ids of grade {about['id_grade']}"
        for gone in audit["left_out"]:
            yield f"  left out: {gone['rows']} rows of {gone['dataset']} ({gone['reason']})"
        for word in audit["warnings"]:
            yield f"  warning: {word}"
        duplicates = audit["duplicates"]
        for about in duplicates.get("by_source", {"": duplicates}).values():
            if found := about.get("counts"):
                kind = "identical cases" if "what" in about else "near-duplicates"
                yield (
                    f"  {kind}: {found['pairs']} pairs, {found['pairs_across_patients']} across patients and "
                    f"{found['pairs_across_datasets']} across datasets; no split divides them"
                )
        scenarios = len({name for name, _ in self.plan.partitions})
        yield f"{len(self.plan.planned())} runs ({scenarios} scenarios) from {len(self.plan.units)} trainings"
        yield from _table(self.configurations)
        yield f"done already: {len(self.status.done)}; to do: {len(self.status.todo)}"
        if self.status.failed:
            yield f"failed before, and will be tried again: {len(self.status.failed)}"
        reasons = Counter((s.scenario.name, s.reason) for s in self.plan.skipped)
        for (name, reason), seeds in reasons.items():
            yield f"skipped: {name} ({seeds} seeds): {reason}"
        yield from _tasks_skipped(self.plan)
        if self.status.todo:
            yield f"estimate: {self.estimate.text()}"
        yield from (f"note: {note}" for note in self.notes)
        if self.splits is not None:
            yield f"splits: {self.splits}"
        if self.exported is not None:
            yield f"work folder: {self.exported}"
            yield f"  there: python -m elsewhere.engine {self.exported.name} --store store --zip done.zip"
            yield f"  here:  {self.again} --import done.zip"


def _tasks_skipped(plan: Plan) -> Iterator[str]:
    """A task that cannot be asked in a scenario that is otherwise done."""
    whole = {s.reason for s in plan.skipped}
    gone = plan.runs[(plan.runs["status"] == "skipped") & ~plan.runs["reason"].isin(whole)]
    for (name, task, reason), part in gone.groupby(["scenario", "task", "reason"], sort=False):
        yield f"skipped: {name}, {task} ({part['method'].nunique()} methods): {reason}"


def _counted(about: dict[str, Any]) -> dict[str, int]:
    """Pictures by label, exams by outcome, or cases; and how many have a volume, a mask or what else is read."""
    if "images" in about:
        return dict(about["images"])
    known = {"hash", "reader", "id_grade", "id_grade_why", "rows", "patients", "sites", "outcomes"}
    counts = {f"with a {noun.removesuffix('s')}": n for noun, n in about.items() if noun not in known}
    return {**about.get("outcomes", {"cases": about["rows"]}), **counts}


def plan_study(
    study: str | Path,
    *,
    data: str | Path | None = None,
    out: str | Path | None = None,
    store: str | Path | None = None,
    splits: str | Path | None = None,
    export: str | Path | None = None,
    replace: bool = False,
    changes: Sequence[str] = (),
    seeds: Sequence[int] = (),
    ids: str | None = None,
    only: Sequence[str] = (),
    only_models: Sequence[str] = (),
    only_inputs: Sequence[str] = (),
    profile: str | None = None,
    device: str = "auto",
    progress: Report | None = None,
) -> PlannedStudy:
    """Work out a study without training anything.

    `splits` is a folder for every partition as csv (US-09); `export` one for the trainings that are still to
    do, to be run on a machine that has neither the data nor this package's libraries.

    Args:
        study: A study file or the name of one that ships.
        data: The folder of the data sets.
        out: The folder of the results.
        store: The store of the trainings.
        splits: A folder for every split as csv.
        export: A folder for the trainings that are still to do.
        replace: Whether files that exist may be replaced.
        changes: Changes of the study file, `key=value`.
        seeds: Seeds in place of the file's.
        ids: `patient` or `image`.
        only: Only scenarios with these names.
        only_models: Only these models.
        only_inputs: Only these inputs.
        profile: A profile of the study file.
        device: `auto`, `cpu` or `cuda`.
        progress: Called to report how far the work is.

    Returns:
        The plan.
    """
    file = load_study(
        study,
        data=data,
        changes=changes,
        seeds=seeds,
        ids=ids,
        only=only,
        only_models=only_models,
        only_inputs=only_inputs,
        profile=profile,
    )
    check_out(splits, replace=replace)
    check_out(export, replace=replace)
    at = study_paths(file, out=out, store=store)
    plan = plan_of(file, at, progress=progress)
    held = Store(at.store)
    status = status_of(plan, held)
    folder = None
    if splits is not None:
        folder = Path(splits)
        write_plan_splits(plan, folder, replace=replace)
    exported: Path | None = None
    notes: tuple[str, ...] = ()
    if export is not None:
        from elsewhere.study.export import export_work

        exported, notes = export_work(
            plan, status.todo, Path(export), store=held, replace=replace, progress=progress
        )
    return PlannedStudy(
        plan=plan,
        status=status,
        estimate=estimate(status.todo, plan.table.cases, held, device=device),
        places=at,
        configurations=by_configuration(plan, status.done),
        splits=folder,
        exported=exported,
        notes=notes,
        again=shlex.join(
            [
                *("elsewhere", "run", str(study)),
                *_option("--data", data),
                *_option("--profile", profile),
                *(word for change in changes for word in ("--set", change)),
                *_option("--seeds", ",".join(map(str, seeds))),
                *_option("--ids", ids),
                *(word for name in only for word in ("--only", name)),
                *_option("--only-recipe" if file.study.recipes else "--only-model", ",".join(only_models)),
                *_option("--only-input", ",".join(only_inputs)),
                *_option("--store", store),
                *_option("--out", at.out),
            ]
        ),
    )


def _option(name: str, value: str | Path | None) -> tuple[str, ...]:
    return (name, str(value)) if value else ()


def _table(frame: pd.DataFrame) -> Iterator[str]:
    names = [name.replace("_", " ") for name in frame.columns]
    rows = [names, *([str(value) for value in row] for row in frame.itertuples(index=False))]
    widths = [max(len(row[at]) for row in rows) for at in range(len(names))]
    for row in rows:
        cells = [
            cell.ljust(width) if at < 3 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()
