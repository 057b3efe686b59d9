"""The scenario as the unit (US-19 to US-22, ST-10), and three separate kinds of uncertainty.

- over scenarios: the mean over transfers with a t interval, the study's own (US-19);
- over patients: of one scenario's seed average, the trained networks as they are (ST-01, ST-02);
- over seeds: how much training again, with another split and another start, would change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.study.design import PLAIN, Design
from elsewhere.analysis.study.probability_runs import ALL_METRICS, BOUNDED, Judged
from elsewhere.scoring.binary import BinaryEvaluator, ProbabilityRules
from elsewhere.statistics.auroc import AurocComponents, auroc_components, interval_from_components
from elsewhere.statistics.bootstrap import percentile_interval
from elsewhere.statistics.bootstrap_weights import WeightStream, draw
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.scenario import (
    average_over_seeds,
    leave_one_dataset_out,
    new_hospital,
    paired_scenarios,
    scenario_summary,
)

KEYS = ("kind", "scenario", "source", "target", "method", "model", "input")
RESAMPLED = ("balanced_accuracy", "sensitivity", "specificity")
FEW_PATIENTS = 20
PAIRED_METRICS = ("auroc", "balanced_accuracy")
_SEED = 42


def scenario_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Average runs over their seeds, with the spread over the seeds.

    The folds of one dataset are one observation: they share its patients.

    Args:
        runs: One row per judged run.

    Returns:
        One row per scenario and configuration; `_seed_sd` columns have the standard deviation over seeds.
    """
    held = runs.copy()
    folds = held["kind"] == "folds"
    if folds.any():
        held.loc[folds, "scenario"] = held.loc[folds, "target"] + " folds"
        held = held.groupby([*KEYS, "seed"], as_index=False)[list(ALL_METRICS) + _EXTRA].mean(
            numeric_only=True
        )
    out = average_over_seeds(held, [*ALL_METRICS, *_EXTRA], keys=KEYS)
    spread = held.groupby(list(KEYS))[["auroc", "balanced_accuracy"]].std(ddof=1).reset_index()
    spread = spread.rename(
        columns={"auroc": "auroc_seed_sd", "balanced_accuracy": "balanced_accuracy_seed_sd"}
    )
    return out.merge(spread, on=list(KEYS), how="left")


_EXTRA = ["normal_auroc", "normal_auprc", "temperature"]


