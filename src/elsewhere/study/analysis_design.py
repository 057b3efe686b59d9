"""What a study compares, read from its settings and its runs: which configurations make up its averages.

A configuration is a model with an input. The study's averages are over the plain ones: annotated boxes, the
reference margin, plain training. Whatever else was run (other margins, found boxes, other ways to train) is
compared with them, and stays out of the averages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from elsewhere.errors import UserError

PLAIN = "plain"
STUDY_MARGIN = 0.12
RUN_COLUMNS = ("run", "scenario", "kind", "source", "target", "model", "input", "seed", "status")
_WORDS = {"cnn": "CNN", "vit": "ViT", "roi": "ROI", "whole": "whole image"}
KIND_WORDS = {
    "internal": "internal",
    "external": "external",
    "leave-one-dataset-out": "all others train",
    "folds": "cross-validated",
    "nested": "a source left out, to choose",
}


@dataclass(frozen=True, kw_only=True)
class Design:
    """`main`: the (model, input) pairs that make up the averages; orders are those of the study file."""

    name: str
    datasets: tuple[str, ...]
    models: tuple[str, ...]
    inputs: tuple[str, ...]
    kinds: tuple[str, ...]
    seeds: tuple[int, ...]
    whole: frozenset[str]
    found: frozenset[str]
    method: Mapping[str, str]
    network: Mapping[str, str]
    weights: Mapping[str, str]
    """What each model starts from, as the study file says; empty where it does not."""
    margin: Mapping[str, float]
    margin_reference: float | None
    main: tuple[tuple[str, str], ...]
    without: tuple[str, ...]
    reference: str
    verdict_margin: float | None
    ids: str

    @property
    def configurations(self) -> tuple[tuple[str, str], ...]:
        return tuple((m, i) for m in self.models for i in self.inputs)

    def order(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rows in the order of the study file, not of the alphabet."""
        place = {
            "kind": {k: n for n, k in enumerate(self.kinds)},
            "model": {k: n for n, k in enumerate(self.models)},
            "input": {k: n for n, k in enumerate(self.inputs)},
        }
        by = [c for c in ("kind", "model", "input") if c in table.columns]
        keys = {f"_{c}": table[c].map(place[c]).fillna(len(place[c])) for c in by}
        return (
            table.assign(**keys)
            .sort_values(list(keys), kind="stable")
            .drop(columns=list(keys))
            .reset_index(drop=True)
        )


def word(name: str) -> str:
    """A model's or an input's name for the eye."""
    return _WORDS.get(name, name)


def configuration(model: str, input_: str) -> str:
    """`CNN, ROI`."""
    return f"{word(model)}, {word(input_)}"


def tidy_runs(runs: pd.DataFrame, *, margin_reference: float | None = None) -> pd.DataFrame:
    """The table of runs with one name a configuration: where a model has several methods, or an input several
    margins, the further ones carry it in their name, so that (model, input) alone tells runs apart."""
    missing = [c for c in RUN_COLUMNS if c not in runs.columns]
    if missing:
        raise UserError(f"the table of runs has no column {', '.join(missing)}")
    out = runs.copy()
    for column, value in (("method", PLAIN), ("margin", math.nan), ("reason", "")):
        if column not in out.columns:
            out[column] = value
    out["method"] = out["method"].fillna(PLAIN).replace("", PLAIN)
    out["margin"] = pd.to_numeric(out["margin"], errors="coerce").astype(float)
    several = out.groupby("model")["method"].transform("nunique") > 1
    other = several & (out["method"] != PLAIN)
    out.loc[other, "model"] = out.loc[other, "model"] + " " + out.loc[other, "method"]
    for name, rows in out.groupby("input"):
        margins = sorted(rows["margin"].dropna().unique())
        if len(margins) < 2:
            continue
        keep = _reference_margin(rows["margin"], margin_reference)
        for margin in margins:
            if margin != keep:
                out.loc[rows.index[rows["margin"] == margin], "input"] = f"{name} {100 * margin:g} %"
    twice = out.duplicated(["scenario", "model", "input", "seed"])
    if twice.any():
        row = out[twice].iloc[0]
        raise UserError(
            f"{int(twice.sum())} runs stand twice for one scenario, configuration and seed",
            where=f"{row['scenario']}, {row['model']}, {row['input']}, seed {row['seed']}",
        )
    return out


