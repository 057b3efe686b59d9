"""How many models are compared at two domains: domains, margins, strata, and where they came from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, unknown_name
from elsewhere.scoring.patch_scores import (
    DOMAIN,
    ID_WORDS,
    OOD_WORDS,
    PATCH_METRICS,
    PATIENT,
    PatchScores,
)

STUDY = "study"
Weight = Literal["patches", "slides"]
RATIO_MARGIN = 1.5


@dataclass(frozen=True, kw_only=True)
class Domains:
    """Which slides are internal (in distribution, ID) and which external (out of distribution, OOD).

    Attributes:
        internal: Which parts are internal.
        external: Which parts are external.
        rule: The rule in words.
        neither: How many slides are in neither.
    """

    internal: npt.NDArray[np.bool_]
    external: npt.NDArray[np.bool_]
    rule: str
    neither: int = 0


def parse_rule(text: str, *, option: str) -> tuple[str, tuple[str, ...]]:
    """Read a rule such as `site=RUMC,UMCU`.

    Args:
        text: The rule.
        option: The option, for errors.

    Returns:
        The column and its values.

    Raises:
        UserError: The text is not COLUMN=VALUE.

    Example:
        >>> parse_rule("site=RUMC,UMCU", option="--id")
        ('site', ('RUMC', 'UMCU'))
    """
    column, sign, values = text.partition("=")
    found = tuple(part.strip() for part in values.split(",") if part.strip())
    if not sign or not column.strip() or not found:
        raise UserError(
            f"'{text}' is not COLUMN=VALUE",
            where=option,
            fix=f"Write e.g. {option} site=RUMC or {option} site=A,B.",
        )
    return column.strip(), found


def domains_of(
    scores: PatchScores,
    internal: tuple[str, tuple[str, ...]] | None = None,
    external: tuple[str, tuple[str, ...]] | None = None,
) -> Domains:
    """Divide the slides into internal and external ones.

    Args:
        scores: The scores.
        internal: A column and the values of internal slides; None for `domain`, whose values are ID and OOD.
        external: A column and the values of external slides; None for `domain`, or for all slides that are not
            internal where only that is given.

    Returns:
        The domains.

    Raises:
        UserError: A column or value is not there, a slide or a patient is on both sides, or a side is empty.
    """
    if internal is None and external is None:
        return _by_domain(scores)
    first = None if internal is None else _chosen(scores, internal)
    second = None if external is None else _chosen(scores, external)
    names = [
        f"{name} {given[0]} = {' or '.join(given[1])}"
        for name, given in (("internal:", internal), ("external:", external))
        if given is not None
    ]
    rule = "; ".join(names)
    if first is None and second is not None:
        first = ~second
        rule += "; all other slides are internal"
    elif second is None and first is not None:
        second = ~first
        rule += "; all other slides are external"
    if first is None or second is None:
        return _by_domain(scores)
    return _checked(scores, first, second, rule)


def _by_domain(scores: PatchScores) -> Domains:
    """Divide the slides by the words of the column `domain`."""
    if DOMAIN not in scores.parts.columns:
        raise UserError(
            "it is not known which slides are internal (ID) and which external (OOD)",
            fix="Add a column `domain` with ID or OOD, or give --id COLUMN=VALUE and --ood COLUMN=VALUE.",
        )
    word = scores.parts[DOMAIN].astype(str).str.lower()
    first, second = (word.isin(words).to_numpy(dtype=bool) for words in (ID_WORDS, OOD_WORDS))
    odd = sorted(set(scores.parts[DOMAIN].astype(str)[~first & ~second & (word != "")]))
    if odd:
        raise UserError(
            f"column domain holds '{odd[0]}'",
            fix="Use ID and OOD (or internal and external), or give --id COLUMN=VALUE and --ood COLUMN=VALUE.",
        )
    return _checked(scores, first, second, "the column `domain` of the table")


def _chosen(scores: PatchScores, rule: tuple[str, tuple[str, ...]]) -> npt.NDArray[np.bool_]:
    column, values = rule
    if column not in scores.parts.columns:
        raise unknown_name("column", column, [str(name) for name in scores.parts.columns])
    have = scores.parts[column].astype(str)
    for value in values:
        if not (have == value).any():
            raise unknown_name(f"value of {column}", value, sorted(set(have)))
    return have.isin(values).to_numpy(dtype=bool)


def _checked(
    scores: PatchScores, first: npt.NDArray[np.bool_], second: npt.NDArray[np.bool_], rule: str
) -> Domains:
    if (first & second).any():
        raise UserError(
            f"{int((first & second).sum())} slides are internal and external",
            where=rule,
            fix="Choose disjoint values.",
        )
    patients = scores.parts[PATIENT].astype(str).to_numpy()
    shared = sorted(set(patients[first]) & set(patients[second]))
    if shared:
        raise UserError(
            f"{len(shared)} patients have internal and external slides",
            where=rule,
            fix="The two domains are compared as independent patients: leave these patients' slides out of one side, "
            "or give patients of two hospitals names of their own.",
        )
    for side, name in ((first, "internal (ID)"), (second, "external (OOD)")):
        if not side.any():
            raise UserError(f"no slide is {name}", where=rule, fix="Check the names of the domains.")
    cases = scores.parts["case_id"].to_numpy()
    return Domains(internal=first, external=second, rule=rule, neither=len(set(cases[~first & ~second])))


@dataclass(frozen=True, kw_only=True)
class GeneraliseOptions:
    """How the models are judged.

    Attributes:
        margins: The largest difference that would not matter, by metric, or 'study' to make it from the data.
        ratio_margin: The largest ratio of false-positive rates that would not matter, above 1.
        by: Columns whose values are strata.
        standardise: Columns whose cells are weighed as at the reference.
        weight: 'patches': each patch counts once, as in the study; 'slides': each slide counts once.
        reference: The model that the others are compared with on external slides; None for none.
        alpha: The level of each one-sided test.
        resamples: How many resamples; 0 for none.
        seed: The seed of every draw.
        ensembles: Whether ensembles of the models are chosen and compared with random ones.
    """

    margins: Mapping[str, float | str] = field(default_factory=dict)
    ratio_margin: float = RATIO_MARGIN
    by: tuple[str, ...] = ()
    standardise: tuple[str, ...] = ()
    weight: Weight = "patches"
    reference: str | None = None
    alpha: float = 0.05
    resamples: int = 1000
    seed: int = 42
    ensembles: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ratio_margin) and self.ratio_margin > 1.0):
            raise UserError(
                f"the ratio margin is {self.ratio_margin:g}",
                where="--ratio-margin",
                fix="Give the largest ratio of false-positive rates that would not matter, above 1, such as 1.5.",
            )
        if self.weight not in ("patches", "slides"):
            raise unknown_name("weight", self.weight, ["patches", "slides"])


def parse_margins(items: Sequence[str | float]) -> dict[str, float | str]:
    """Read margins: 'study', a number for both metrics, or METRIC=NUMBER.

    Args:
        items: What was given.

    Returns:
        The margin of each metric: a number, or 'study'.

    Raises:
        UserError: Nothing was given, or one is no margin.

    Example:
        >>> parse_margins(["dice=0.05", "fpr=study"])
        {'dice': 0.05, 'fpr': 'study'}
    """
    names = [metric.name for metric in PATCH_METRICS]
    margins: dict[str, float | str] = {}
    for item in items:
        name, sign, text = str(item).partition("=")
        if not sign:
            name, text = "", str(item)
        if name and name.strip() not in names:
            raise unknown_name("metric", name.strip(), names)
        value: float | str = STUDY if text.strip() == STUDY else _number(text)
        for metric in names if not name else [name.strip()]:
            margins[metric] = value
    if not margins:
        raise UserError(
            "no margin was given",
            fix="Declare it beforehand: --margin dice=0.05 --margin fpr=0.005; --margin study makes it from the data, as "
            "the lymph-node study did.",
        )
    return margins


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError as problem:
        raise UserError(
            f"--margin '{text}' is not a number", fix="Such as 0.05, dice=0.05, or the word study."
        ) from problem
    if not 0 < value < math.inf:
        raise UserError(
            f"the margin is {text}", fix="Declare the largest difference that would not matter, above 0."
        )
    return value
