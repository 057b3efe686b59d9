"""The figures of merit of a reader study, from the workbook of a JAFROC study or from result folders.

Below this module nothing knows where they came from. In a workbook the readers are people and the treatments
modalities. In result folders a treatment is a method, and its readers are the trainings (seeds) of that method:
each folder is what `elsewhere score` wrote for one of them. Any metric of the task is a figure of merit there;
its value without each patient comes from the evaluator, as for every other interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from elsewhere.analysis.result.assessment import Assessment, ids_of_result
from elsewhere.analysis.result.comparison import aligned, options_of, same_cases
from elsewhere.analysis.result.names import names_of
from elsewhere.analysis.result.storage import SUMMARY, load_assessment
from elsewhere.errors import UserError, name_rows, unknown_name
from elsewhere.scoring.prepared import Prepared, prepare, primary_metric
from elsewhere.scoring.reader_study import (
    FIGURES_OF_MERIT,
    ReaderStudy,
    figure_matrix,
    find_figure,
    panel_matrices,
)
from elsewhere.scoring.reader_study.figures import LeftOut
from elsewhere.statistics.evaluator import FloatArray, RatioInputs
from elsewhere.statistics.mrmc import FigureMatrix
from elsewhere.tables import file_digest
from elsewhere.tables.identifiers import note_source

Design = Literal["auto", "crossed", "nested"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What is compared: a figure of merit, or a metric of a task.

    Attributes:
        name: Its name.
        title: What a table calls it.
        about: What it measures, as a clause; empty where the task says so.
        bounds: The smallest and the largest value; None for none.
        higher_is_better: Whether a higher value is better.
    """

    name: str
    title: str
    about: str = ""
    bounds: tuple[float | None, float | None] = (None, None)
    higher_is_better: bool = True


@dataclass(frozen=True, kw_only=True)
class ReaderInputs:
    """The figures of merit of a reader study, and where they came from.

    Attributes:
        figure: What is compared.
        matrix: The figures of merit of the readers.
        panels: The readers of each treatment with the model as the last one; empty without a model.
        model: The name of the model; None for none.
        left_out: What the jackknife left out: 'patient' or 'case'.
        readers_are: 'readers' or 'trainings', for texts.
        paradigm: 'ROC' or 'FROC' of a workbook; the task of result folders.
        counts: Numbers of cases, patients and marks, and what was left out.
        source: What the provenance says about the inputs.
        ids: Every id that must not be shared.
        warnings: Full sentences for the reader of the result.
    """

    figure: Figure
    matrix: FigureMatrix
    panels: tuple[FigureMatrix, ...] = ()
    model: str | None = None
    left_out: str = "patient"
    readers_are: str = "readers"
    paradigm: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    ids: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def inputs_of_workbook(
    study: ReaderStudy,
    *,
    figure: str | None = None,
    threshold: float | None = None,
    path: Path | None = None,
    leave_out: LeftOut = "patient",
) -> ReaderInputs:
    """Compute the figures of merit of a study of marks or ratings.

    Args:
        study: The study.
        figure: The name of the figure of merit; None for the usual one: wAFROC of marks, AUC of ratings.
        threshold: The rating from which a case counts as positive, for sensitivity and specificity.
        path: The workbook, for the digest; None for none.
        leave_out: What the jackknife leaves out.

    Returns:
        The figures of merit.

    Raises:
        UserError: The figure is unknown, or undefined for these cases.
    """
    chosen = find_figure(figure, study.paradigm, threshold=threshold)
    counts = {
        "cases": study.truth.n_cases,
        "patients": study.n_patients,
        "positives": int((study.truth.n_lesions > 0).sum()),
        "lesions": len(study.truth.case),
        "marks": sum(marks.case.size for marks in study.marks.values()),
        **study.counts,
    }
    return ReaderInputs(
        figure=Figure(
            name=chosen.name,
            title=chosen.title if threshold is None else f"{chosen.title} at {threshold:g}",
            about=chosen.about,
            bounds=chosen.bounds,
            higher_is_better=chosen.higher_is_better,
        ),
        matrix=figure_matrix(study, chosen, leave_out=leave_out),
        panels=tuple(panel_matrices(study, chosen, leave_out=leave_out)) if study.model else (),
        model=study.model,
        left_out=leave_out if study.has_patients else "case",
        paradigm=study.paradigm,
        counts=counts,
        source={} if path is None else {"workbook_digest": file_digest(path)},
        ids=(*study.case_ids,),
        warnings=study.warnings,
    )