def patient_intervals(
    judged: Mapping[str, Judged],
    runs: pd.DataFrame,
    *,
    key: str,
    resamples: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> pd.DataFrame:
    """Compute intervals of each scenario's seed average over patients: what if other patients had come to the
    target.

    AUROC: clustered DeLong of the mean, each patient's influence averaged over the seeds (the test patients
    of one seed may be another's training patients: a patient that is not tested by a seed has no influence
    there). The rest: patients resampled within class, all seeds and configurations of a scenario on the same
    resamples, percentiles of the seeds' mean.

    Args:
        judged: Every run with probabilities, by name.
        runs: One row per judged run.
        key: Hash of the cohort, which names the stream of random numbers.
        resamples: Number of resamples of patients; 0 leaves the resampled intervals out.
        progress: Called with what is done, how many scenarios are done, and how many there are; None for no
            report.

    Returns:
        One row per scenario and configuration with the ends of the intervals, the numbers of cases and
        patients, and a note where there are fewer than 20 patients.
    """
    rows = []
    groups = list(runs.groupby(["kind", "target", "scenario"], sort=False))
    for done, ((kind, _, scenario), part) in enumerate(groups):
        if progress:
            progress("patients", done, len(groups))
        held = [judged[run] for run in part["run"]]
        clusters = np.unique(np.concatenate([j.cluster for j in held]))
        positive = np.zeros(clusters.size, dtype=bool)
        for j in held:
            positive[np.searchsorted(clusters, j.cluster[j.test.label == 1])] = True
        evaluators = [_evaluator(j, clusters) for j in held]
        draws = None
        if resamples > 0 and clusters.size > 1:
            partition = Clusters(
                cluster_of_case=np.arange(clusters.size, dtype=np.int32),
                cluster_ids=tuple(map(str, clusters)),
                site_of_cluster=np.zeros(clusters.size, dtype=np.int32),
                site_names=("target",),
                positive_cluster=positive,
            )
            stream = WeightStream(
                partition, key=f"{key}|{scenario}", seed=_SEED, resamples=resamples, by_class=True
            )
            draws = draw(evaluators, stream)
        for (model, input_), chosen in part.reset_index(drop=True).groupby(["model", "input"], sort=False):
            places = chosen.index.to_numpy()
            row: dict[str, Any] = {
                "kind": kind, "scenario": scenario, "model": model, "input": input_,
                "cases": int(np.unique(np.concatenate([held[i].test.case for i in places])).size),
                "positives": int(
                    np.unique(np.concatenate([held[i].test.case[held[i].test.label == 1] for i in places])).size
                ),
                "patients": len({p for i in places for p in held[i].test.patient}),
            }  # fmt: skip
            row |= _auroc([held[i] for i in places], clusters)
            if draws is not None:
                row |= _percentiles([draws[i] for i in places], evaluators[0])
            few = row["patients"] < FEW_PATIENTS
            row["interval_note"] = f"{row['patients']} patients: too few to trust" if few else ""
            rows.append(row)
    return pd.DataFrame(rows)


def _evaluator(j: Judged, clusters: npt.NDArray[np.int32]) -> BinaryEvaluator:
    return BinaryEvaluator(
        label=j.test.label,
        probability=j.probability,
        cluster_of_case=np.searchsorted(clusters, j.cluster).astype(np.int32),
        n_clusters=int(clusters.size),
        metrics=RESAMPLED,
        rules=ProbabilityRules(threshold=j.threshold, inclusive=j.inclusive, primary="balanced_accuracy"),
    )


def mean_components(held: Sequence[Judged], clusters: npt.NDArray[np.int32]) -> AurocComponents | None:
    """Average the AUROC of several runs, and each patient's influence on it.

    Args:
        held: Runs of one scenario and configuration, one per seed.
        clusters: Sorted numbers of all clusters that some run tested.

    Returns:
        The components of the mean AUROC, for an interval; None where an answer is missing or a class is
        absent.
    """
    parts, seen = [], np.zeros((2, clusters.size), dtype=bool)
    for j in held:
        if not np.isfinite(j.probability).all():
            return None
        at = np.searchsorted(clusters, j.cluster).astype(np.int32)
        made = auroc_components(j.test.label, j.probability, at, n_clusters=int(clusters.size))
        if made is None:
            return None
        seen[0, at[j.test.label == 1]] = True
        seen[1, at[j.test.label == 0]] = True
        parts.append(made)
    if not parts:
        return None
    either = int((seen[0] | seen[1]).sum())
    positives, negatives = int(seen[0].sum()), int(seen[1].sum())
    return AurocComponents(
        value=float(np.mean([p.value for p in parts])),
        positive_part=np.mean([p.positive_part for p in parts], axis=0),
        negative_part=np.mean([p.negative_part for p in parts], axis=0),
        positive_patients=positives,
        negative_patients=negatives,
        patients=either,
        disjoint_pairs=min(positives, negatives, either // 2),
    )


def _auroc(held: Sequence[Judged], clusters: npt.NDArray[np.int32]) -> dict[str, Any]:
    parts = mean_components(held, clusters)
    if parts is None:
        return {"auroc_lo": math.nan, "auroc_hi": math.nan, "auroc_se": math.nan, "auroc_interval": "none"}
    made = interval_from_components(parts)
    return {
        "auroc_lo": made.lo,
        "auroc_hi": made.hi,
        "auroc_se": made.se if made.se is not None else math.nan,
        "auroc_interval": made.method,
    }


def _percentiles(draws: Sequence[npt.NDArray[np.float64]], evaluator: BinaryEvaluator) -> dict[str, float]:
    out = {}
    with np.errstate(invalid="ignore"):
        mean = np.mean(draws, axis=0)
    for metric in RESAMPLED:
        made = percentile_interval(mean[:, evaluator.index(metric)])
        out[f"{metric}_lo"] = made.lo if made else math.nan
        out[f"{metric}_hi"] = made.hi if made else math.nan
    return out


def summaries(scenarios: pd.DataFrame, design: Design) -> pd.DataFrame:
    """Average every metric over scenarios with its t interval (US-19).

    Args:
        scenarios: One row per scenario and configuration.
        design: Gives the order of the rows.

    Returns:
        One row per kind, configuration and metric.
    """
    rows = []
    for (kind, model, input_), part in scenarios.groupby(["kind", "model", "input"], sort=False):
        for metric in (*ALL_METRICS, "normal_auroc", "normal_auprc"):
            made = scenario_summary(part[metric], bounds=BOUNDED.get(metric, (0.0, 1.0)))
            rows.append(
                {
                    "kind": kind, "model": model, "input": input_, "metric": metric,
                    "value": made.value, "lo": _number(made.lo), "hi": _number(made.hi),
                    "sd_over_scenarios": _number(made.sd),
                    "sd_over_seeds": _pooled(part.get(f"{metric}_seed_sd")),
                    "scenarios": made.scenarios, "undefined": made.undefined, "method": made.method,
                }
            )  # fmt: skip
    return (
        design.order(pd.DataFrame(rows))
        if rows
        else pd.DataFrame(columns=["kind", "model", "input", "metric"])
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _pooled(sds: pd.Series | None) -> float:
    """Root of the mean variance: the seeds' spread within scenarios, pooled over them."""
    if sds is None or not sds.notna().any():
        return math.nan
    return float(np.sqrt(np.nanmean(sds.to_numpy(dtype=float) ** 2)))


def by_scenario(scenarios: pd.DataFrame, kind: str, metric: str, **only: str) -> pd.Series:
    """Select one metric of one configuration.

    Args:
        scenarios: One row per scenario and configuration.
        kind: Kind of the scenarios, such as `external`.
        metric: Column of the metric.
        **only: Values of further columns, such as `model` and `input`.

    Returns:
        One value per scenario, by its name.
    """
    rows = scenarios[scenarios["kind"] == kind]
    for column, value in only.items():
        rows = rows[rows[column] == value]
    return rows.set_index("scenario")[metric]


def comparisons(design: Design) -> list[dict[str, str]]:
    """List the configurations that are compared with each other.

    These are: crop with whole image, found with annotated boxes, one model with another, and a way to train
    with plain training.

    Args:
        design: What varies in the task.

    Returns:
        One entry per comparison: `what` is compared, and model and input of both sides (`a` minus `b`).
    """
    out = []
    crops = [i for i in design.inputs if i not in design.whole]
    reference = [i for i in crops if i not in design.found and _at_reference(design, i)]
    for model in design.models:
        for roi in reference:
            for whole in (i for i in design.inputs if i in design.whole):
                out.append(
                    {"what": "input", "a_model": model, "a_input": roi, "b_model": model, "b_input": whole}
                )
        for found in (i for i in crops if i in design.found):
            for roi in reference:
                out.append(
                    {"what": "boxes", "a_model": model, "a_input": found, "b_model": model, "b_input": roi}
                )
    plain = [m for m in design.models if design.method.get(m, PLAIN) == PLAIN]
    shown = [i for i in design.inputs if i in design.whole or i in reference]
    for at, first in enumerate(plain):
        for second in plain[at + 1 :]:
            out += [
                {"what": "model", "a_model": second, "a_input": i, "b_model": first, "b_input": i}
                for i in shown
            ]
    for model in design.models:
        if model in plain:
            continue
        for base in (m for m in plain if design.network.get(m) == design.network.get(model)):
            out += [
                {"what": "method", "a_model": model, "a_input": i, "b_model": base, "b_input": i}
                for i in shown
            ]
    return out


def _at_reference(design: Design, input_: str) -> bool:
    margin = design.margin.get(input_)
    return margin is None or design.margin_reference is None or abs(margin - design.margin_reference) < 1e-9


def paired_table(scenarios: pd.DataFrame, design: Design) -> pd.DataFrame:
    """Compare configurations on the scenarios that both have: Wilcoxon, mean difference, t interval (US-20).

    Args:
        scenarios: One row per scenario and configuration.
        design: Names the configurations to compare.

    Returns:
        One row per comparison, kind and metric.
    """
    rows = []
    for pair in comparisons(design):
        for kind in design.kinds:
            for metric in PAIRED_METRICS:
                a = by_scenario(scenarios, kind, metric, model=pair["a_model"], input=pair["a_input"])
                b = by_scenario(scenarios, kind, metric, model=pair["b_model"], input=pair["b_input"])
                if not len(a) or not len(b):
                    continue
                made = paired_scenarios(a, b, bounds=(-1.0, 1.0))
                if made.pairs:
                    rows.append(
                        {**pair, "kind": kind, "metric": metric, **made.to_dict(), "note": made.note or ""}
                    )
    return pd.DataFrame(rows)


def without_table(scenarios: pd.DataFrame, design: Design) -> pd.DataFrame:
    """Average again without the scenarios that touch one dataset, for each dataset in turn (US-21).

    Args:
        scenarios: One row per scenario and configuration.
        design: Its main configurations are averaged.

    Returns:
        One row per dataset left out, kind, configuration and metric, and one for the mean over
        configurations.
    """
    rows = []
    for kind in design.kinds:
        for metric in ALL_METRICS:
            parts = {}
            for model, input_ in design.main:
                part = scenarios[
                    (scenarios["kind"] == kind)
                    & (scenarios["model"] == model)
                    & (scenarios["input"] == input_)
                ]
                if len(part):
                    parts[model, input_] = leave_one_dataset_out(part, metric, bounds=BOUNDED[metric])
            for (model, input_), made in parts.items():
                for dataset, summary in made.without.items():
                    rows.append(
                        {
                            "without": dataset, "kind": kind, "model": model, "input": input_, "metric": metric,
                            "all": made.all.value, "value": summary.value, "lo": _number(summary.lo),
                            "hi": _number(summary.hi), "scenarios": summary.scenarios,
                        }
                    )  # fmt: skip
            datasets = sorted({d for made in parts.values() for d in made.without})
            for dataset in datasets:
                held = [made for made in parts.values() if dataset in made.without]
                rows.append(
                    {
                        "without": dataset, "kind": kind, "model": "overall", "input": "", "metric": metric,
                        "all": float(np.mean([made.all.value for made in held])),
                        "value": float(np.mean([made.without[dataset].value for made in held])),
                        "lo": math.nan, "hi": math.nan, "scenarios": held[0].without[dataset].scenarios,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def margin_table(runs: pd.DataFrame, design: Design) -> pd.DataFrame:
    """Compare each margin of the crop with the reference, on the scenarios and seeds that all have (US-22).

    Args:
        runs: One row per judged run.
        design: Names the margin of each input and the reference.

    Returns:
        One row per model and margin; empty where the study has no reference or only one margin.
    """
    reference = design.margin_reference
    held = {i: m for i, m in design.margin.items() if i not in design.found}
    if reference is None or len(set(held.values())) < 2:
        return pd.DataFrame()
    rows = []
    for model in design.models:
        part = runs[(runs["model"] == model) & runs["input"].isin(held)]
        part = part.assign(crop_margin=part["input"].map(held))
        margins = sorted(part["crop_margin"].unique())
        if len(margins) < 2:
            continue
        wide = part.pivot_table(
            index=["scenario", "seed"], columns="crop_margin", values=list(PAIRED_METRICS), aggfunc="mean"
        ).dropna()
        if wide.empty:
            continue
        means = wide.groupby(level="scenario").mean()
        seeds = int(wide.reset_index()["seed"].nunique())
        for margin in margins:
            row: dict[str, Any] = {"model": model, "margin": margin, "scenarios": len(means), "seeds": seeds}
            for metric in PAIRED_METRICS:
                made = scenario_summary(means[metric][margin])
                row |= {
                    metric: made.value,
                    f"{metric}_lo": _number(made.lo),
                    f"{metric}_hi": _number(made.hi),
                }
                if margin != reference and reference in margins:
                    against = paired_scenarios(means[metric][margin], means[metric][reference])
                    row |= {
                        f"{metric}_difference": against.difference,
                        f"{metric}_p": _number(against.p),
                        f"{metric}_smallest_p": _number(against.smallest_p),
                    }
            rows.append(row)
    return pd.DataFrame(rows)


def new_hospital_table(judged: Mapping[str, Judged], runs: pd.DataFrame, design: Design) -> pd.DataFrame:
    """Predict the AUROC that one more hospital may see, from the mean over sources at each target (ST-10).

    Args:
        judged: Every run with probabilities, by name.
        runs: One row per judged run.
        design: Gives the order of the rows.

    Returns:
        One row per kind and configuration, with the reason where too few targets make it not estimable.
    """
    rows = []
    external = runs[runs["kind"].isin(["external", "leave-one-dataset-out"])]
    for (kind, model, input_), part in external.groupby(["kind", "model", "input"], sort=False):
        values, errors = [], []
        for _, at_target in part.groupby("target"):
            held = [judged[run] for run in at_target["run"]]
            parts = mean_components(held, np.unique(np.concatenate([j.cluster for j in held])))
            if parts is not None:
                values.append(parts.value)
                errors.append(math.sqrt(parts.variance()[0]))
        made = new_hospital(values, errors, scale="logit")
        rows.append(
            {
                "kind": kind, "model": model, "input": input_, "targets": len(values),
                "value": _number(made.value), "lo": _number(made.lo), "hi": _number(made.hi),
                "prediction_lo": _number(made.prediction_lo), "prediction_hi": _number(made.prediction_hi),
                "method": made.method, "reason": made.undefined_reason or "",
            }
        )  # fmt: skip
    return design.order(pd.DataFrame(rows)) if rows else pd.DataFrame()
