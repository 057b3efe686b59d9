"""A method chosen on the sources alone, then tested once on the hospital that was left out (US-31, ST-12).

For a target, every 'nested' scenario that does not touch it leaves out one of its sources. The configuration
(or a committee of configurations) with the best mean AUROC there is chosen, and its leave-one-dataset-out
result on the target is the honest one. The results of all others on the target are listed too, but must not
be claimed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.registry import Tables, analysis
from elsewhere.statistics.auroc import auroc, auroc_interval
from elsewhere.statistics.scenario import scenario_summary
from elsewhere.study.results import Results

Config = tuple[str, str]
LARGEST_COMMITTEE = 5
SMALLEST_GAIN = 0.001
"""A member joins a committee only where it lifts the nested AUROC by more than this."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The configuration that was chosen for each target on its sources alone, and all that could have been.

    `seeds` and `nested_seeds` are the fewest of any part: a mean over fewer seeds is a weaker ensemble.

    Args:
        attempts: One row per target and configuration, chosen or not; `left_out` says why one was not a
            candidate.
        chosen: One row per target, and their mean.
    """

    attempts: pd.DataFrame
    chosen: pd.DataFrame

    def __bool__(self) -> bool:
        return len(self.chosen) > 0


@dataclass(frozen=True, kw_only=True)
class _Tested:
    """One scenario's test part: the truth, and each configuration's mean probability over its seeds."""

    label: npt.NDArray[np.int8]
    cluster: npt.NDArray[np.int32]
    probability: dict[Config, npt.NDArray[np.float64]]
    by_seed: dict[Config, tuple[float, ...]]

    def auroc_of(self, members: Sequence[Config]) -> float:
        return auroc(self.label, np.mean([self.probability[m] for m in members], axis=0))


def choose_on_sources(
    results: Results, task: str, *, committee: bool = True, without_inputs: Collection[str] = ()
) -> Selection:
    """Choose a configuration for every target on its sources alone.

    Args:
        results: Results of the study.
        task: Task whose runs are compared.
        committee: Whether several configurations may answer together.
        without_inputs: Inputs that are not candidates, such as the annotated outline, whose shape may give
            the label away without the picture.

    Returns:
        The selection; empty where the study has no leave-one-dataset-out or no nested runs.
    """
    done = results.done()
    done = done[(done["task"] == task) & ~done["input"].isin(list(without_inputs))]
    outer = done[done["kind"] == "leave-one-dataset-out"]
    inner = done[done["kind"] == "nested"]
    if outer.empty or inner.empty:
        return Selection(attempts=pd.DataFrame(), chosen=pd.DataFrame())

    @cache
    def tested(scenario: str) -> _Tested:
        return _tested(results, done[done["scenario"] == scenario])

    attempts: list[dict[str, Any]] = []
    chosen: list[dict[str, Any]] = []
    for target in dict.fromkeys(outer["target"]):
        names = _nested_without(inner, target)
        if not names:
            continue
        parts = [tested(name) for name in names]
        configs = [c for c in _configs(inner) if all(c in part.probability for part in parts)]
        nested = {c: _mean([part.auroc_of([c]) for part in parts]) for c in configs}
        order = sorted(configs, key=lambda c: (-nested[c], c))
        final = tested(str(outer[outer["target"] == target]["scenario"].iloc[0]))
        lacking = [_lacking(target, c, parts, final) for c in _configs(done) if c not in configs]
        if not order:
            attempts += lacking
            continue
        members = _committee(order, parts, nested) if committee else order[:1]
        for rank, config in enumerate(order, start=1):
            attempts.append(
                {
                    "target": target,
                    "model": config[0],
                    "input": config[1],
                    "nested_auroc": nested[config],
                    "nested_scenarios": len(parts),
                    "nested_seeds": _fewest(parts, [config]),
                    "rank": rank,
                    "chosen": config in members,
                    **_external(final, [config]),
                    "left_out": "",
                }
            )
        attempts += lacking
        if all(member in final.probability for member in members):
            chosen.append(
                {
                    "target": target,
                    "members": " + ".join(f"{m} {i}" for m, i in members),
                    "nested_auroc": _mean([part.auroc_of(members) for part in parts]),
                    "nested_seeds": _fewest(parts, members),
                    **_external(final, members),
                }
            )
    return Selection(attempts=pd.DataFrame(attempts), chosen=_with_mean(chosen))


def _lacking(target: str, config: Config, parts: Sequence[_Tested], final: _Tested) -> dict[str, Any]:
    """An attempt that could not be compared with the others; it is still listed as one (ST-12)."""
    held = [part for part in parts if config in part.probability]
    return {
        "target": target,
        "model": config[0],
        "input": config[1],
        "nested_auroc": math.nan,
        "nested_scenarios": len(held),
        "nested_seeds": _fewest(held, [config]),
        "rank": math.nan,
        "chosen": False,
        **_external(final, [config]),
        "left_out": f"{len(held)} of {len(parts)} choices done",
    }


def _fewest(parts: Sequence[_Tested], members: Sequence[Config]) -> int:
    return min((len(part.by_seed[m]) for part in parts for m in members if m in part.by_seed), default=0)


def _tested(results: Results, runs: pd.DataFrame) -> _Tested:
    held: dict[Config, list[npt.NDArray[np.float64]]] = {}
    first: pd.DataFrame | None = None
    for row in runs.to_dict(orient="records"):
        frame = results.answers(str(row["run"]))["test"]
        first = frame if first is None else first
        if not frame["case"].equals(first["case"]):
            raise ValueError(f"the runs of {row['scenario']} were tested on other cases")
        configuration = str(row["model"]), str(row["input"])
        held.setdefault(configuration, []).append(frame["probability"].to_numpy(float))
    if first is None:
        raise ValueError("a scenario without runs")
    label = first["label"].to_numpy(np.int8)
    return _Tested(
        label=label,
        cluster=pd.factorize(first["cluster"])[0].astype(np.int32),
        probability={config: np.mean(values, axis=0) for config, values in held.items()},
        by_seed={config: tuple(auroc(label, v) for v in values) for config, values in held.items()},
    )


def _nested_without(inner: pd.DataFrame, target: str) -> list[str]:
    """Nested scenarios that neither train on the target nor test on it."""
    touches = inner["target"].eq(target) | inner["source"].str.split("+").map(lambda parts: target in parts)
    return list(dict.fromkeys(inner.loc[~touches, "scenario"]))


def _configs(runs: pd.DataFrame) -> list[Config]:
    return list(dict.fromkeys(zip(runs["model"].astype(str), runs["input"].astype(str), strict=True)))


def _committee(
    order: Sequence[Config], parts: Sequence[_Tested], nested: Mapping[Config, float]
) -> list[Config]:
    """The best, then whoever lifts the nested AUROC of the mean probability most, while someone does."""
    members = [order[0]]
    best = nested[order[0]]
    while len(members) < LARGEST_COMMITTEE:
        rest = [c for c in order if c not in members]
        if not rest:
            break
        tried = {c: _mean([part.auroc_of([*members, c]) for part in parts]) for c in rest}
        winner = max(rest, key=lambda c: (tried[c], nested[c]))
        if not tried[winner] > best + SMALLEST_GAIN:
            break
        members.append(winner)
        best = tried[winner]
    return members


def _external(final: _Tested, members: Sequence[Config]) -> dict[str, Any]:
    if any(member not in final.probability for member in members):
        return {"auroc": math.nan, "ensemble_auroc": math.nan, "lo": math.nan, "hi": math.nan, "seeds": 0}
    score = np.mean([final.probability[member] for member in members], axis=0)
    interval = auroc_interval(final.label, score, final.cluster)
    seeds = [value for member in members for value in final.by_seed[member]]
    return {
        "auroc": _mean(seeds),
        "ensemble_auroc": interval.value if interval else math.nan,
        "lo": interval.lo if interval else math.nan,
        "hi": interval.hi if interval else math.nan,
        "seeds": _fewest([final], members),
    }


def _with_mean(chosen: list[dict[str, Any]]) -> pd.DataFrame:
    """The targets, and their mean with the t interval over targets (US-19)."""
    if not chosen:
        return pd.DataFrame()
    table = pd.DataFrame(chosen)
    over = scenario_summary(table["ensemble_auroc"])
    mean = {
        "target": "mean over targets",
        "members": "",
        "nested_auroc": _mean(list(table["nested_auroc"])),
        "nested_seeds": int(table["nested_seeds"].min()),
        "auroc": _mean(list(table["auroc"])),
        "ensemble_auroc": over.value,
        "lo": math.nan if over.lo is None else over.lo,
        "hi": math.nan if over.hi is None else over.hi,
        "seeds": int(table["seeds"].min()),
    }
    return pd.concat([table, pd.DataFrame([mean])], ignore_index=True)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


@analysis("selection on the sources", kinds=("leave-one-dataset-out",), probabilities=True)
def selection(context: Context) -> Tables:
    """Choose a configuration on the sources alone, and give its result on the hospital left out.

    Args:
        context: The task, its runs and what analyses share.

    Returns:
        The tables `selection` and `selection_attempts`, and `selection_without_outline` where the study has
        inputs that show the annotated outline.
    """
    found = choose_on_sources(context.results, context.task)
    tables = {"selection": found.chosen, "selection_attempts": found.attempts}
    drawn = [name for name, section in context.results.study.inputs.items() if section.outline]
    if drawn:
        plain = choose_on_sources(context.results, context.task, without_inputs=drawn)
        tables["selection_without_outline"] = plain.chosen
    return tables
