"""Every model at two domains: by patient, by fold as the study did, and at the reference's mix of cases."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.generalise.settings import STUDY, Domains, GeneraliseOptions
from elsewhere.scoring.patch_scores import FPR, PATCH_METRICS, PatchMetric, PatchScores
from elsewhere.statistics.equivalence import GroupSummary, StudyMargin, TostResult, study_margin, welch_tost
from elsewhere.statistics.evaluator import FloatArray
from elsewhere.statistics.many_models import (
    ManyDifferences,
    SideSums,
    Standardised,
    compare_many,
    standardise_many,
)
from elsewhere.statistics.power import power_numbers
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.verdict import Judgement, Verdict, judge

ALL = "all"
BoolArray = npt.NDArray[np.bool_]
STAGES = ("macro", "micro", "itc", "negative")


@dataclass(frozen=True, kw_only=True)
class Stratum:
    """Some of the slides.

    Attributes:
        column: The column that defines them; empty for all slides.
        value: Its value; 'all' for all slides.
        chosen: Which parts they are.
    """

    column: str
    value: str
    chosen: BoolArray


def strata_of(scores: PatchScores, columns: Sequence[str]) -> list[Stratum]:
    """List all slides, and the slides of each value of each column.

    Args:
        scores: The scores.
        columns: The columns.

    Returns:
        The strata; stages in their usual order, other values sorted.
    """
    rows = [Stratum(column="", value=ALL, chosen=np.ones(len(scores.parts), dtype=bool))]
    for column in columns:
        values = scores.parts[column].astype(str)
        order = sorted(set(values), key=lambda v: (STAGES.index(v.lower()) if v.lower() in STAGES else 99, v))
        rows += [
            Stratum(column=column, value=value, chosen=(values == value).to_numpy(dtype=bool))
            for value in order
            if value
        ]
    return rows


def sides_of(
    scores: PatchScores, metric: PatchMetric, domains: Domains, chosen: BoolArray, *, weight: str = "patches"
) -> tuple[SideSums, SideSums]:
    """Add the scores of a metric up by patient, at both domains.

    Args:
        scores: The scores.
        metric: The metric.
        domains: Which slides are internal and external.
        chosen: The parts that count.
        weight: 'patches', or 'slides' to count each slide once.

    Returns:
        The internal and the external side.
    """
    total, count = scores.fold_average(metric), scores.count[metric.name]
    if weight == "slides":
        total = total / np.where(count > 0, count, 1.0)
        count = (count > 0).astype(float)
    first, second = (
        SideSums.of_parts(
            scores.patients, scores.patient_of_part, total=total, count=count, chosen=chosen & side
        )
        for side in (domains.internal, domains.external)
    )
    return first, second


@dataclass(frozen=True, kw_only=True)
class ByFold:
    """The study's test: Welch's two one-sided tests on the means of the folds, internal - external (LN-11).

    Attributes:
        tests: One per model; None where a fold mean is missing or there is one fold.
        margin: The margin; None where none could be made.
        study: How it was made from the data; None for a declared one.
        reason: Why there are no tests; empty where there are.
    """

    tests: tuple[TostResult | None, ...]
    margin: float | None
    study: StudyMargin | None
    reason: str = ""


def by_fold(
    internal: FloatArray, external: FloatArray, *, margin: float | str | None, alpha: float
) -> ByFold:
    """Test every model by fold.

    Args:
        internal: Means of the internal patches, (models, folds).
        external: Means of the external patches, alike.
        margin: The margin, or 'study' to make it from all models' differences; None for none.
        alpha: The level of each one-sided test.

    Returns:
        The tests.
    """
    models = internal.shape[0]
    first, second = _groups(internal), _groups(external)
    differences = np.array(
        [
            (a.mean - b.mean) if a is not None and b is not None else np.nan
            for a, b in zip(first, second, strict=True)
        ]
    )
    defined = differences[np.isfinite(differences)]
    study = study_margin(defined) if margin == STUDY and defined.size >= 2 else None
    width = study.value if study is not None else margin
    if not isinstance(width, float | int) or width <= 0:
        reason = "fewer than two models have a difference, so that no margin can be made from the data"
        return ByFold(
            tests=(None,) * models, margin=None, study=None, reason=reason if margin == STUDY else ""
        )
    tests = tuple(
        None
        if a is None or b is None
        else welch_tost(a, b, low=-float(width), high=float(width), alpha=alpha)
        for a, b in zip(first, second, strict=True)
    )
    short = "a test by fold needs two folds with such patches in both domains"
    return ByFold(
        tests=tests,
        margin=float(width),
        study=study,
        reason=short if all(test is None for test in tests) else "",
    )


def _groups(means: FloatArray) -> list[GroupSummary | None]:
    rows: list[GroupSummary | None] = []
    for row in means:
        values = row[np.isfinite(row)]
        rows.append(
            GroupSummary(mean=float(values.mean()), sd=float(values.std(ddof=1)), n=values.size)
            if values.size > 1
            else None
        )
    return rows


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One metric in one stratum, for all models.

    Attributes:
        stratum: The slides.
        metric: The metric.
        differences: By patient.
        folds: By fold.
        standardised: At the reference's mix of cases; None where none was asked for.
        sd: Standard deviations over patches, (internal, external).
        patches: Numbers of patches, (internal, external).
        margin: The margin of the verdicts; None where there is none.
    """

    stratum: Stratum
    metric: PatchMetric
    differences: ManyDifferences
    folds: ByFold
    standardised: Standardised | None
    sd: tuple[FloatArray, FloatArray]
    patches: tuple[int, int]
    margin: float | None


