"""Parts of a summary in addition to the metrics; each is a registered function of the same context.

Another package adds one by the entry point `elsewhere.analyses`, or with `@analyses.register(name)`: it
takes an `AnalysisContext` and returns the parts of the summary that it fills.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.result.thresholds import MOST_RESAMPLES, operating_thresholds
from elsewhere.privacy import hash_ids, new_salt
from elsewhere.registry import Registry
from elsewhere.scoring.groups import GroupCodes, group_codes
from elsewhere.scoring.prepared import answered_cases, binary_part, fairness_disparity, truth_of
from elsewhere.scoring.task import ScoreOptions, Scores, Task
from elsewhere.statistics.bootstrap_weights import WeightStream
from elsewhere.statistics.clusters import UNKNOWN_SITE, Clusters
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.fairness import fairness_report, group_table
from elsewhere.statistics.fairness.subgroups import CaseFacts
from elsewhere.statistics.resampling import Resampling

_WORST_CASES = 20
_BIG = 100_000


@dataclass(frozen=True, kw_only=True)
class AnalysisContext:
    """Everything an analysis may read: the scores and what was computed from them, never an image.

    Args:
        task: The task that made the scores.
        scores: The scores of one model: the table of cases, the protocol and the counts.
        partition: Maps the cases to patients and sites.
        evaluator: The metrics of these cases as a function of patient weights.
        options: What was set when the predictions were scored.
        key: Hash of the cohort, which names the stream of random numbers.
        seed: Seed of every draw.
        resamples: Number of resamples; 0 for none.
        headline: Name of the primary metric.
        id_grades: Grade of the patient ids of each dataset, with its reason: `{dataset: {"grade", "why"}}`.
    """

    task: Task
    scores: Scores
    partition: Clusters
    evaluator: Evaluator
    options: ScoreOptions
    key: str
    seed: int
    resamples: int
    headline: str
    id_grades: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def cases(self) -> pd.DataFrame:
        """The case table."""
        return self.scores.cases

    def stream(self, resamples: int | None = None) -> WeightStream | None:
        """Make the resamples of an analysis.

        Args:
            resamples: The most to draw; None for the number of the context.

        Returns:
            The stream of patient weights, drawn within sites where the protocol asks for it; None for 0
            resamples.
        """
        count = self.resamples if resamples is None else min(resamples, self.resamples)
        if count == 0:
            return None
        rules = self.scores.protocol.interval
        return WeightStream(
            self.partition, key=self.key, seed=self.seed, resamples=count, by_site=rules.by_site
        )

    @property
    def resampling(self) -> Resampling:
        """The resamples that every analysis of this result shares."""
        return Resampling(
            key=self.key, seed=self.seed, resamples=self.resamples, threads=self.options.threads
        )

    def truth(self) -> npt.NDArray[np.float64] | None:
        """Return the outcome of each case, where the task has two classes.

        Returns:
            One number per case, above 0 for a positive one; None for a task without classes.
        """
        return truth_of(self.scores)


Analysis = Callable[[AnalysisContext], dict[str, Any]]
analyses: Registry[Analysis] = Registry(
    "analysis", group="elsewhere.analyses", list_command="elsewhere metrics"
)


def group_variables(context: AnalysisContext) -> tuple[str, ...]:
    """List the variables whose groups are shown.

    Args:
        context: The scores and what was made of them.

    Returns:
        --group-by, and the protocol's fairness variables where the task scores them.
    """
    wanted = list(context.options.group_by)
    if context.task.compares_groups:
        wanted += [v for v in context.scores.protocol.fairness.variables if v in context.cases.columns]
    return tuple(dict.fromkeys(wanted))


def _codes(context: AnalysisContext) -> list[GroupCodes]:
    rules = context.scores.protocol.fairness
    return [group_codes(context.cases, variable, rules) for variable in group_variables(context)]


@analyses.register("groups")
def groups(context: AnalysisContext) -> dict[str, Any]:
    """Estimate every metric within groups, and what a gap between groups is worth (ST-08).

    Args:
        context: The scores and what was made of them.

    Returns:
        `groups` and `fairness` of the summary.
    """
    codes = _codes(context)
    if not codes:
        return {}
    rules = context.scores.protocol.interval
    many = len(context.cases) > _BIG
    table = group_table(
        context.evaluator,
        context.partition,
        codes,
        rules=rules,
        resampling=Resampling(
            key=context.key,
            seed=context.seed,
            resamples=0 if many else context.resamples,
            threads=context.options.threads,
        ),
        facts=CaseFacts(truth=context.truth(), answered=answered_cases(context.scores)),
        headline=context.headline,
    )
    report = fairness_report(
        fairness_disparity(context.scores, context.evaluator, headline=context.headline),
        context.partition,
        codes,
        key=context.key,
        seed=context.seed,
        resamples=min(context.resamples, 1000),
        by_site=rules.by_site,
    )
    found: dict[str, Any] = {"groups": table, "fairness": report}
    if many:
        found["warnings"] = [f"Groups of {len(context.cases):,} cases are given without resampled intervals."]
    return found


@analyses.register("sites")
def sites(context: AnalysisContext) -> dict[str, Any]:
    """Estimate each site by itself, and, from five sites on, what to expect of a new one (ST-10).

    Args:
        context: The scores and what was made of them.

    Returns:
        `sites` and `new_hospital` of the summary.
    """
    names = context.partition.site_names
    if len(names) < 2:
        return {}
    of_case = context.partition.site_of_case.astype(np.int16)
    coded = GroupCodes(variable="site", names=names, codes=of_case, missing=0, note="")
    rules = context.scores.protocol.interval
    table = group_table(
        context.evaluator,
        context.partition,
        [coded],
        rules=rules,
        resampling=Resampling(
            key=context.key,
            seed=context.seed,
            resamples=0 if len(context.cases) > _BIG else context.resamples,
            threads=context.options.threads,
        ),
        facts=CaseFacts(truth=context.truth(), answered=answered_cases(context.scores)),
        headline=context.headline,
    )["site"]
    from elsewhere.statistics.scenario import new_hospital

    rows = [row["metrics"].get(context.headline, {}) for name, row in table.items() if name != UNKNOWN_SITE]
    values, errors = (
        [math.nan if row.get(name) is None else float(row[name]) for row in rows] for name in ("value", "se")
    )
    if not np.isfinite(values).any():
        return {"sites": table, "new_hospital": None}
    spec = context.evaluator.spec(context.headline)
    bounds = (spec.lower_bound, spec.upper_bound)
    made = new_hospital(values, errors, scale="logit" if bounds == (0.0, 1.0) else "identity", bounds=bounds)
    return {"sites": table, "new_hospital": {"metric": context.headline, **made.to_dict()}}


@analyses.register("calibration")
def calibration(context: AnalysisContext) -> dict[str, Any]:
    """Fit slope, intercept and calibration in the large of the answered cases, before and after scaling.

    Args:
        context: The scores and what was computed from them.

    Returns:
        `calibration` of the summary.
    """
    from elsewhere.statistics.calibration import recalibration

    truth = context.truth()
    if truth is None or "probability" not in context.cases.columns:
        return {}
    answered = (context.cases["status"] == "scored").to_numpy(dtype=bool)
    ordinal = context.evaluator.undefined_reasons().get("brier")
    if ordinal:
        return {"calibration": {"undefined_reason": ordinal}}
    part: dict[str, Any] = {}
    for name, column in (("before", "probability"), ("after", "probability_calibrated")):
        if column not in context.cases.columns:
            continue
        values = context.cases[column].to_numpy(dtype=float)
        usable = answered & np.isfinite(values)
        fit = recalibration(
            truth[usable], values[usable], context.partition.cluster_of_case[usable]
        ).to_dict()
        part[name] = fit
    part["temperature"] = context.scores.extras.get("temperature")
    return {"calibration": part}


@analyses.register("operating_point")
def operating_point(context: AnalysisContext) -> dict[str, Any]:
    """Compute sensitivity and specificity at the threshold that came with the model, and count its calls.

    Args:
        context: The scores and what was computed from them.

    Returns:
        `operating_point` of the summary.
    """
    from elsewhere.statistics.operating_point import rates_at

    truth = context.truth()
    binary = binary_part(context.evaluator)
    threshold = getattr(binary, "threshold", None)
    score = worst_scores(context)
    if truth is None or threshold is None or score is None or not getattr(binary, "inclusive", True):
        return {}
    sensitivity, specificity = rates_at(truth, score, context.partition, threshold)
    called, positive = score >= threshold, truth > 0
    return {
        "operating_point": {
            "threshold": threshold,
            "threshold_source": "given"
            if context.options.threshold is not None
            else f"protocol {context.scores.protocol.name}",
            "here": {"sensitivity": sensitivity.to_dict(), "specificity": specificity.to_dict()},
            "confusion": {
                "tp": int((called & positive).sum()),
                "fp": int((called & ~positive).sum()),
                "fn": int((~called & positive).sum()),
                "tn": int((~called & ~positive).sum()),
            },
        }
    }


def worst_scores(context: AnalysisContext) -> npt.NDArray[np.float64] | None:
    """Put the worst value in place of a missing probability (ST-14).

    Args:
        context: The scores and what was made of them.

    Returns:
        One probability per case; None where the task has none.
    """
    truth = context.truth()
    if truth is None or "probability" not in context.cases.columns:
        return None
    score = context.cases["probability"].to_numpy(dtype=float)
    return np.where(np.isnan(score), np.where(truth > 0, 0.0, 1.0), score)


@analyses.register("task_details")
def task_details(context: AnalysisContext) -> dict[str, Any]:
    """Collect what the task itself adds: confusion matrices, lesion tables, lesion against normal.

    Args:
        context: The scores and what was made of them.

    Returns:
        `details` of the summary.
    """
    found = context.task.details(context.scores, context.partition, context.options)
    return {"details": found} if found else {}


@analyses.register("thresholds")
def thresholds(context: AnalysisContext) -> dict[str, Any]:
    """Find the score threshold of each operating point of a detection, and what it finds at three levels.

    Args:
        context: The scores and what was made of them.

    Returns:
        `thresholds` of the summary; empty for a task without boxes.
    """
    if context.task.answer_kind != "boxes":
        return {}
    found = operating_thresholds(context.scores, context.partition, context.stream(MOST_RESAMPLES))
    return {"thresholds": found} if found else {}


@analyses.register("size_strata")
def tumour_size(context: AnalysisContext) -> dict[str, Any]:
    """Estimate small, moderate and large tumours, by the 20th and 80th percentile of volume (MRI-11).

    Args:
        context: The scores and what was made of them.

    Returns:
        `size_strata` of the summary.
    """
    if "volume_truth_ml" not in context.cases.columns:
        return {}
    from elsewhere.statistics.strata import size_strata, strata_table

    volume = context.cases["volume_truth_ml"].to_numpy(dtype=float)
    if (np.isfinite(volume) & (volume > 0)).sum() < 5:
        return {}
    return {
        "size_strata": strata_table(
            context.evaluator,
            context.partition,
            size_strata(volume),
            rules=context.scores.protocol.interval,
            resampling=Resampling(key=context.key, seed=context.seed, resamples=context.resamples),
            answered=answered_cases(context.scores),
            headline=context.headline,
        )
    }


@analyses.register("case_mix")
def case_mix(context: AnalysisContext) -> dict[str, Any]:
    """Compare the first site's cases with the others': the shift that a drop may come from.

    Args:
        context: The scores and what was made of them.

    Returns:
        `case_mix` of the summary.
    """
    names = context.partition.site_names
    if len(names) < 2:
        return {}
    reference = context.partition.site_of_case == 0
    wanted = dict.fromkeys(
        [
            *context.options.group_by,
            *context.scores.protocol.fairness.variables,
            context.task.truth_column or "",
        ]
    )
    parts: dict[str, Any] = {}
    for variable in wanted:
        if variable not in context.cases.columns or variable == "site":
            continue
        values = context.cases[variable]
        numbers = pd.to_numeric(values, errors="coerce").to_numpy(dtype=float)
        if np.isfinite(numbers).mean() > 0.5 and len(np.unique(numbers[np.isfinite(numbers)])) > 6:
            parts[variable] = _numeric_shift(numbers, reference)
        else:
            parts[variable] = _level_shift(values, reference)
    return {"case_mix": parts, "case_mix_reference": names[0]} if parts else {}


def _numeric_shift(values: npt.NDArray[np.float64], reference: npt.NDArray[np.bool_]) -> dict[str, Any]:
    sides = {
        "reference": values[reference & np.isfinite(values)],
        "here": values[~reference & np.isfinite(values)],
    }
    entry: dict[str, Any] = {
        name: {
            "n": int(v.size),
            "mean": float(v.mean()) if v.size else None,
            "sd": float(v.std(ddof=1)) if v.size > 1 else None,
        }
        for name, v in sides.items()
    }
    a, b = sides["reference"], sides["here"]
    if a.size > 1 and b.size > 1:
        pooled = float(np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2))
        entry["smd"] = float((b.mean() - a.mean()) / pooled) if pooled > 0 else None
    return entry


def _level_shift(values: pd.Series, reference: npt.NDArray[np.bool_]) -> dict[str, Any]:
    text = values.astype("string").fillna("missing")
    levels = sorted(text.unique())[:30]
    counts = {
        level: {
            "reference": int(((text == level) & reference).sum()),
            "here": int(((text == level) & ~reference).sum()),
        }
        for level in levels
    }
    return {"levels": counts}


@analyses.register("worst_cases")
def worst_cases(context: AnalysisContext) -> dict[str, Any]:
    """List the answered cases that the model did worst on, by salted hash.

    A case without a usable score is not one that the model read badly: such cases are counted, and not
    listed.

    Args:
        context: The scores and what was computed from them.

    Returns:
        `worst_cases` of the summary, and the key that resolves the hashes.
    """
    cases = context.cases
    cost = context.task.case_cost(context.scores)
    if cost is None:
        return {}
    cost = np.where(answered_cases(context.scores), cost, np.nan)
    all_ids = cases["case_id"].astype(str).to_numpy()
    order = np.lexsort((all_ids, -np.nan_to_num(cost, nan=-np.inf)))[:_WORST_CASES]
    order = order[np.isfinite(cost[order])]
    ids = all_ids[order].tolist()
    salt = new_salt()
    hashed = hash_ids(ids, salt)
    shown = [c for c in ("site", "status", *context.task.case_columns) if c in cases.columns]
    rows = []
    for hash_, i in zip(hashed, order, strict=True):
        row = {name: _plain(cases[name].iloc[i]) for name in shown}
        rows.append({"case": hash_, **row})
    key = pd.DataFrame({"case": hashed, "case_id": ids})
    return {"worst_cases": rows, "_case_key": key}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return (
        None if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)) else value
    )
