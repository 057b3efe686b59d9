"""Which models are the members of which ensemble: by rule, by table, and chosen on other patients (LN-16, ST-12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.generalise.ensembles import (
    BOTH,
    EITHER,
    ON_NORMAL,
    ON_TUMOUR,
    Ensemble,
    halves,
    passing_models,
    study_ensembles,
)
from elsewhere.analysis.generalise.settings import STUDY, Domains, domains_of
from elsewhere.analysis.slide_ensembles import published
from elsewhere.ensembles.pixel_votes import is_and
from elsewhere.errors import UserError, unknown_name
from elsewhere.scoring.patch_scores import CASE, DICE, FPR, PATIENT, PatchScores, read_patch_scores
from elsewhere.tables import read_table

CHOSEN = (EITHER, BOTH, ON_TUMOUR, ON_NORMAL)
"""The rules whose members are chosen by their results, and are chosen on other patients too."""
BoolArray = npt.NDArray[np.bool_]
Rule = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class ChoiceOptions:
    """How members are chosen.

    Attributes:
        margins: The margin of 'dice' and 'fpr': a number, or 'study'.
        alpha: The level of each one-sided test.
        internal: A column and the values of internal slides; None for the column `domain`.
        external: A column and the values of external slides; None likewise.
        members: A table of ensembles and models, or the word 'study' for the members that the study prints; None to choose.
    """

    margins: Mapping[str, float | str] = field(default_factory=dict)
    alpha: float = 0.05
    internal: Rule | None = None
    external: Rule | None = None
    members: str | Path | None = None


@dataclass(frozen=True, kw_only=True)
class CrossFitted:
    """Members that are scored on other patients than those that chose them.

    Attributes:
        name: The rule.
        members: The members chosen on the first half of the patients, and on the second.
        scored: The slides on which each is scored: those of the other half.
        reason: Why there are none; empty where there are.
    """

    name: str
    members: tuple[tuple[str, ...], ...] = ()
    scored: tuple[BoolArray, ...] = ()
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The ensembles of a run.

    Attributes:
        ensembles: The ensembles.
        crossed: The chosen rules on other patients.
        passing: The models that pass on tumour and on normal patches; empty where none are chosen.
        domains: Which slides are internal, in words; empty where that is not known.
        chosen_by: What the members follow from, in words.
        warnings: Full sentences.
    """

    ensembles: tuple[Ensemble, ...]
    crossed: tuple[CrossFitted, ...] = ()
    passing: Mapping[str, list[str]] = field(default_factory=dict)
    domains: str = ""
    chosen_by: str = ""
    warnings: tuple[str, ...] = ()


def choose(
    models: Sequence[str],
    cases: pd.DataFrame,
    scores: pd.DataFrame,
    options: ChoiceOptions,
    rng: np.random.Generator,
) -> Choice:
    """List the ensembles: those of the study's rules, or those of a table.

    Args:
        models: The models.
        cases: The slides, with `case_id`, `patient_id` and the columns that tell the domains apart.
        scores: Sums of patches per slide, model and fold, on which members are chosen.
        options: How they are chosen.
        rng: The generator of all draws.

    Returns:
        The ensembles.

    Raises:
        UserError: A table of members names another model, or the domains cannot be told apart.
    """
    if options.members is not None:
        return _listed(models, options.members, rng)
    known = options.internal is not None or options.external is not None or "domain" in cases.columns
    if not known:
        made = study_ensembles(models, on_tumour=[], on_normal=[], rng=rng, size=len(models))
        by_name = tuple(one for one in made if not one.chosen_on_data)
        return Choice(
            ensembles=(*by_name, _every(models)),
            chosen_by="the models' names",
            warnings=(
                "No ensemble of generalising models: it is not known which slides are internal. Add a column `domain` with ID "
                "and OOD, or give --id and --ood.",
            ),
        )
    return _by_results(models, cases, scores, options, rng)


def _every(models: Sequence[str]) -> Ensemble:
    return Ensemble(name="All models", rule="all models", members=tuple(models), is_and=is_and(models))