def cells_of(
    scores: PatchScores, domains: Domains, options: GeneraliseOptions, resampling: Resampling
) -> Iterator[Cell]:
    """Compare both domains for each metric and stratum.

    Args:
        scores: The scores.
        domains: Which slides are internal and external.
        options: Margins, strata and levels.
        resampling: The resamples, shared by all models.

    Yields:
        One cell per stratum and metric that has patches.
    """
    for stratum in strata_of(scores, options.by):
        for metric in PATCH_METRICS:
            count = scores.count[metric.name]
            inside, outside = (stratum.chosen & side for side in (domains.internal, domains.external))
            patches = (int(count[inside].sum()), int(count[outside].sum()))
            if not any(patches):
                continue
            first, second = sides_of(scores, metric, domains, stratum.chosen, weight=options.weight)
            noun = "tumour patches" if metric is not FPR else "normal patches"
            made = compare_many(
                first,
                second,
                skewed=metric.skewed,
                alpha=options.alpha,
                resampling=resampling.named(f"{metric.name}/{stratum.column}/{stratum.value}"),
                what=noun,
            )
            declared = options.margins.get(metric.name)
            folds = by_fold(
                scores.fold_means(metric, inside),
                scores.fold_means(metric, outside),
                margin=declared,
                alpha=options.alpha,
            )
            yield Cell(
                stratum=stratum,
                metric=metric,
                differences=made,
                folds=folds,
                standardised=_standardised(scores, metric, domains, stratum, made, options),
                sd=(scores.patch_sd(metric, inside), scores.patch_sd(metric, outside)),
                patches=patches,
                margin=folds.margin if declared == STUDY else None if declared is None else float(declared),
            )


def _standardised(
    scores: PatchScores,
    metric: PatchMetric,
    domains: Domains,
    stratum: Stratum,
    made: ManyDifferences,
    options: GeneraliseOptions,
) -> Standardised | None:
    if not options.standardise or stratum.column:
        return None
    keys = scores.parts[list(options.standardise)].astype(str).agg(", ".join, axis=1)
    names = sorted(set(keys))
    pairs = [
        sides_of(scores, metric, domains, (keys == name).to_numpy(dtype=bool), weight=options.weight)
        for name in names
    ]
    return standardise_many(
        [a for a, _ in pairs], [b for _, b in pairs], names, crude=made.difference, alpha=options.alpha
    )


