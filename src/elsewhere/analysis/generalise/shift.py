"""Why a model is worse at another laboratory: the drop divided over stain, sharpness, compression and scale (LN-22).

The same patches are scored in every version. What they give back by an intervention, in the mean over all orders, is its
part; what no intervention gives back is left over: tissue, case mix, annotation, and what cannot be rendered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere._version import __version__
from elsewhere.errors import UserError, unknown_name
from elsewhere.inputs.rendering.interventions import EXTERNAL, INTERNAL, SIDES
from elsewhere.predictions.rendered_patches import PredictedVersions, RenderedFolder, Version
from elsewhere.privacy import Redactor
from elsewhere.statistics.evaluator import FloatArray
from elsewhere.statistics.many_models import SideSums, standardise_many
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.shift import ALL, ALONE, DROP, LEFT, PART, Sides, decompose
from elsewhere.tables.identifiers import read_folders

QUESTION = "Why is the model worse at the other laboratory?"
CAUTION = (
    "The parts describe what rendering the same patches otherwise gives back. With real slides they are no proof of a cause: a "
    "rendering is an approximation, and laboratories differ in more than it knows."
)
KINDS = (DROP, PART, ALONE, ALL, LEFT)
"""The quantities of a table, in its order."""
_BLOCK = 64
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class ShiftMetric:
    """A mean over patches that a drop is made of.

    Attributes:
        name: Its name.
        label: What a table calls it.
        higher_is_better: Whether a higher value is better.
        of: The patches: "tumour", "normal" or "all".
    """

    name: str
    label: str
    higher_is_better: bool
    of: str


DICE = ShiftMetric(name="dice", label="Dice, tumour patches", higher_is_better=True, of="tumour")
SENSITIVITY = ShiftMetric(
    name="sensitivity", label="Sensitivity, tumour patches", higher_is_better=True, of="tumour"
)
FPR = ShiftMetric(
    name="fpr", label="False-positive rate, normal patches", higher_is_better=False, of="normal"
)
BRIER = ShiftMetric(name="brier", label="Brier score, all patches", higher_is_better=False, of="all")


@dataclass(frozen=True, kw_only=True)
class ShiftOptions:
    """How a drop is divided.

    Attributes:
        thresholds: What is called tumour: above this probability. Of several, the one that is best on internal patches.
        standardise: Columns of patches whose mix is made equal, to compare with what is left over.
        alpha: The level of each one-sided limit; intervals are 1 - 2 alpha.
        resamples: Resamples of patients; 0 for none.
        seed: The seed of every draw.
    """

    thresholds: tuple[float, ...] = (0.5,)
    standardise: tuple[str, ...] = ()
    alpha: float = 0.05
    resamples: int = 1000
    seed: int = 42

    def __post_init__(self) -> None:
        if not self.thresholds or not all(0 <= value < 1 for value in self.thresholds):
            raise UserError(
                f"the thresholds are {', '.join(map(str, self.thresholds)) or 'none'}",
                where="--thresholds",
                fix="Give probabilities from 0 up to below 1, such as 0.5 or 0.3,0.5,0.7.",
            )


@dataclass(frozen=True, kw_only=True)
class ShiftScores:
    """Every patch scored in every version.

    Attributes:
        models: The models.
        metrics: The metrics.
        values: By metric and version: (models, thresholds, patches), the mean over folds; NaN where a patch does not count.
        thresholds: The thresholds.
        tumour: By side, whether each patch holds tumour.
        folds: How many folds the models have, at most.
    """

    models: tuple[str, ...]
    metrics: tuple[ShiftMetric, ...]
    values: Mapping[tuple[str, str], FloatArray]
    thresholds: tuple[float, ...]
    tumour: Mapping[str, BoolArray]
    folds: int


def score_versions(
    folder: RenderedFolder,
    predictions: Sequence[PredictedVersions],
    options: ShiftOptions,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> ShiftScores:
    """Score every patch in every version.

    Args:
        folder: The rendered patches.
        predictions: What the models predict.
        options: The thresholds.
        progress: Called with a step, how many arrays are scored, and how many there are.

    Returns:
        The scores.

    Raises:
        UserError: A prediction is no probability, or a side has no tumour patch and no normal one.
    """
    models = tuple(dict.fromkeys(one.model for one in predictions))
    scalar, masks = predictions[0].scalar, any(one.values == "mask" for one in predictions)
    metrics = (SENSITIVITY if scalar else DICE, FPR, *(() if masks else (BRIER,)))
    tumour = {side: _tumour(folder, side) for side in SIDES}
    folds = {name: sum(one.model == name for one in predictions) for name in models}
    shape = (len(models), len(options.thresholds))
    values = {
        (metric.name, version.name): np.zeros((*shape, len(folder.rows[version.side])))
        for metric in metrics
        for version in folder.versions
    }
    total, done = len(predictions) * len(folder.versions), 0
    for version in folder.versions:
        count = len(folder.rows[version.side])
        for begin in range(0, count, _BLOCK):
            rows = slice(begin, min(begin + _BLOCK, count))
            window = folder.field(version).window
            truth = folder.truth(version, rows)[(slice(None), *window)]
            sick = tumour[version.side][rows]
            for one in predictions:
                made = one.probabilities(version, rows)
                made = made if scalar else made[(slice(None), *window)]
                found = _scalar(made, sick, options) if scalar else _pixels(made, truth, sick, options)
                for metric in metrics:
                    part = values[metric.name, version.name]
                    part[models.index(one.model), :, rows] += found[metric.name] / folds[one.model]
        done += len(predictions)
        if progress is not None:
            progress("scoring versions", done, total)
    for metric in metrics:
        for version in folder.versions:
            if metric.of != "all":
                outside = tumour[version.side] != (metric.of == "tumour")
                values[metric.name, version.name][:, :, outside] = np.nan
    return ShiftScores(
        models=models, metrics=metrics, values=values, thresholds=options.thresholds, tumour=tumour,
        folds=max(folds.values()),
    )  # fmt: skip


def _tumour(folder: RenderedFolder, side: str) -> BoolArray:
    """Whether each patch holds tumour in the field that is scored."""
    version = Version(side=side)
    window = folder.field(version).window
    count = len(folder.rows[side])
    parts = [
        folder.truth(version, slice(begin, begin + _BLOCK))[(slice(None), *window)].any(axis=(1, 2))
        for begin in range(0, count, _BLOCK)
    ]
    return np.concatenate(parts)


def _scalar(made: npt.NDArray[np.float32], sick: BoolArray, options: ShiftOptions) -> dict[str, FloatArray]:
    called = np.array([made > threshold for threshold in options.thresholds], dtype=float)
    brier = (made.astype(np.float64) - sick) ** 2
    return {"sensitivity": called, "fpr": called, "brier": np.tile(brier, (len(options.thresholds), 1))}


def _pixels(
    made: npt.NDArray[np.float32], truth: BoolArray, sick: BoolArray, options: ShiftOptions
) -> dict[str, FloatArray]:
    count = len(made)
    flat, true = made.reshape(count, -1), truth.reshape(count, -1)
    brier = ((flat - true) ** 2).mean(axis=1, dtype=np.float64)
    size, has = flat.shape[1], true.sum(axis=1)
    dice, fpr = [], []
    for threshold in options.thresholds:
        called = flat > threshold
        hit, of_all = (called & true).sum(axis=1), called.sum(axis=1)
        # a tumour patch whose few pixels are lost by resampling is right where nothing is called
        dice.append(np.where(has + of_all > 0, 2 * hit / np.maximum(has + of_all, 1), 1.0))
        fpr.append((of_all - hit) / np.maximum(size - has, 1))
    return {"dice": np.array(dice), "fpr": np.array(fpr), "brier": np.tile(brier, (len(dice), 1))}


@dataclass(frozen=True, kw_only=True)
class DividedDrop:
    """A drop that was divided.

    Attributes:
        summary: The content of summary.json; it names no slide and no patient.
        tables: The tables, by the name of their csv file.
        redactor: The redactor that took the ids out of the summary.
    """

    summary: dict[str, Any]
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    redactor: Redactor


def divide_drop(folder: RenderedFolder, scores: ShiftScores, options: ShiftOptions) -> DividedDrop:
    """Divide the drop of every model and metric over the interventions.

    Args:
        folder: The rendered patches.
        scores: Every patch scored in every version.
        options: Levels, resamples, and the columns whose mix is made equal.

    Returns:
        The summary and the tables.

    Raises:
        UserError: A column is not there, or one patient is on both sides.
    """
    shared = set(folder.rows[INTERNAL]["patient_id"]) & set(folder.rows[EXTERNAL]["patient_id"])
    if shared:
        raise UserError(
            f"{len(shared)} patients have internal and external patches",
            where=str(folder.path),
            fix="Both laboratories are compared as independent patients: render the patches of other patients, or give "
            "patients of two hospitals names of their own.",
        )
    for column in options.standardise:
        for side in SIDES:
            if column not in folder.rows[side].columns:
                raise unknown_name(
                    "column of patches", column, [str(name) for name in folder.rows[side].columns]
                )
    chosen = _operating_points(scores)
    resampling = Resampling(key=folder.key, seed=options.seed, resamples=options.resamples)
    rows, means, standardised, warnings = [], [], [], []
    for metric in scores.metrics:
        sums = {version: _sums(folder, scores, metric, version, chosen) for version in folder.versions}
        empty = [side for side in SIDES if not sums[Version(side=side)].n_patients]
        if empty:
            warnings.append(f"{metric.label}: not assessed, there is no such patch on the {empty[0]} side.")
            continue
        few = [side for side in SIDES if sums[Version(side=side)].n_patients < 2]
        if few:
            warnings.append(
                f"{metric.label}: one {few[0]} patient has such patches; an interval needs at least two."
            )
        rows += _rows(folder, scores, metric, sums, options, resampling)
        means += _means(scores, metric, sums)
        if options.standardise:
            standardised += _standardised(folder, scores, metric, chosen, options, warnings)
    part: dict[str, Any] = {
        "interventions": [
            {name: value for name, value in one.to_dict().items() if name in ("name", "direction", "what")}
            for one in folder.rendering.interventions
        ],
        "rows": rows,
        "versions": means,
        "metrics": [
            {"name": one.name, "label": one.label, "higher_is_better": one.higher_is_better}
            for one in scores.metrics
        ],
        "operating_points": [
            {"model": name, "threshold": scores.thresholds[at], "of": len(scores.thresholds)}
            for name, at in zip(scores.models, chosen, strict=True)
        ],
        "standardised_by": list(options.standardise),
        "standardised": standardised,
        "scored_share": {side: folder.rendering.field_share(side) for side in SIDES},
        "alpha": options.alpha,
        "folds": scores.folds,
        "note": CAUTION,
    }
    warnings += _warnings(folder, rows)
    summary: dict[str, Any] = {
        "elsewhere": __version__,
        "task": "a drop at another laboratory",
        "question": QUESTION,
        "provenance": {
            "command": "slides shift",
            "code_version": __version__,
            "patches_key": folder.key,
            "settings": {
                "thresholds": list(options.thresholds),
                "standardise": list(options.standardise),
                "alpha": options.alpha,
                "resamples": options.resamples,
                "seed": options.seed,
            },
        },
        "counts": _counts(folder, scores),
        "metrics": {},
        "shift": part,
        "methods": _methods(folder, options),
        "warnings": list(dict.fromkeys(warnings)),
    }
    ids = [
        name
        for side in SIDES
        for column in ("case_id", "patient_id")
        for name in folder.rows[side][column].astype(str)
    ]
    redactor = Redactor(dict.fromkeys(ids), folders=read_folders())
    summary = redactor.summary(summary)
    made = summary["shift"]
    tables = {"parts": made["rows"], "versions": made["versions"], "standardised": made["standardised"]}
    return DividedDrop(
        summary=summary,
        tables={f"{name}.csv": pd.DataFrame(content) for name, content in tables.items() if content},
        redactor=redactor,
    )


def _operating_points(scores: ShiftScores) -> list[int]:
    """The threshold of each model that is best on internal patches: highest Dice (or sensitivity) - false-positive rate (LN-25)."""
    plain = Version(side=INTERNAL).name
    first = scores.values[scores.metrics[0].name, plain]
    second = scores.values[FPR.name, plain]
    with np.errstate(invalid="ignore"):
        gain = _mean(first) - _mean(second)
    return [int(np.argmax(row)) for row in np.nan_to_num(gain, nan=-2.0)]


def _mean(values: FloatArray) -> FloatArray:
    counted = np.isfinite(values)
    n = counted.sum(axis=-1)
    return np.asarray(np.where(n > 0, np.nansum(values, axis=-1) / np.maximum(n, 1), 0.0))


def _sums(
    folder: RenderedFolder,
    scores: ShiftScores,
    metric: ShiftMetric,
    version: Version,
    chosen: Sequence[int],
    cell: BoolArray | None = None,
) -> SideSums:
    patients, number = np.unique(
        folder.rows[version.side]["patient_id"].astype(str).to_numpy(), return_inverse=True
    )
    held = scores.values[metric.name, version.name]
    values = held[np.arange(len(scores.models)), list(chosen)]
    counted = np.isfinite(values[0])
    return SideSums.of_parts(
        tuple(map(str, patients)),
        number.astype(np.int64),
        total=np.nan_to_num(values),
        count=counted.astype(float),
        chosen=counted if cell is None else counted & cell,
    )


def _rows(
    folder: RenderedFolder,
    scores: ShiftScores,
    metric: ShiftMetric,
    sums: Mapping[Version, SideSums],
    options: ShiftOptions,
    resampling: Resampling,
) -> list[dict[str, Any]]:
    sides = {
        side: {frozenset(version.applied): sums[version] for version in sums if version.side == side}
        for side in SIDES
    }
    found = decompose(
        Sides(
            internal=sides[INTERNAL],
            external=sides[EXTERNAL],
            sides={one.name: one.side for one in folder.rendering.interventions if one.side},
        ),
        higher_is_better=metric.higher_is_better,
        alpha=options.alpha,
        resampling=resampling.named(metric.name),
    )
    direction = {one.name: one.direction for one in folder.rendering.interventions}
    skipped = [one.name for one in folder.rendering.interventions if not one.side]
    rows = []
    for i, model in enumerate(scores.models):
        for one in found:
            rows.append(
                {
                    "model": model,
                    "metric": metric.name,
                    "quantity": one.kind,
                    "intervention": one.intervention,
                    "direction": direction.get(one.intervention, ""),
                    **{
                        name: _plain(getattr(one, name)[i])
                        for name in (
                            "value", "lo", "hi", "bootstrap_lo", "bootstrap_hi", "share", "share_lo", "share_hi",
                        )
                    },
                }
            )  # fmt: skip
        rows += [
            {
                "model": model,
                "metric": metric.name,
                "quantity": PART,
                "intervention": name,
                "direction": direction[name],
                **dict.fromkeys(("value", "lo", "hi", "bootstrap_lo", "bootstrap_hi"), 0.0),
                **dict.fromkeys(("share", "share_lo", "share_hi")),
            }
            for name in skipped
        ]
    return sorted(rows, key=lambda row: (scores.models.index(row["model"]), KINDS.index(row["quantity"])))


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _means(
    scores: ShiftScores, metric: ShiftMetric, sums: Mapping[Version, SideSums]
) -> list[dict[str, Any]]:
    return [
        {
            "model": model,
            "metric": metric.name,
            "side": version.side,
            "applied": ", ".join(version.applied),
            "value": _plain(side.value[i]),
            "patients": side.n_patients,
            "patches": int(side.count.sum()),
        }
        for i, model in enumerate(scores.models)
        for version, side in sums.items()
    ]


def _standardised(
    folder: RenderedFolder,
    scores: ShiftScores,
    metric: ShiftMetric,
    chosen: Sequence[int],
    options: ShiftOptions,
    warnings: list[str],
) -> list[dict[str, Any]]:
    """The drop and what is left over, each at the internal mix of cases (LN-21)."""
    keys = {
        side: folder.rows[side][list(options.standardise)].astype(str).agg(", ".join, axis=1).to_numpy()
        for side in SIDES
    }
    names = sorted({*keys[INTERNAL], *keys[EXTERNAL]})
    sign = -1.0 if metric.higher_is_better else 1.0
    rows = []
    for quantity, rendered in ((DROP, False), (LEFT, True)):
        version = {
            side: Version(side=side, applied=folder.rendering.on_side(side) if rendered else ())
            for side in SIDES
        }
        pairs = {
            side: [
                _sums(folder, scores, metric, version[side], chosen, np.asarray(keys[side] == name))
                for name in names
            ]
            for side in SIDES
        }
        inside, outside = (_sums(folder, scores, metric, version[side], chosen) for side in SIDES)
        made = standardise_many(
            pairs[INTERNAL], pairs[EXTERNAL], names, crude=outside.value - inside.value, alpha=options.alpha
        )
        if made.reason:
            warnings.append(f"{metric.label}: not standardised, {made.reason}.")
        for i, model in enumerate(scores.models):
            ends = sorted((sign * float(made.lo[i]), sign * float(made.hi[i])))
            rows.append(
                {
                    "model": model,
                    "metric": metric.name,
                    "quantity": quantity,
                    "crude": _plain(sign * made.crude[i]),
                    "standardised": _plain(sign * made.difference[i]),
                    "lo": _plain(ends[0]),
                    "hi": _plain(ends[1]),
                    "from_case_mix": _plain(sign * made.from_mix[i]),
                }
            )
    return rows


def _counts(folder: RenderedFolder, scores: ShiftScores) -> dict[str, int]:
    counts = {"models": len(scores.models), "folds": scores.folds, "versions": len(folder.versions)}
    for side in SIDES:
        rows = folder.rows[side]
        counts |= {
            f"{side}_patches": len(rows),
            f"{side}_tumour_patches": int(scores.tumour[side].sum()),
            f"{side}_slides": int(rows["case_id"].nunique()),
            f"{side}_patients": int(rows["patient_id"].nunique()),
        }
    return counts


def _warnings(folder: RenderedFolder, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    made = []
    labels = {one.name: one.label for one in (DICE, SENSITIVITY, FPR, BRIER)}
    for metric in dict.fromkeys(str(row["metric"]) for row in rows):
        drops = [row for row in rows if row["metric"] == metric and row["quantity"] == DROP]
        none = [str(row["model"]) for row in drops if row["lo"] is None or row["lo"] <= 0]
        if none:
            listed = ", ".join(none[:5]) + (f" and {len(none) - 5} more" if len(none) > 5 else "")
            made.append(
                f"{labels[metric]}: the drop itself is not reliably above 0, so that its parts have no shares: {listed}."
            )
    share = min(folder.rendering.field_share(side) for side in SIDES)
    if share < 1:
        made.append(
            f"The microns per pixel differ: of the finer tissue all is scored, of the other side the middle {100 * share:.0f} % of a "
            "patch's width, so that both show as many microns."
        )
    return made


def _methods(folder: RenderedFolder, options: ShiftOptions) -> str:
    return " ".join(
        (
            "The same patches were rendered with every set of interventions and predicted again.",
            *(f"{one.name.capitalize()}: {one.what}." for one in folder.rendering.interventions),
            "An intervention's part is its Shapley value: what it gives back, in the mean over all orders; parts and what is left "
            "over add up to the drop.",
            f"Intervals are {100 * (1 - 2 * options.alpha):g} %: a t interval that leaves out one patient at a time, with degrees of "
            "freedom from Kish's effective number of patients.",
            f"A percentile bootstrap of {options.resamples:,} resamples of patients stands next to them."
            if options.resamples
            else "",
            CAUTION,
            f"Analysis: Elsewhere {__version__}.",
        )
    )
