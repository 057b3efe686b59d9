"""Detection: score thresholds at given rates of false positives, and one carried over to another hospital.

A threshold is set by counting: the lowest score at which the boxes of the chosen volumes have at most the given
number of false positives per volume. Every interval is a percentile interval over resamples of patients in which
the threshold is set anew, so that it holds the uncertainty of the threshold too (DBT-20, DBT-21).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, unknown_name
from elsewhere.scoring.detection.thresholds import (
    LEVELS,
    RatePoint,
    Rates,
    ThresholdEvaluator,
    joins_views,
    level_counts,
)
from elsewhere.scoring.task import Scores, tasks
from elsewhere.statistics.bootstrap_weights import WeightStream
from elsewhere.statistics.clusters import Clusters, pool_small_strata
from elsewhere.statistics.domain import DOMAIN
from elsewhere.statistics.resampling import Resampling

FloatArray = npt.NDArray[np.float64]
METHOD = "percentile"
MOST_RESAMPLES = 1000
MOST_PARTS = 50
HERE, HOME = "this result", "the reference result"
_LABELS = {
    "threshold": "Threshold (score)",
    "false_positives": "False positives per volume",
    "lesion": "Sensitivity, lesions in volumes",
    "breast": "Sensitivity, breasts (CC or MLO)",
    "patient": "Sensitivity, patients",
    "false_positives_difference": "False positives per volume: difference",
    "false_positives_ratio": "False positives per volume: ratio",
    "lesion_difference": "Sensitivity, lesions: difference",
}


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """Rates at full weights, and under the resamples."""

    point: Rates
    draws: Rates | None

    def threshold(self, level: float) -> dict[str, Any]:
        draws = None if self.draws is None else self.draws.threshold
        made = _estimate("threshold", float(self.point.threshold[0]), draws, level)
        value = float(self.point.threshold[0])
        if value == -math.inf:
            made["undefined_reason"] = "all boxes together have fewer false positives: every box counts"
        elif value == math.inf:
            made["undefined_reason"] = "the highest box is already beyond this rate: no box counts"
        return made

    def rate(self, part: int, level: float) -> dict[str, Any]:
        draws = None if self.draws is None else self.draws.false_positives[:, part]
        return _estimate("false_positives", float(self.point.false_positives[0, part]), draws, level)

    def sensitivity(self, name: str, part: int, level: float, *, patients: int) -> dict[str, Any]:
        draws = None if self.draws is None else self.draws.found[name][:, part]
        made = _estimate(name, float(self.point.found[name][0, part]), draws, level)
        if made["value"] is None:
            made["undefined_reason"] = "no lesion among these volumes"
        elif draws is not None and made["method"] == "none":
            made |= _bound(made["value"], patients, level)
        return made


def _bound(value: float, patients: int, level: float) -> dict[str, Any]:
    """A sample that is found whole, or not at all, gets a bound in place of an interval without width (ST-02a)."""
    if value not in (0.0, 1.0) or patients < 1:
        return {"lo": None, "hi": None, "method": "none"}
    share = 1.0 - (1.0 - level) ** (1.0 / patients)
    ends = (1.0 - share, 1.0) if value == 1.0 else (0.0, share)
    return {"lo": ends[0], "hi": ends[1], "method": "one-sided-bound"}


def _estimate(name: str, value: float, draws: FloatArray | None, level: float) -> dict[str, Any]:
    made: dict[str, Any] = {
        "value": value if math.isfinite(value) else None,
        "lo": None,
        "hi": None,
        "method": "none",
        "label": _LABELS[name],
        "higher_is_better": not name.startswith("false_positives"),
    }
    if draws is None or not math.isfinite(value):
        return made
    defined = draws[~np.isnan(draws)]
    if defined.size < max(2, draws.size // 2):
        return made
    # by order statistics: a resample in which every box counts has the threshold -inf
    tails = [0.5 - level / 2.0, 0.5 + level / 2.0]
    ends = np.quantile(defined, tails, method="inverted_cdf").tolist()
    if ends[0] == ends[1]:  # resamples without spread promise more than is known (ST-02a)
        return made
    lo, hi = (end if math.isfinite(end) else None for end in ends)
    return made | {"lo": lo, "hi": hi, "method": METHOD}


def _draw(evaluator: ThresholdEvaluator, point: RatePoint, stream: WeightStream | None) -> _Drawn:
    ones = np.ones((1, evaluator.n_clusters), dtype=np.uint16)
    full = evaluator.rates(ones, point)
    if stream is None:
        return _Drawn(point=full, draws=None)
    made = [evaluator.rates(weights, point) for _, weights in stream]
    return _Drawn(
        point=full,
        draws=Rates(
            threshold=np.concatenate([one.threshold for one in made]),
            false_positives=np.concatenate([one.false_positives for one in made]),
            found={name: np.concatenate([one.found[name] for one in made]) for name in full.found},
        ),
    )


def operating_thresholds(
    scores: Scores, partition: Clusters, stream: WeightStream | None
) -> dict[str, Any] | None:
    """Find the score threshold of each operating point of a detection, and what it finds at three levels.

    Args:
        scores: The scores of a detection, with their events.
        partition: Maps the volumes to patients.
        stream: The weights of the resamples; None for no intervals.

    Returns:
        `thresholds` of the summary; None without boxes or without a lesion.
    """
    if scores.events is None or scores.events.empty:
        return None
    positive = scores.cases["n_lesions"].to_numpy(dtype=float) > 0
    if not positive.any():
        return None
    evaluator = ThresholdEvaluator(
        scores,
        partition.cluster_of_case,
        n_clusters=partition.n_clusters,
        part_of_case=np.zeros(len(scores.cases), dtype=np.int64),
        n_parts=1,
    )
    patients = _patients_with_lesions(partition, positive)
    everywhere = np.ones(positive.size, dtype=bool)
    level, rules = scores.protocol.interval.level, scores.protocol.detection
    points = [
        *((rate, "positive volumes", positive) for rate in rules.positive_operating_points),
        *(
            (rate, "all volumes", everywhere)
            for rate in sorted({*rules.positive_operating_points, rules.all_operating_point})
        ),
    ]
    rows = []
    for rate, name, volumes in points:
        drawn = _draw(evaluator, RatePoint(rate=rate, volumes=volumes), stream)
        metrics = {"threshold": drawn.threshold(level)}
        for unit in LEVELS:
            metrics[unit] = drawn.sensitivity(unit, 0, level, patients=patients)
        rows.append({"volumes": name, "rate": float(rate), "metrics": metrics})
    return {
        "points": rows,
        "units": dict(level_counts(evaluator)),
        "note": "A box counts where its score is at or above the threshold; the rate is the most false positives per volume "
        "that it allows. "
        "Counted, not interpolated, so a sensitivity can differ a little from the curve's. "
        + joins_views(scores),
        "warnings": _few(patients, ""),
    }


def _patients_with_lesions(partition: Clusters, volumes: npt.NDArray[np.bool_]) -> int:
    return int(np.unique(partition.cluster_of_case[volumes]).size)


def _few(patients: int, where: str) -> list[str]:
    least = DOMAIN["froc"].positive_patients
    if patients >= least:
        return []
    return [
        f"Outside the domain of promised coverage{where}: {patients} patient{'' if patients == 1 else 's'} with a lesion, the promise for intervals "
        f"of sensitivities begins at {least}."
    ]


@dataclass(frozen=True, kw_only=True)
class CarriedThreshold:
    """A threshold that one part of the volumes sets, applied to the others.

    Attributes:
        column: The column that divides the volumes.
        reference: Its value whose volumes set the threshold.
        rate: The false positives per volume that it was set for.
        threshold: The threshold as an estimate.
        rows: For each part its `cases`, `patients`, `positives`, `metrics` and `words`; the reference first.
        resamples: How many resamples.
        note: How it was made.
        warnings: Full sentences about the numbers.
    """

    column: str
    reference: str
    rate: float
    threshold: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Any]]
    resamples: int
    note: str
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return `carried_threshold` of the summary.

        Returns:
            Plain values by name.
        """
        return {
            "column": self.column,
            "reference": self.reference,
            "rate": self.rate,
            "threshold": dict(self.threshold),
            "rows": {name: dict(row) for name, row in self.rows.items()},
            "resamples": self.resamples,
            "note": self.note,
            "warnings": list(self.warnings),
        }