def rows_of(cell: Cell, variants: pd.DataFrame, *, ratio_margin: float) -> list[dict[str, Any]]:
    """Judge every model in one cell.

    Args:
        cell: The metric and stratum.
        variants: The models, with their thresholds where they have one.
        ratio_margin: The largest ratio of false-positive rates that would not matter.

    Returns:
        One row per model, as summary.json and the csv hold it.
    """
    return [_row(cell, i, dict(variants.iloc[i]), ratio_margin) for i in range(len(variants))]


def _row(cell: Cell, i: int, variant: Mapping[str, Any], ratio_margin: float) -> dict[str, Any]:
    made, metric = cell.differences, cell.metric
    up = metric.higher_is_better
    lo, hi = float(made.lo[i]), float(made.hi[i])
    reason = made.reason[i] or (
        None if cell.margin is not None else cell.folds.reason or "no margin was declared"
    )
    judged = judge(lo, hi, cell.margin or math.nan, higher_is_better=up, reason=reason)
    row: dict[str, Any] = {
        **{key: _plain(value) for key, value in variant.items()},
        "metric": metric.name,
        "stratum_of": cell.stratum.column,
        "stratum": cell.stratum.value,
        "internal": _plain(made.internal[i]),
        "external": _plain(made.external[i]),
        "internal_sd": _plain(cell.sd[0][i]),
        "external_sd": _plain(cell.sd[1][i]),
        "difference": _plain(made.difference[i]),
        "lo": _plain(lo),
        "hi": _plain(hi),
        "margin": cell.margin,
        "verdict": str(judged.word),
        "non_inferior": None if judged.word is Verdict.NOT_ASSESSED else judged.non_inferior,
        "non_inferior_all": _for_all(made, i, cell.margin, judged, up=up),
        "flips_at": _plain(judged.flips_at),
        "bootstrap_lo": _plain(made.bootstrap_lo[i]),
        "bootstrap_hi": _plain(made.bootstrap_hi[i]),
        **_power(made, i, cell.margin),
        "internal_patients": made.patients[0],
        "external_patients": made.patients[1],
        "internal_effective_patients": _plain(made.effective[0, i]),
        "external_effective_patients": _plain(made.effective[1, i]),
        "internal_patches": cell.patches[0],
        "external_patches": cell.patches[1],
        "method": made.method,
        "reason": judged.reason or "",
    }
    if metric is FPR:
        row |= _ratio(made, i, ratio_margin)
    row |= _fold_row(cell.folds, i, up=up)
    if cell.standardised is not None:
        row |= _standardised_row(cell.standardised, i)
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, np.floating | float):
        return None if not math.isfinite(value) else float(value)
    return value.item() if isinstance(value, np.generic) else value


def _for_all(
    made: ManyDifferences, i: int, margin: float | None, judged: Judgement, *, up: bool
) -> bool | None:
    """Whether the model is non-inferior with a limit that holds for all models at once."""
    if margin is None or judged.word is Verdict.NOT_ASSESSED:
        return None
    lo, hi = float(made.all_lo[i]), float(made.all_hi[i])
    if math.isnan(lo) or math.isnan(hi):
        return None
    return lo > -margin if up else hi < margin


def _power(made: ManyDifferences, i: int, margin: float | None) -> dict[str, Any]:
    from scipy import special

    se, lo, hi = float(made.se[i]), float(made.lo[i]), float(made.hi[i])
    if not se > 0:
        names = ("smallest_detectable_drop", "smallest_provable_margin", "power_at_margin")
        return dict.fromkeys(names)
    numbers = power_numbers(se, lo=lo, hi=hi, margin=margin, alpha=made.alpha)
    df = max(float(made.df[i]), 1.0)
    power = None
    if margin is not None:
        reach = margin / se - float(special.stdtrit(df, 1 - made.alpha))
        power = max(0.0, 2.0 * float(special.stdtr(df, reach)) - 1.0)
    return {
        "smallest_detectable_drop": numbers.smallest_detectable_drop,
        "smallest_provable_margin": numbers.smallest_provable_margin,
        "power_at_margin": power,
    }