def result_folders(path: str | Path) -> list[Path]:
    """List the result folders that a path stands for: itself, or those directly inside it.

    Args:
        path: A result folder, or a folder of result folders.

    Returns:
        The result folders, by name.

    Raises:
        UserError: There is none.
    """
    folder = Path(path)
    if (folder / SUMMARY).is_file():
        return [folder]
    inside = sorted(p for p in folder.iterdir() if (p / SUMMARY).is_file()) if folder.is_dir() else []
    if not inside:
        raise UserError(
            "there is no result in this folder" if folder.is_dir() else "there is no such folder",
            where=str(folder),
            fix="Name a folder that `elsewhere score ... --out` wrote, or a folder of such folders.",
        )
    return inside


def inputs_of_results(
    treatments: Mapping[str, Sequence[str | Path]],
    *,
    figure: str | None = None,
    model: str | None = None,
    design: Design = "auto",
) -> ReaderInputs:
    """Take a metric of scored results as the figure of merit: treatments are methods, readers their trainings.

    Args:
        treatments: For each treatment its result folders, or folders of result folders.
        figure: The name of the metric; None for the primary one of the task.
        model: The name of the folder that is compared with the others as a model; None for none.
        design: 'crossed' where the readers of all treatments are the same people or seeds, 'nested' where each
            treatment has its own; 'auto' for crossed where all have the same names.

    Returns:
        The figures of merit.

    Raises:
        UserError: A folder does not hold a result, the results are not of the same cases, or the metric is undefined.
    """
    given = [
        (name, folder)
        for name, items in treatments.items()
        for item in items
        for folder in result_folders(item)
    ]
    places = [folder.resolve() for _, folder in given]
    twice = [str(folder) for (_, folder), place in zip(given, places, strict=True) if places.count(place) > 1]
    if twice:
        raise UserError(
            f"a result is given twice: {twice[0]}", where="--treatment", fix="Name each result folder once."
        )
    loaded: list[tuple[str, str, Assessment]] = []
    for name in treatments:
        folders = [folder for treatment, folder in given if treatment == name]
        for folder, reader in zip(folders, names_of(folders), strict=True):
            note_source(folder)
            loaded.append((name, reader, load_assessment(folder)))
    first = loaded[0][2]
    ready: dict[tuple[str, str], Prepared] = {}
    ids: dict[str, None] = {}
    for name, reader, one in loaded:
        try:
            same_cases(first, one)
        except UserError as problem:
            raise UserError(problem.what, where=f"{name}, {reader}", fix=problem.fix) from problem
        ids |= dict.fromkeys(ids_of_result(one))
        ready[name, reader] = prepare(aligned(first, one).scores, options_of(one))
    start = ready[loaded[0][0], loaded[0][1]]
    metric = _metric_of(start, figure)
    spec = next(spec for spec in start.evaluator.specs if spec.name == metric)
    values = {pair: _value_without_each(one, metric, pair) for pair, one in ready.items()}
    matrix, panels = _matrices(values, tuple(treatments), model, design)
    counts = first.summary["counts"]
    return ReaderInputs(
        figure=Figure(
            name=metric,
            title=spec.label or metric,
            bounds=(
                spec.lower_bound if math.isfinite(spec.lower_bound) else None,
                spec.upper_bound if math.isfinite(spec.upper_bound) else None,
            ),
            higher_is_better=spec.higher_is_better,
        ),
        matrix=matrix,
        panels=panels,
        model=model,
        left_out="patient",
        readers_are="readers" if not matrix.nested else "trainings",
        paradigm=first.scores.task,
        counts={k: counts[k] for k in ("cases", "patients", "positives") if isinstance(counts.get(k), int)},
        source={
            "cohort_hash": first.provenance["cohort_hash"],
            "protocol": first.summary["protocol"],
            "protocol_version": first.summary["protocol_version"],
            "predictions_digest": {
                f"{name}/{reader}": one.provenance.get("predictions_digest") for name, reader, one in loaded
            },
        },
        ids=tuple(ids),
    )