def _reference_margin(margins: pd.Series, wanted: float | None) -> float:
    held = margins.dropna()
    for margin in (wanted, STUDY_MARGIN):
        if margin is not None and (held - margin).abs().min() < 1e-9:
            return float(held[(held - margin).abs() < 1e-9].iloc[0])
    return float(held.mode().iloc[0])


def read_design(name: str, settings: Mapping[str, Any], table: pd.DataFrame, runs: pd.DataFrame) -> Design:
    """`runs` already tidied."""
    analyses = _part(settings, "analyses")
    inputs_of, models_of = _part(settings, "inputs"), _part(settings, "models")
    models = _ordered(runs["model"], models_of)
    inputs = _ordered(runs["input"], inputs_of)
    kind_of = {i: _part(inputs_of, i).get("kind") or ("whole" if "whole" in i else "roi") for i in inputs}
    found = frozenset(
        i for i in inputs if _part(inputs_of, i).get("boxes", "found" if "found" in i else "") == "found"
    )
    whole = frozenset(i for i in inputs if kind_of[i] == "whole")
    method = {str(m): str(rows["method"].iloc[0]) for m, rows in runs.groupby("model")}
    network = {m: str(_part(models_of, m).get("network") or m.split(" ")[0]) for m in models}
    margins = {
        str(i): float(rows["margin"].dropna().iloc[0])
        for i, rows in runs.groupby("input")
        if i not in whole and rows["margin"].notna().any() and not _part(inputs_of, str(i)).get("outline")
    }
    wanted = analyses.get("margin_reference")
    reference = float(wanted) if isinstance(wanted, int | float) else None
    split = [i for i in margins if i.endswith(" %")]
    if reference is None and split:
        reference = _reference_margin(pd.Series([margins.get(i, math.nan) for i in runs["input"]]), None)
    plain_models = [m for m in models if method.get(m, PLAIN) == PLAIN] or models
    plain_inputs = [
        i
        for i in inputs
        if i not in found
        and (reference is None or i not in margins or abs(margins[i] - reference) < 1e-9)
        and not _part(inputs_of, i).get("outline")
    ] or inputs
    present = set(zip(runs["model"], runs["input"], strict=True))
    verdict = analyses.get("verdict_margin")
    return Design(
        name=name,
        datasets=tuple(dict.fromkeys(map(str, table["dataset"]))),
        models=tuple(models),
        inputs=tuple(inputs),
        kinds=tuple(k for k in KIND_WORDS if k in set(runs["kind"])),
        seeds=tuple(sorted(int(s) for s in runs["seed"].dropna().unique())),
        whole=whole,
        found=found,
        method=method,
        network=network,
        weights={m: str(_part(models_of, m).get("weights") or "") for m in models},
        margin=margins,
        margin_reference=reference,
        main=tuple((m, i) for m in plain_models for i in plain_inputs if (m, i) in present),
        without=tuple(map(str, analyses.get("without") or ())),
        reference=str(analyses.get("reference") or ""),
        verdict_margin=float(verdict) if isinstance(verdict, int | float) and verdict > 0 else None,
        ids=str(_part(settings, "study").get("ids") or "patient"),
    )


def _part(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    held = settings.get(name)
    return held if isinstance(held, Mapping) else {}


def _ordered(column: pd.Series, named: Mapping[str, Any]) -> list[str]:
    held = list(dict.fromkeys(map(str, column)))
    first = [name for name in named if name in held]
    return first + [name for name in held if name not in first]