def carried_threshold(
    scores: Scores, column: str, reference: str, *, rate: float = 1.0, resampling: Resampling
) -> CarriedThreshold:
    """Set a threshold at one hospital and apply it to the others (DBT-21).

    Args:
        scores: The scores of a detection, with their events.
        column: The column of the cases that divides them: site, vendor or another.
        reference: Its value whose volumes set the threshold.
        rate: The false positives per volume, over all volumes of the reference, that the threshold is for.
        resampling: The resamples of patients, drawn within the parts.

    Returns:
        The threshold, and what it gives in each part.

    Raises:
        UserError: The task has no boxes, the rate is not above 0, or the column or its value is not there.
    """
    if tasks.get(scores.task).answer_kind != "boxes" or scores.events is None:
        raise UserError(
            f"a threshold is carried over for boxes, and this result is of {scores.task}",
            fix="Give a result of the task detection. For probabilities: `elsewhere accept` and its operating point.",
        )
    if not (math.isfinite(rate) and rate > 0):
        raise UserError(
            f"a rate of {rate:g} false positives per volume",
            where="--rate",
            fix="A number above 0, such as 1.",
        )
    names, part, outside = _parts(scores.cases, column, reference)
    partition = tasks.get(scores.task).partition(scores)
    evaluator = ThresholdEvaluator(
        scores,
        partition.cluster_of_case,
        n_clusters=partition.n_clusters,
        part_of_case=part,
        n_parts=len(names),
    )
    stream = None
    if resampling.resamples > 0:
        stream = WeightStream(
            partition, key=resampling.key, seed=resampling.seed, resamples=resampling.resamples,
            strata=_strata(partition, part),
        )  # fmt: skip
    drawn = _draw(evaluator, RatePoint(rate=rate, volumes=part == 0), stream)
    level = scores.protocol.interval.level
    positive = scores.cases["n_lesions"].to_numpy(dtype=float) > 0
    rows: dict[str, dict[str, Any]] = {}
    warnings: list[str] = []
    for at, name in enumerate(names):
        inside = part == at
        patients = _patients_with_lesions(partition, inside & positive)
        metrics = {
            "false_positives": drawn.rate(at, level) if at else _by_construction(drawn),
            **{unit: drawn.sensitivity(unit, at, level, patients=patients) for unit in LEVELS},
        }
        if at:
            metrics |= _changes(drawn, at, level)
        rows[name] = {
            "cases": int(inside.sum()),
            "patients": int(np.unique(partition.cluster_of_case[inside]).size),
            "positives": int((inside & positive).sum()),
            "units": dict(level_counts(evaluator, at)),
            "metrics": metrics,
        }
        warnings += _few(patients, f" at {name}")
    threshold = drawn.threshold(level)
    for name in names[1:]:
        rows[name]["words"] = _words(names[0], name, rate, threshold, rows)
    if outside:
        warnings.append(f"{outside} volumes without a value of {column} take no part.")
    shared = _shared(partition, part)
    if shared:
        warnings.append(
            f"{shared} patients have volumes on both sides; a resample gives each one weight on all of them."
        )
    extra = int(scores.counts.get("extra", 0))
    if extra:
        warnings.append(f"{extra} boxes in volumes that the cohort does not list take no part.")
    return CarriedThreshold(
        column=column,
        reference=names[0],
        rate=float(rate),
        threshold=threshold,
        rows=rows,
        resamples=resampling.resamples,
        note=f"The threshold is the lowest score at which the volumes of {names[0]} have at most {_count_of(rate)} each on "
        "average; the intervals are over resamples of patients in which it is set anew. "
        + joins_views(scores),
        warnings=tuple(warnings),
    )


