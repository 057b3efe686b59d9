"""Many models and their ensembles on slides, as the content of summary.json with tables for other programs (LN-15, LN-16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from elsewhere._version import __version__
from elsewhere.analysis.generalise.ensembles import Ensemble
from elsewhere.analysis.slide_ensembles.choice import Choice
from elsewhere.analysis.slide_ensembles.combine import Combined
from elsewhere.analysis.slide_ensembles.null import share_as_good
from elsewhere.analysis.slide_ensembles.published import printed_comparison
from elsewhere.analysis.slide_ensembles.rates import (
    ITC,
    ITC_RULES,
    MACRO,
    MICRO,
    NEGATIVE,
    NULL_RATES,
    RATES,
    Outcomes,
    two_class,
)
from elsewhere.predictions.stages import STAGES
from elsewhere.privacy import Redactor
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.proportions import wilson
from elsewhere.statistics.resampling import Resampling
from elsewhere.tables import to_jsonable
from elsewhere.tables.identifiers import read_folders

QUESTION = "Do ensembles of chosen models stage slides better than single models, and than random ensembles?"
SHOWN_RATE = "f1_mean_left_out"
"""The rate by which models are ordered: the study's F1."""
_BY_NAME = {rate.name: rate for rate in RATES}
_FOUR = 4
_Z = 1.959963984540054


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a run read.

    Attributes:
        cases: The slides, with `case_id` and `patient_id`.
        models: The models.
        folds: The folds.
        rule: The tie rule.
        random: How many random ensembles of each size were asked for.
        counts: Slides, patients and masks.
        warnings: Full sentences.
        missing: Masks that are missing, per model.
    """

    cases: pd.DataFrame
    models: tuple[str, ...]
    folds: tuple[str, ...]
    rule: str
    random: int
    counts: Mapping[str, int]
    warnings: tuple[str, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CombinedSummary:
    """The summary of many models and their ensembles.

    Attributes:
        summary: The content of summary.json; it names no slide and no patient.
        tables: The tables, by the name of their file.
        redactor: The redactor that took the ids out of the summary.
    """

    summary: dict[str, Any]
    tables: Mapping[str, pd.DataFrame]
    redactor: Redactor


def summarise(
    made: Combined,
    choice: Choice,
    facts: RunFacts,
    resampling: Resampling,
    *,
    source: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> CombinedSummary:
    """Summarise what models and ensembles say of the slides.

    Args:
        made: What each says.
        choice: The ensembles.
        facts: What the run read.
        resampling: The resamples of patients for the intervals.
        source: What the provenance says about the inputs; None for nothing.
        settings: What the user set; None for nothing.

    Returns:
        The summary and the tables.
    """
    clusters = Clusters.from_table(facts.cases, positive=np.isin(made.outcomes.truth, [MICRO, MACRO]))
    by_name = {one.name: one for one in choice.ensembles}
    rows = [
        _facts_of(variant.name, variant.kind, [facts.models[m] for m in variant.members], by_name) | part
        for variant, part in zip(made.variants, _measured(made.outcomes, clusters, resampling), strict=True)
    ]
    for one in choice.crossed:
        row: dict[str, Any] = {
            "name": one.name,
            "kind": "cross-fitted",
            "members": [" + ".join(half) for half in one.members],
            "size": [len(half) for half in one.members],
            "is_and": any(len(half) == 2 for half in one.members) and facts.rule == "strict",
            "rule": "members chosen on the other half of the patients",
            "reason": one.reason,
        }
        if one.members:
            row |= _measured(made.crossed[one.name], clusters, resampling)[0]
        rows.append(row)
    part = {
        "rows": rows,
        "rates": [vars(rate) for rate in RATES],
        "null": _null(made, rows),
        "random_ensembles": facts.random,
        "rule": facts.rule,
        "chosen_by": choice.chosen_by,
        "passing": dict(choice.passing),
        "domains": choice.domains,
        "folds": list(facts.folds),
        "missing": dict(facts.missing),
        "selected": _selected(rows),
        "published": printed_comparison([row for row in rows if row["kind"] != "cross-fitted"]),
        "resamples": resampling.resamples,
    }
    warnings = [*facts.warnings, *choice.warnings, *_warnings(rows, facts)]
    summary: dict[str, Any] = {
        "elsewhere": __version__,
        "task": "ensembles of models on slides",
        "question": QUESTION,
        "provenance": {
            "command": "slides ensemble",
            "code_version": __version__,
            **(source or {}),
            "settings": dict(settings or {}),
        },
        "counts": dict(facts.counts),
        "metrics": {},
        "slide_ensembles": part,
        "methods": _methods(part),
        "warnings": list(dict.fromkeys(warnings)),
    }
    ids = [*facts.cases["case_id"].astype(str), *facts.cases["patient_id"].astype(str)]
    redactor = Redactor(ids, folders=read_folders())
    shared = redactor.summary(to_jsonable(summary))
    return CombinedSummary(
        summary=shared, tables=_tables(shared["slide_ensembles"], made, facts), redactor=redactor
    )


def _facts_of(name: str, kind: str, members: list[str], ensembles: Mapping[str, Ensemble]) -> dict[str, Any]:
    if kind == "model":
        return {"name": name, "kind": kind, "members": members, "size": 1, "is_and": False, "rule": ""}
    one = ensembles[name]
    return {
        "name": name,
        "kind": kind,
        "members": members,
        "size": len(members),
        "is_and": one.is_and,
        "rule": one.rule,
        "chosen_on_data": one.chosen_on_data,
    }


def _measured(outcomes: Outcomes, clusters: Clusters, resampling: Resampling) -> list[dict[str, Any]]:
    """Rates with their intervals, confusion matrices and Dice by stage of each variant."""
    folds = outcomes.by_fold()
    drawn = {}
    if resampling.resamples:
        drawn = outcomes.resampled(
            clusters, key=resampling.key, seed=resampling.seed, resamples=resampling.resamples
        )
    confusion = outcomes.confusion()
    out = []
    for v in range(len(outcomes.stage)):
        rates: dict[str, Any] = {}
        for rate in RATES:
            values = folds[rate.name][v]
            entry: dict[str, Any] = {
                "value": float(values.mean()),
                "sd": round(float(values.std(ddof=1)), 12) if values.size > 1 else None,
                "folds": values.tolist(),
            }
            if drawn and np.isfinite(entry["value"]):
                entry |= _interval(
                    rate.name,
                    entry["value"],
                    drawn[rate.name][:, v],
                    _carriers(rate.name, outcomes, clusters),
                )
            rates[rate.name] = {"lo": None, "hi": None, **entry}
        mean = confusion[v].mean(axis=0)
        out.append(
            {
                "rates": rates,
                "confusion": {
                    "four_class": mean.tolist(),
                    **{
                        f"two_class_{rule.replace('-', '_')}": two_class(mean, rule).tolist()
                        for rule in ITC_RULES
                    },
                },
                "dice_by_stage": {
                    STAGES[code]: _mean(outcomes.dice[v][:, outcomes.truth == code])
                    for code in (MACRO, MICRO, ITC)
                },
            }
        )
    return out


def _carriers(name: str, outcomes: Outcomes, clusters: Clusters) -> int:
    """How many patients have a slide that counts in a proportion; 0 for a rate that is no proportion."""
    positive = np.isin(outcomes.truth, [MICRO, MACRO])
    chosen = {
        "stage_accuracy": outcomes.truth >= 0,
        "sensitivity_negative": positive,
        "sensitivity_left_out": positive,
        "specificity_negative": ~positive & (outcomes.truth >= 0),
        "specificity_left_out": outcomes.truth == NEGATIVE,
    }.get(name)
    return 0 if chosen is None else int(np.unique(clusters.cluster_of_case[chosen]).size)


def _interval(name: str, value: float, drawn: np.ndarray, patients: int) -> dict[str, Any]:
    """The interval of a rate; a proportion has Wilson's, with the effective number of patients by the resamples.

    A percentile interval is empty where no resample has an error. A rate that is no proportion has none then.
    """
    drawn = drawn[np.isfinite(drawn)]
    if drawn.size < 2:
        return {}
    if patients:
        variance = float(drawn.var())
        effective = float(patients)
        if variance > 0 and 0 < value < 1:
            effective = min(effective, value * (1 - value) / variance)
        lo, hi = wilson(value, effective, z=_Z)
    else:
        lo, hi = (float(x) for x in np.quantile(drawn, [0.025, 0.975]))
        if lo == hi:
            return {"note": "no resample differs: too few errors for an interval"}
    return {"lo": float(lo), "hi": float(hi)}


def _mean(values: np.ndarray) -> float | None:
    good = values[np.isfinite(values)]
    return float(good.mean()) if good.size else None


def _null(made: Combined, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each ensemble next to its random ones."""
    mine = {(row["kind"], row["name"]): row for row in rows}
    out = []
    for null in made.null:
        row = mine[null.kind, null.name]
        entry: dict[str, Any] = {
            "name": null.name,
            "kind": null.kind,
            "size": row["size"],
            "chosen": bool(row.get("chosen_on_data")) or null.kind == "cross-fitted",
            "exact": null.sets.exact,
            "random": int(null.sets.words[0].size),
            "rates": {},
        }
        for name in NULL_RATES:
            drawn, rate = null.rates[name], _BY_NAME[name]
            value = row["rates"][name]["value"]
            value = np.nan if value is None else float(value)
            finite = drawn[np.isfinite(drawn)]
            lo, hi = np.quantile(finite, [0.025, 0.975]) if finite.size else (None, None)
            entry["rates"][name] = {
                "value": value,
                "random": float(finite.mean()) if finite.size else None,
                "lo": lo,
                "hi": hi,
                "p": share_as_good(
                    value, drawn, higher_is_better=rate.higher_is_better, exact=null.sets.exact
                ),
            }
        out.append(entry)
    return out


