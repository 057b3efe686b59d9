"""The analysis of a reader study as the content of summary.json, with tables for other programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from elsewhere._version import __version__
from elsewhere.analysis.readers.inputs import Figure, ReaderInputs
from elsewhere.errors import UserError, unknown_name
from elsewhere.privacy import Redactor
from elsewhere.statistics.differences import Difference
from elsewhere.statistics.limits import check_alpha
from elsewhere.statistics.mrmc import (
    FigureMatrix,
    PanelComparison,
    RandomFactors,
    ReaderStudyAnalysis,
    TreatmentDifference,
    analyse_readers,
    compare_with_panel,
    few_readers,
)
from elsewhere.statistics.verdict import OverallVerdict, assess_claim, overall
from elsewhere.tables.identifiers import read_folders

METHOD = "Obuchowski-Rockette"


@dataclass(frozen=True, kw_only=True)
class ReaderStudyOptions:
    """How a reader study is analysed and judged.

    Attributes:
        random: What is random in the analysis that leads and that the verdict rests on.
        level: The level of the intervals.
        margin: The non-inferiority margin, above 0; None for no verdict.
        alpha: The level of the one-sided test of the verdict, whose interval is 1 - 2 alpha.
        reference: The treatment that the others are compared with; None for the first one.
    """

    random: RandomFactors = RandomFactors.READERS_AND_CASES
    level: float = 0.95
    margin: float | None = None
    alpha: float = 0.05
    reference: str | None = None


@dataclass(frozen=True, kw_only=True)
class AnalysedReaders:
    """A reader study that was analysed.

    Attributes:
        summary: The content of summary.json; it names no case.
        tables: The tables of the result, by the name of their csv file.
        redactor: The redactor that took the ids out of the summary.
        exit_code: The exit code that stands for the verdict; 0 without one.
    """

    summary: dict[str, Any]
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    redactor: Redactor
    exit_code: int = 0


def analyse_inputs(inputs: ReaderInputs, options: ReaderStudyOptions) -> AnalysedReaders:
    """Analyse a reader study.

    Args:
        inputs: The figures of merit and where they came from.
        options: What is random, the level of the intervals, the margin.

    Returns:
        The summary and the tables.

    Raises:
        UserError: The reference is no treatment, or the margin or a level is not allowed.

    Example:
        >>> matrix = FigureMatrix.crossed(
        ...     [[0.8, 0.7], [0.9, 0.8]], [[0.001] * 4] * 4, treatments=("A", "B"), readers=("1", "2")
        ... )
        >>> inputs = ReaderInputs(figure=Figure(name="auroc", title="AUROC"), matrix=matrix)
        >>> made = analyse_inputs(inputs, ReaderStudyOptions(random=RandomFactors.CASES))
        >>> made.summary["readers"]["per_reader"][3]["value"], made.exit_code
        (0.8, 0)
    """
    reference = options.reference or inputs.matrix.treatments[0]
    if reference not in inputs.matrix.treatments:
        raise unknown_name("treatment", reference, inputs.matrix.treatments)
    matrix = _reference_first(inputs.matrix, reference)
    made = analyse_readers(matrix, level=options.level)
    panels = [
        compare_with_panel(panel, model=str(inputs.model), level=options.level) for panel in inputs.panels
    ]
    random = _possible(options.random, matrix)
    warnings = [*inputs.warnings]
    if random is not options.random:
        warnings.append(
            f"With one {inputs.readers_are[:-1]} the conclusion is about this {inputs.readers_are[:-1]} alone: readers cannot "
            "be a random factor."
        )
    df = made.mean_squares.df_interaction if matrix.shape[0] > 1 and not panels else matrix.shape[1] - 1
    few = few_readers(df, random)
    warnings += [few] if few else []
    warnings += _beyond_bounds(made, random, inputs.figure)
    part = _part(inputs, made, panels, random)
    verdict = _verdict(inputs, made, panels, random, options)
    summary: dict[str, Any] = {
        "elsewhere": __version__,
        "task": "reader study",
        "question": _question(matrix, inputs),
        **{k: inputs.source[k] for k in ("protocol", "protocol_version") if k in inputs.source},
        "provenance": {
            "command": "readers",
            "code_version": __version__,
            **{k: v for k, v in inputs.source.items() if not k.startswith("protocol")},
            "settings": {
                "figure_of_merit": inputs.figure.name,
                "random": random.value,
                "level": options.level,
                "left_out": inputs.left_out,
                **({"margin": options.margin, "alpha": options.alpha} if options.margin else {}),
            },
        },
        "counts": {
            **inputs.counts,
            "treatments": matrix.shape[0],
            "readers": matrix.shape[1] * (matrix.shape[0] if matrix.nested else 1),
        },
        "metrics": {},
        "readers": part,
        "methods": methods_of(inputs, matrix, random, options),
        "warnings": warnings,
    }
    exit_code = 0
    if verdict is not None:
        summary["verdict"] = verdict.to_dict() | {"reference": _reference_words(inputs, reference)}
        exit_code = verdict.exit_code
    redactor = Redactor(inputs.ids, folders=read_folders())
    summary = redactor.summary(summary)
    return AnalysedReaders(
        summary=summary, tables=tables_of(summary["readers"]), redactor=redactor, exit_code=exit_code
    )


def _reference_first(matrix: FigureMatrix, reference: str) -> FigureMatrix:
    """Put the reference in front, so that every difference to it is 'other minus reference'."""
    at = matrix.treatments.index(reference)
    order = [at, *(i for i in range(matrix.shape[0]) if i != at)]
    rows = [i * matrix.shape[1] + j for i in order for j in range(matrix.shape[1])]
    return FigureMatrix(
        values=matrix.values[order],
        covariance=matrix.covariance[rows][:, rows],
        treatments=tuple(matrix.treatments[i] for i in order),
        readers=tuple(matrix.readers[i] for i in order),
        nested=matrix.nested,
    )


def _possible(random: RandomFactors, matrix: FigureMatrix) -> RandomFactors:
    if matrix.shape[1] > 1 or random is RandomFactors.CASES:
        return random
    if random is RandomFactors.READERS:
        raise UserError(
            "there is one reader: readers alone cannot be the random factor", fix="Use --random cases."
        )
    return RandomFactors.CASES


def _question(matrix: FigureMatrix, inputs: ReaderInputs) -> str:
    if inputs.model is not None:
        return "Is the model as good as the readers?"
    if matrix.shape[0] == 1:
        return f"How good are the {inputs.readers_are}?"
    if matrix.shape[0] == 2:
        return "Do the two treatments differ?"
    return "Do the treatments differ?"


def _reference_words(inputs: ReaderInputs, reference: str) -> str:
    return "mean of the readers" if inputs.model is not None else f"treatment {reference}"


def _beyond_bounds(made: ReaderStudyAnalysis, random: RandomFactors, figure: Figure) -> list[str]:
    low, high = figure.bounds
    beyond = [
        row.treatment
        for row in made.analyses[random].means
        if (row.lo is not None and low is not None and row.lo < low)
        or (row.hi is not None and high is not None and row.hi > high)
    ]
    if not beyond:
        return []
    return [
        f"The interval of {', '.join(beyond)} reaches beyond what {figure.title} can be: the figures of merit are near their "
        "limit, where the t approximation of this analysis is poor."
    ]


def _verdict(
    inputs: ReaderInputs,
    made: ReaderStudyAnalysis,
    panels: list[PanelComparison],
    random: RandomFactors,
    options: ReaderStudyOptions,
) -> OverallVerdict | None:
    if options.margin is None:
        return None
    check_alpha(options.alpha)
    if not (math.isfinite(options.margin) and options.margin > 0):
        raise UserError(
            f"the non-inferiority margin is {options.margin:g}",
            where="--non-inferiority-margin",
            fix="Give the largest loss that would not matter, above 0, such as 0.05.",
        )
    rows: list[tuple[TreatmentDifference, float, float, tuple[str, str]]] = []
    if inputs.model is not None:
        rows = [
            (panel.differences[random], panel.value, panel.mean, (panel.panel, "mean of the readers"))
            for panel in panels
        ]
    else:
        reference = made.study.treatments[0]
        means = {row.treatment: row.value for row in made.analyses[random].means}
        rows = [
            (
                made.analyses[random].difference(name, reference),
                means[name],
                means[reference],
                (name, f"treatment {reference}"),
            )
            for name in made.study.treatments[1:]
        ]
    if not rows:
        raise UserError(
            "there is nothing to compare: one treatment and no model",
            where="--non-inferiority-margin",
            fix="Name the model among the readers with --model, or leave the margin out.",
        )
    claims = []
    for row, here, there, (group, words) in rows:
        lo, hi = row.ends(1.0 - 2.0 * options.alpha)
        difference = Difference(
            metric=inputs.figure.name,
            here=here,
            reference=there,
            difference=row.value,
            lo=lo,
            hi=hi,
            se=math.nan if row.se is None else row.se,
            alpha=options.alpha,
            method=f"{METHOD}, random {random.value.replace(',', ' and ')}",
            reference_source=words,
            higher_is_better=inputs.figure.higher_is_better,
            standardised=True,
            undefined_reason=row.reason,
        )
        claims.append(
            assess_claim(
                difference,
                margin=options.margin,
                margin_source="declared",
                aim="non-inferiority",
                group=group,
            )
        )
    return overall(claims)


def _part(
    inputs: ReaderInputs,
    made: ReaderStudyAnalysis,
    panels: list[PanelComparison],
    random: RandomFactors,
) -> dict[str, Any]:
    """The `readers` of a summary: figure of merit, analysis of variance, covariances, analyses, readers."""
    matrix = made.study
    part: dict[str, Any] = {
        "figure": asdict(inputs.figure),
        "design": "nested" if matrix.nested else "crossed",
        "readers_are": inputs.readers_are,
        "paradigm": inputs.paradigm,
        "left_out": inputs.left_out,
        "random": random.value,
        "level": made.level,
        "treatments": list(matrix.treatments),
        "anova": _anova(made),
        "covariances": made.covariances.to_dict(),
        "of_treatment": [
            {"treatment": name, "var": one.var, "cov2": one.cov2}
            for name, one in zip(matrix.treatments, made.of_treatment, strict=True)
        ],
        "variance_components": dict(made.variance_components),
        "analyses": {
            kind.value: {
                "title": kind.heading,
                "test": _finite(asdict(one.test)),
                "means": [_finite(asdict(row)) for row in one.means],
                "differences": [_finite(asdict(row)) for row in one.differences],
            }
            for kind, one in made.analyses.items()
        },
        "per_reader": [
            {
                "reader": matrix.readers[i][j],
                "treatment": matrix.treatments[i],
                "value": float(matrix.values[i, j]),
                "se": float(made.reader_se[i, j]),
            }
            for i in range(matrix.shape[0])
            for j in range(matrix.shape[1])
        ],
        "reader_differences": [_finite(asdict(row)) for row in made.reader_differences],
        "notes": list(made.notes),
    }
    if panels:
        part["model"] = inputs.model
        part["panel"] = [_panel(panel) for panel in panels]
    return part


def _panel(panel: PanelComparison) -> dict[str, Any]:
    return {
        "treatment": panel.panel,
        "model": panel.model,
        "value": panel.value,
        "mean_of_readers": panel.mean,
        "readers": len(panel.readers),
        "readers_above": panel.above,
        "per_reader": [{"reader": name, "value": value} for name, value in panel.readers.items()],
        "var": panel.errors.var,
        "cov2": panel.errors.cov2,
        "analyses": {
            kind.value: {"title": kind.heading, **_finite(asdict(row))}
            for kind, row in panel.differences.items()
        },
        "notes": list(panel.notes),
    }


def _anova(made: ReaderStudyAnalysis) -> list[dict[str, Any]]:
    squares = made.mean_squares
    inner = "Reader within treatment" if made.study.nested else "Treatment x reader"
    rows = [
        ("Treatment", squares.df_treatment, squares.treatment),
        ("Reader", squares.df_reader, squares.reader),
        (inner, squares.df_interaction, squares.interaction),
    ]
    return [
        {"source": name, "df": df, "sum_of_squares": ms * df, "mean_square": ms}
        for name, df, ms in rows
        if ms is not None
    ]


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """Infinite degrees of freedom become null with the word 'normal' next to them: JSON has no infinity."""
    out = dict(row)
    for name in ("df", "df2"):
        if isinstance(out.get(name), float) and math.isinf(out[name]):
            out[name] = None
            out["distribution"] = "normal" if name == "df" else "chi-squared"
    return out


def tables_of(part: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Make the tables of a reader study for other programs.

    Args:
        part: The `readers` of a summary.

    Returns:
        `anova`, `covariances`, `tests`, `means`, `differences`, `readers` and, where there are any,
        `reader_differences` and `panel`, by the name of their csv file.
    """
    tests, means, differences = [], [], []
    for random, one in part["analyses"].items():
        tests.append({"random": random, **one["test"]})
        means += [{"random": random, **row} for row in one["means"]]
        differences += [{"random": random, **row} for row in one["differences"]]
    tables = {
        "anova": part["anova"],
        "covariances": [{"treatment": "all", **part["covariances"]}, *part["of_treatment"]],
        "tests": tests,
        "means": means,
        "differences": differences,
        "readers": part["per_reader"],
        "reader_differences": part["reader_differences"],
        "panel": [
            {
                "random": random,
                **{k: panel[k] for k in ("treatment", "model", "value", "mean_of_readers", "readers_above")},
                **{("difference" if k == "value" else k): v for k, v in row.items() if k != "title"},
            }
            for panel in part.get("panel", ())
            for random, row in panel["analyses"].items()
        ],
    }
    return {f"{name}.csv": pd.DataFrame(rows) for name, rows in tables.items() if rows}