def _by_results(
    models: Sequence[str],
    cases: pd.DataFrame,
    scores: pd.DataFrame,
    options: ChoiceOptions,
    rng: np.random.Generator,
) -> Choice:
    columns = [rule[0] for rule in (options.internal, options.external) if rule is not None]
    missing = [name for name in columns if name not in cases.columns]
    if missing:
        raise unknown_name("column of slides", missing[0], [str(name) for name in cases.columns])
    facts = cases[
        [CASE, PATIENT, *dict.fromkeys(["domain", *columns] if "domain" in cases.columns else columns)]
    ]
    table = scores[[name for name in scores.columns if name == CASE or name not in facts.columns]].merge(
        facts, on=CASE, how="inner"
    )
    if table.empty:
        raise UserError(
            "no slide of the table of patch scores is in the cohort", fix="Use the same case_id in both."
        )
    unknown = [name for name in models if name not in set(table["model"])]
    if unknown:
        raise UserError(
            f"the table of patch scores has no model {unknown[0]}",
            fix="Name the models in it as the folders of masks are named.",
        )
    read = read_patch_scores(table[table["model"].isin(models)], columns=columns)
    domains = domains_of(read, options.internal, options.external)
    warnings = list(read.warnings)
    if len(read.folds) < 2:
        warnings.append(
            "No model can pass the test by fold: there is one fold. Ensembles follow from the names alone."
        )
    everyone = domains.internal | domains.external

    def passing(parts: BoolArray) -> dict[str, list[str]]:
        return {
            metric.name: passing_models(
                read,
                metric,
                domains,
                parts,
                margin=options.margins.get(metric.name, STUDY),
                alpha=options.alpha,
            )
            for metric in (DICE, FPR)
        }

    passed = passing(everyone)
    made = study_ensembles(models, on_tumour=passed["dice"], on_normal=passed["fpr"], rng=rng)
    absent = [name for name in CHOSEN if name not in {one.name for one in made}]
    if absent:
        warnings.append(f"No model passes for: {', '.join(absent)}; these ensembles have no members.")
    return Choice(
        ensembles=tuple(made),
        crossed=tuple(_crossed(read, domains, cases, passing, rng)),
        passing=passed,
        domains=domains.rule,
        chosen_by="the study's test by fold on patches (Welch's two one-sided tests)",
        warnings=tuple(warnings),
    )


def _crossed(
    read: PatchScores, domains: Domains, cases: pd.DataFrame, passing: Any, rng: np.random.Generator
) -> list[CrossFitted]:
    """Choose on each half of the patients, and score on the slides of the other half."""
    first, second = halves(read, domains, rng)
    if not (first.any() and second.any()):
        return [CrossFitted(name=name, reason="there are too few patients to be halved") for name in CHOSEN]
    slides = [cases[CASE].isin(read.parts[CASE][half]).to_numpy(dtype=bool) for half in (first, second)]
    found: list[dict[str, tuple[str, ...]]] = []
    for half in (first, second):
        passed = passing(half)
        listed = study_ensembles(read.models, on_tumour=passed["dice"], on_normal=passed["fpr"], rng=rng)
        found.append({one.name: one.members for one in listed if one.name in CHOSEN})
    out = []
    for name in CHOSEN:
        if all(name in half for half in found):
            out.append(
                CrossFitted(
                    name=name,
                    members=(found[0][name], found[1][name]),
                    scored=(slides[1], slides[0]),
                )
            )
        else:
            which = "either half" if not any(name in half for half in found) else "one half"
            out.append(CrossFitted(name=name, reason=f"no model passes on {which} of the patients"))
    return out


def _listed(models: Sequence[str], members: str | Path, rng: np.random.Generator) -> Choice:
    if str(members) == STUDY:
        return _printed(models, rng)
    path = Path(members)
    table = read_table(path, required=("ensemble", "model"), strings=["ensemble", "model"])
    out = []
    for name, rows in table.groupby("ensemble", sort=False):
        chosen = [str(model).strip() for model in rows["model"]]
        for model in chosen:
            if model not in models:
                raise unknown_name("model", model, list(models))
        if len(set(chosen)) < len(chosen):
            raise UserError(f"ensemble {name} has one member twice", where=str(path), fix="Name each once.")
        rule = "listed in the table of members"
        out.append(Ensemble(name=str(name), rule=rule, members=tuple(chosen), is_and=is_and(chosen)))
    return Choice(ensembles=tuple(out), chosen_by=f"the table {path.name}")


def _printed(models: Sequence[str], rng: np.random.Generator) -> Choice:
    """The members that the study prints; its draw of non-generalising ones is not printed."""
    ours = {found: name for name in models if (found := published.study_model(name)) is not None}
    lost = [name for name in (*published.ON_TUMOUR, *published.ON_NORMAL) if name not in ours]
    if lost:
        raise UserError(
            f"there is no model named {lost[0]}",
            fix="--members study needs the study's models, named CLUSTERING-SHARE; without it members are chosen by results.",
        )
    made = study_ensembles(
        models,
        on_tumour=[ours[name] for name in published.ON_TUMOUR],
        on_normal=[ours[name] for name in published.ON_NORMAL],
        rng=rng,
    )
    words = {one.name: one.rule.replace("equivalent on", "printed as equivalent on") for one in made}
    return Choice(
        ensembles=tuple(replace(one, rule=words[one.name], chosen_on_data=False) for one in made),
        chosen_by="the models that the study prints as passing its test; the non-generalising ones are drawn anew",
    )