def carried_between_sites(scores: Scores, reference: str | None, resampling: Resampling) -> dict[str, Any]:
    """Carry the threshold at one false positive per volume over from the reference site, for a detection.

    Args:
        scores: The scores of a model.
        reference: The site where the model was developed; None where there is none.
        resampling: The resamples.

    Returns:
        `carried_threshold` of the summary; empty without a reference, and for tasks without boxes.
    """
    if reference is None or tasks.get(scores.task).answer_kind != "boxes" or scores.events is None:
        return {}
    few = replace(resampling, resamples=min(resampling.resamples, MOST_RESAMPLES))
    return {"carried_threshold": carried_threshold(scores, "site", reference, resampling=few).to_dict()}


def _strata(partition: Clusters, part: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Patients by the first of their parts; small strata are pooled (ST-01a)."""
    first = np.full(partition.n_clusters, int(part.max(initial=0)) + 1, dtype=np.int64)
    np.minimum.at(first, partition.cluster_of_case, np.where(part >= 0, part, first[0]))
    return pool_small_strata(first)


def _shared(partition: Clusters, part: npt.NDArray[np.int64]) -> int:
    inside = part >= 0
    pairs = np.unique(np.stack([partition.cluster_of_case[inside], part[inside]]), axis=1)
    return int((np.bincount(pairs[0]) > 1).sum()) if pairs.size else 0


def _parts(cases: pd.DataFrame, column: str, reference: str) -> tuple[list[str], npt.NDArray[np.int64], int]:
    """The names of the parts, the reference first; the part of each volume; and how many have no value."""
    if column not in cases.columns:
        hint = "" if column in ("site", "dataset") else " Score again with `--group-by` to keep a column."
        found = unknown_name("column of the cases", column, [str(name) for name in cases.columns])
        raise UserError(found.what, where="--split-by", fix=f"{found.fix}{hint}")
    values = cases[column].astype("string")
    levels = sorted(values.dropna().unique().tolist())
    if len(levels) > MOST_PARTS:
        raise UserError(
            f"{column} has {len(levels)} values",
            fix=f"Name a column with at most {MOST_PARTS} values, such as site or vendor.",
        )
    if reference not in levels:
        raise unknown_name(f"value of {column}", reference, levels)
    if len(levels) < 2:
        raise UserError(
            f"every volume has {column} = {reference}: the threshold is applied nowhere else",
            fix="Name a column that divides the volumes.",
        )
    names = [reference, *(name for name in levels if name != reference)]
    number = {name: i for i, name in enumerate(names)}
    part = values.map(number).fillna(-1).to_numpy(dtype=np.int64)
    return names, part, int((part < 0).sum())


def _by_construction(drawn: _Drawn) -> dict[str, Any]:
    """The rate where the threshold was set: it has no error, since the threshold follows the volumes."""
    return _estimate("false_positives", float(drawn.point.false_positives[0, 0]), None, 0.95)


def _changes(drawn: _Drawn, part: int, level: float) -> dict[str, dict[str, Any]]:
    """What differs from the reference, on the same resamples."""

    def both(of: FloatArray) -> tuple[FloatArray, FloatArray]:
        return of[:, part], of[:, 0]

    def ratio(a: FloatArray, b: FloatArray) -> FloatArray:
        out = np.full(a.shape, np.nan)
        np.divide(a, b, out=out, where=b > 0)
        return out

    def made(name: str, values: FloatArray, draws: FloatArray | None) -> dict[str, Any]:
        return _estimate(name, float(values[0]), draws, level)

    point, draws = drawn.point, drawn.draws
    here, home = both(point.false_positives)
    found, found_home = both(point.found["lesion"])
    under = None if draws is None else both(draws.false_positives)
    found_under = None if draws is None else both(draws.found["lesion"])
    out = {
        "false_positives_difference": made(
            "false_positives_difference", here - home, None if under is None else under[0] - under[1]
        ),
        "false_positives_ratio": made(
            "false_positives_ratio", ratio(here, home), None if under is None else ratio(*under)
        ),
        "lesion_difference": made(
            "lesion_difference",
            found - found_home,
            None if found_under is None else found_under[0] - found_under[1],
        ),
    }
    if out["false_positives_ratio"]["value"] is None:
        out["false_positives_ratio"]["undefined_reason"] = "no false positive at the reference"
    if out["lesion_difference"]["value"] is None:
        out["lesion_difference"]["undefined_reason"] = "no lesion on one side"
    return out


def _count_of(rate: float) -> str:
    return f"{rate:g} false positive{'' if rate == 1 else 's'}"


def _side(entry: Mapping[str, Any], more: str, fewer: str) -> str:
    lo, hi = entry["lo"], entry["hi"]
    if lo is None or hi is None:
        return "not assessed"
    return more if lo > 0 else fewer if hi < 0 else "no difference shown"


def _span(entry: Mapping[str, Any], digits: int = 2, *, sign: bool = False) -> str:
    if entry["value"] is None:
        return "undefined"
    form = f"{'+' if sign else ''}.{digits}f"
    text = format(entry["value"], form)
    if entry["lo"] is None and entry["hi"] is None:
        return text
    ends = (
        "no lower limit" if entry["lo"] is None else format(entry["lo"], form),
        "no upper limit" if entry["hi"] is None else format(entry["hi"], form),
    )
    return f"{text} ({ends[0]} to {ends[1]})"


def _words(
    home: str, name: str, rate: float, threshold: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """What happened to false positives and sensitivity, each in a word, and both in sentences."""
    here, there = rows[name]["metrics"], rows[home]["metrics"]
    false = _side(here["false_positives_difference"], "more", "fewer")
    found = _side(here["lesion_difference"], "higher", "lower")
    value = threshold["value"]
    set_at = f"The threshold {value:.4g}" if value is not None else "The rule that every box counts"
    if threshold.get("undefined_reason", "").startswith("the highest"):
        set_at = "The rule that no box counts"
    text = f"{set_at}, set at {home} for {_count_of(rate)} per volume, gives {_span(here['false_positives'])} per volume at {name}"
    ratio = here["false_positives_ratio"]
    if ratio["value"] is not None:
        text += f", {_span(ratio)} times those at {home}"
    text += "."
    if here["lesion"]["value"] is not None and there["lesion"]["value"] is not None:
        text += (
            f" It finds {_span(here['lesion'])} of the lesions there and {there['lesion']['value']:.2f} at {home}; the difference is "
            f"{_span(here['lesion_difference'], sign=True)}."
        )
    return {"false_positives": false, "sensitivity": found, "sentence": text}


def joined_scores(here: Scores, home: Scores) -> Scores:
    """Put two results of one task and protocol together, as two parts of one.

    The column `result` says which is which. A patient with the same data set and id in both is one patient.

    Args:
        here: The result that the threshold is applied to.
        home: The result that sets it.

    Returns:
        The scores of both.

    Raises:
        UserError: The results are of two tasks or protocols, or have no boxes.
    """
    if here.task != home.task:
        raise UserError(
            f"the results are of two tasks, {here.task} and {home.task}", fix="Give two results of one task."
        )
    if here.protocol.digest() != home.protocol.digest():
        raise UserError(
            f"the results were scored by different protocols, {here.protocol.name} and {home.protocol.name}",
            fix="Score both by one protocol: `elsewhere score ... --protocol NAME`.",
        )
    if here.events is None or home.events is None:
        raise UserError("a result without its events has no boxes", fix="Score again.")

    def marked(table: pd.DataFrame, name: str) -> pd.DataFrame:
        return table.assign(case_id=f"{name}: " + table["case_id"].astype("string"))

    return replace(
        here,
        cases=pd.concat(
            [marked(here.cases, HERE).assign(result=HERE), marked(home.cases, HOME).assign(result=HOME)],
            ignore_index=True,
        ),
        events=pd.concat([marked(here.events, HERE), marked(home.events, HOME)], ignore_index=True),
        counts={"extra": sum(int(one.counts.get("extra", 0)) for one in (here, home))},
    )