def _ratio(made: ManyDifferences, i: int, ratio_margin: float) -> dict[str, Any]:
    """The ratio of false-positive rates is judged on its logarithm, in which 1.5 times and 1/1.5 are as far."""
    ratio, lo, hi = float(made.ratio[i]), float(made.ratio_lo[i]), float(made.ratio_hi[i])
    undefined = math.isnan(lo) or math.isnan(hi)
    reason = made.reason[i] or ("there is no interval" if undefined else None)
    judged = judge(
        math.nan if undefined else math.log(lo),
        math.nan if undefined else math.log(hi),
        math.log(ratio_margin),
        higher_is_better=False,
        reason=reason,
    )
    return {
        "ratio": _plain(ratio),
        "ratio_lo": _plain(lo),
        "ratio_hi": _plain(hi),
        "ratio_margin": ratio_margin,
        "ratio_verdict": str(judged.word),
        "ratio_non_inferior": None if judged.word is Verdict.NOT_ASSESSED else judged.non_inferior,
    }


def _fold_row(folds: ByFold, i: int, *, up: bool) -> dict[str, Any]:
    test = folds.tests[i]
    row = {
        "fold_margin": folds.margin,
        "fold_difference": None if test is None else test.difference,
        "fold_lo": None if test is None else test.lo,
        "fold_hi": None if test is None else test.hi,
        "fold_df": None if test is None else test.df,
        "fold_p": None if test is None else test.p,
        "fold_equivalent": None if test is None else test.equivalent,
        "fold_non_inferior": None,
    }
    if test is not None and test.lo is not None and test.hi is not None:
        # Internal - external: a loss is above 0 where higher is better, below 0 where lower is.
        row["fold_non_inferior"] = test.hi < test.high if up else test.lo > test.low
    return row


def _standardised_row(made: Standardised, i: int) -> dict[str, Any]:
    return {
        "standardised_internal": _plain(made.internal[i]),
        "standardised_external": _plain(made.external[i]),
        "standardised_difference": _plain(made.difference[i]),
        "standardised_lo": _plain(made.lo[i]),
        "standardised_hi": _plain(made.hi[i]),
        "from_case_mix": _plain(made.from_mix[i]),
        "standardised_share": made.share,
        "standardised_reason": made.reason,
    }


def model_verdicts(rows: Sequence[Mapping[str, Any]], models: Sequence[str]) -> list[dict[str, Any]]:
    """Combine the two metrics over all slides to one verdict per model, by the rules of several claims (ST-05).

    Args:
        rows: The rows of all cells.
        models: The models.

    Returns:
        One row per model: the verdict, whether it is non-inferior in both, and what passed by fold. A metric without
        any patch is not assessed.
    """
    out = []
    for model in models:
        mine = [
            row for row in rows if row["model"] == model and row["stratum"] == ALL and not row["stratum_of"]
        ]
        words = {row["metric"]: row["verdict"] for row in mine}
        fine = [row["non_inferior"] for row in mine]
        out.append(
            {
                "model": model,
                "verdict": _combined(
                    [words.get(metric.name, str(Verdict.NOT_ASSESSED)) for metric in PATCH_METRICS]
                ),
                "non_inferior": None if None in fine or len(fine) < len(PATCH_METRICS) else all(fine),
                **{f"{row['metric']}_verdict": row["verdict"] for row in mine},
                **{f"{row['metric']}_by_fold": row["fold_equivalent"] for row in mine},
            }
        )
    return out


def _combined(words: Sequence[str]) -> str:
    for word in (Verdict.BELOW, Verdict.NOT_ASSESSED, Verdict.INCONCLUSIVE):
        if str(word) in words:
            return str(word)
    return str(Verdict.ABOVE) if set(words) == {str(Verdict.ABOVE)} else str(Verdict.EQUIVALENT)