def _selected(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The variants whose confusion matrices are drawn: the best model, and the study's three ensembles, or the best ones."""

    def value(row: Mapping[str, Any]) -> float:
        found = row["rates"][SHOWN_RATE]["value"]
        return -1.0 if found is None or not np.isfinite(found) else float(found)

    models = sorted((row for row in rows if row["kind"] == "model"), key=value, reverse=True)
    ensembles = [row for row in rows if row["kind"] == "ensemble"]
    wanted = [
        row
        for row in ensembles
        if row["name"] in ("Generalising", "Generalising (T&N)") or row["name"].startswith("Non-Generalising")
    ]
    rest = sorted((row for row in ensembles if row not in wanted), key=value, reverse=True)
    return [str(row["name"]) for row in [*models[:1], *wanted, *rest]][:_FOUR]


def _warnings(rows: Sequence[Mapping[str, Any]], facts: RunFacts) -> list[str]:
    out = []
    ands = list(dict.fromkeys(row["name"] for row in rows if row["is_and"]))
    if ands and facts.rule == "strict":
        out.append(
            f"{', '.join(ands)}: two members, whose strict vote is an AND. It has fewer false positives and a lower sensitivity "
            "by construction; --rule mean-probability has no ties."
        )
    even = [
        row["name"]
        for row in rows
        if row["kind"] == "ensemble" and row["size"] % 2 == 0 and not row["is_and"]
    ]
    if even and facts.rule == "strict":
        out.append(f"{', '.join(even)}: an even number of members; a tie is no tumour.")
    for row in rows:
        if row.get("reason"):
            out.append(f"{row['name']}, members chosen on other patients: NOT ASSESSED, {row['reason']}.")
    return out


def _tables(part: Mapping[str, Any], made: Combined, facts: RunFacts) -> dict[str, pd.DataFrame]:
    scored = [row for row in part["rows"] if "rates" in row]
    keys = ("value", "sd", "lo", "hi")
    tables = {
        "rates.csv": pd.DataFrame(
            [
                {"name": row["name"], "kind": row["kind"], "rate": name, **{key: entry[key] for key in keys}}
                for row in scored
                for name, entry in row["rates"].items()
            ]
        ),
        "folds.csv": pd.DataFrame(
            [
                {"name": row["name"], "kind": row["kind"], "fold": fold}
                | {name: entry["folds"][f] for name, entry in row["rates"].items()}
                for row in scored
                for f, fold in enumerate(part["folds"])
            ]
        ),
        "members.csv": pd.DataFrame(
            [
                {"ensemble": row["name"], "model": model, "rule": row["rule"]}
                for row in part["rows"]
                if row["kind"] == "ensemble"
                for model in row["members"]
            ],
            columns=["ensemble", "model", "rule"],
        ),
        "confusion.csv": pd.DataFrame(
            [
                {"name": row["name"], "kind": row["kind"], "truth": truth, "said": said, "slides": value}
                for row in scored
                for truth, line in zip(STAGES, row["confusion"]["four_class"], strict=True)
                for said, value in zip(STAGES, line, strict=True)
            ]
        ),
        "slide_stages.csv": _by_slide(made, facts),
    }
    if part["null"]:
        tables["random.csv"] = pd.DataFrame(
            [
                {key: row[key] for key in ("name", "kind", "exact", "random")} | {"rate": name, **entry}
                for row in part["null"]
                for name, entry in row["rates"].items()
            ]
        )
    if part["published"]:
        tables["published.csv"] = pd.DataFrame(part["published"]["rows"])
    return tables


def _by_slide(made: Combined, facts: RunFacts) -> pd.DataFrame:
    """One row per slide, fold and model or ensemble; it names the slides, and stays with the data."""
    outcomes = made.outcomes
    v, f, s = (index.ravel() for index in np.indices(outcomes.stage.shape))
    words = np.array([*STAGES, ""], dtype=object)
    return pd.DataFrame(
        {
            "case_id": facts.cases["case_id"].to_numpy(dtype=object)[s],
            "name": np.array([one.name for one in made.variants], dtype=object)[v],
            "kind": np.array([one.kind for one in made.variants], dtype=object)[v],
            "fold": np.array(facts.folds, dtype=object)[f],
            "stage_true": words[outcomes.truth[s]],
            "stage_predicted": words[outcomes.stage[v, f, s]],
            "dice": outcomes.dice[v, f, s],
            "fpr": outcomes.fpr[v, f, s],
            "fpr_tissue": outcomes.fpr_tissue[v, f, s],
        }
    )


def _methods(part: Mapping[str, Any]) -> str:
    vote = (
        "A cell was tumour where more than half of the members called it (strict; a tie is no tumour)"
        if part["rule"] == "strict"
        else "A cell was tumour where the mean of the members' probabilities was above the threshold"
    )
    sentences = [
        "Each mask was reduced to cells of about 8 microns (16x down of 20x); a cell is tumour where the mean of its pixels is "
        "above the threshold.",
        f"{vote}, within each of {len(part['folds'])} folds.",
        "The stage follows from the longest major axis of any 8-connected object: over 2 mm macro, over 0.2 mm micro, any "
        "smaller object ITC. Positive slides are macro and micro.",
        "Rates are means over the folds with their standard deviation."
        + (
            f" Intervals are 95 %, from {part['resamples']:,} resamples of patients with all folds together: Wilson's with the "
            "effective number of patients for sensitivity, specificity and accuracy, percentiles for the others."
            if part["resamples"]
            else ""
        ),
        f"Members followed from {part['chosen_by']}." if part["chosen_by"] else "",
        "Chosen rules were also applied to one half of the patients of each domain and scored on the other half, and the "
        "reverse."
        if any(row["kind"] == "cross-fitted" for row in part["rows"])
        else "",
        f"Each ensemble was compared with {part['random_ensembles']:,} random ensembles of its size (all of them where there "
        "are no more), which voted by the same rule on the same slides."
        if part["null"]
        else "",
        "A missing mask counted as the worst answer: no tumour on macro and micro slides, tumour everywhere else on the others.",
        f"Analysis: Elsewhere {__version__}.",
    ]
    return " ".join(sentence for sentence in sentences if sentence)