def methods_of(
    inputs: ReaderInputs, matrix: FigureMatrix, random: RandomFactors, options: ReaderStudyOptions
) -> str:
    """Write the paragraph for a paper's methods.

    Args:
        inputs: The figures of merit and where they came from.
        matrix: The figures of merit.
        random: What is random in the leading analysis.
        options: The level, and the margin where there is one.

    Returns:
        Whole sentences that state what was done.
    """
    treatments, readers = matrix.shape
    who = inputs.readers_are if readers > 1 else inputs.readers_are[:-1]
    reads = f", each with {readers} {who} of its own" if matrix.nested else ""
    if treatments > 1 and not matrix.nested:
        reads = ", every case read by every reader with every treatment"
    cases = f"{inputs.counts.get('cases', 0):,} cases of {inputs.counts.get('patients', 0):,} patients"
    sentences = [
        f"The figure of merit was {inputs.figure.title}"
        + (f" ({inputs.figure.about})" if inputs.figure.about else "")
        + f", for {readers} {who} and {treatments} treatment{'s' if treatments > 1 else ''}{reads}, on {cases}.",
        f"Its error covariance was estimated by the jackknife over {inputs.left_out}s.",
        f"Treatments were compared by the method of Obuchowski and Rockette with the degrees of freedom of Hillis (2007), "
        f"with {random.heading.lower()}; intervals are {100 * options.level:g} %.",
    ]
    if matrix.nested:
        sentences[-1] = sentences[-1].replace(
            "Hillis (2007)", "Hillis (2014, readers nested within treatments)"
        )
    if inputs.model is not None:
        sentences.append(
            f"{inputs.model} was compared with the mean of the readers by the analysis of a single treatment on the "
            "differences between the model and each reader."
        )
    if options.margin is not None:
        sentences.append(
            f"The non-inferiority margin was {options.margin:g}, compared with the {100 * (1 - 2 * options.alpha):g} % interval."
        )
    sentences.append(f"Analysis: Elsewhere {__version__}.")
    return " ".join(sentences)