def _metric_of(ready: Prepared, wanted: str | None) -> str:
    names = [spec.name for spec in ready.evaluator.specs]
    if wanted is None:
        return primary_metric(ready.evaluator, ready.scores.protocol)
    plain = wanted.strip().casefold().replace("-", "_")
    also = [
        other.name
        for other in FIGURES_OF_MERIT
        if plain.replace("_", "-") in (other.name.replace("_", "-"), *other.other_names)
    ]
    for name in (wanted, plain, *also):
        if name in names:
            return name
    raise unknown_name("metric", wanted, names)


def _value_without_each(ready: Prepared, metric: str, pair: tuple[str, str]) -> tuple[float, FloatArray]:
    at = [spec.name for spec in ready.evaluator.specs].index(metric)
    value = ready.evaluator.values()[metric]
    if not np.isfinite(value):
        why = ready.evaluator.undefined_reasons().get(metric, "it is not defined for these cases")
        raise UserError(
            f"{metric} is undefined: {why}",
            where=f"{pair[0]}, {pair[1]}",
            fix="Choose another metric with --fom.",
        )
    without = ready.evaluator.leave_one_out()[:, at]
    form = ready.evaluator.closed_form(metric)
    if isinstance(form, RatioInputs):
        counted = np.bincount(ready.evaluator.cluster_of_case, form.denominator, ready.evaluator.n_clusters)
        without = without[counted > 0]
    if not np.isfinite(without).all():
        raise UserError(
            f"{metric} is undefined without one of the patients",
            where=f"{pair[0]}, {pair[1]}",
            fix="Each class needs at least two patients.",
        )
    return value, without


def _matrices(
    values: Mapping[tuple[str, str], tuple[float, FloatArray]],
    treatments: tuple[str, ...],
    model: str | None,
    design: Design,
) -> tuple[FigureMatrix, tuple[FigureMatrix, ...]]:
    """The figures of the readers, and of each treatment's readers with the model."""
    of_model = {name: made for (name, reader), made in values.items() if model in (reader, name)}
    if model is not None and not of_model:
        raise unknown_name("model", model, [reader for _, reader in values])
    rows = {
        name: [reader for treatment, reader in values if treatment == name and reader != model]
        for name in treatments
        if name != model
    }
    rows = {name: row for name, row in rows.items() if row}
    if not rows:
        raise UserError("there is nobody to compare the model with", fix="Give readers with --treatment.")
    sizes = {len(row) for row in rows.values()}
    alike = len({frozenset(row) for row in rows.values()}) == 1
    nested = design == "nested" or (design == "auto" and not alike)
    if design == "crossed" and not alike:
        everyone = [set(row) for row in rows.values()]
        odd = sorted(set[str]().union(*everyone) - everyone[0].intersection(*everyone[1:]))
        raise UserError(
            f"the treatments have other readers: {name_rows(odd)}",
            fix="In a crossed study each reader has a result of the same name with every treatment. For trainings of "
            "several methods: --design nested.",
        )
    if len(sizes) > 1:
        shown = ", ".join(f"{name}: {len(row)}" for name, row in rows.items())
        raise UserError(
            f"the treatments have different numbers of readers ({shown})",
            fix="Give as many results for each treatment.",
        )
    if not nested:
        rows = dict.fromkeys(rows, sorted(next(iter(rows.values()))))
    matrix = FigureMatrix.from_left_out(
        [[values[name, reader][0] for reader in row] for name, row in rows.items()],
        [[values[name, reader][1] for reader in row] for name, row in rows.items()],
        treatments=tuple(rows),
        readers=list(rows.values()) if nested else next(iter(rows.values())),
        nested=nested,
    )
    panels = []
    for name, row in rows.items() if model is not None else ():
        mine = of_model.get(name) or (next(iter(of_model.values())) if len(of_model) == 1 else None)
        if mine is None:
            continue
        together = [*(values[name, reader] for reader in row), mine]
        panels.append(
            FigureMatrix.from_left_out(
                [[value for value, _ in together]],
                [[without for _, without in together]],
                treatments=(name,),
                readers=(*row, str(model)),
            )
        )
    return matrix, tuple(panels)
