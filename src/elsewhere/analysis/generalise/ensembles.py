"""Which models are members of an ensemble, and what the choice is worth next to random members (LN-16).

The study's fifteen ensembles follow from the models' names and from which of them pass. It chose the members on the
slides on which the ensembles were then scored. Here the members are also chosen on other patients: half of the patients
of each domain choose, the other half scores, and the reverse (ST-12). The null is a thousand random ensembles of the
same size. Without masks no vote can be counted: what is compared is the mean of the members, which tells whether
the choice of members is worth anything; `ensembles.pixel_votes` votes where there are masks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.analysis.generalise.settings import STUDY, Domains, GeneraliseOptions
from elsewhere.analysis.generalise.verdicts import by_fold, sides_of
from elsewhere.ensembles.pixel_votes import is_and
from elsewhere.scoring.patch_scores import DICE, FPR, PATCH_METRICS, PatchMetric, PatchScores
from elsewhere.statistics.bootstrap_weights import generator_for
from elsewhere.statistics.evaluator import FloatArray

RANDOM_ENSEMBLES = 1000
NON_GENERALISING = 8
EITHER, BOTH, ON_TUMOUR, ON_NORMAL = (
    "Generalising",
    "Generalising (T&N)",
    "Generalising (T)",
    "Generalising (N)",
)
_NAME = re.compile(r"^(?P<clustering>.+)[-_ /](?P<share>\d{1,3}|natural)\s*%?$", re.IGNORECASE)
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """An ensemble of models.

    Attributes:
        name: Its name.
        rule: How its members are chosen, in words.
        members: The members.
        is_and: Whether the strict vote of its two members is an AND.
        chosen_on_data: Whether the members were chosen by their results.
    """

    name: str
    rule: str
    members: tuple[str, ...]
    is_and: bool = False
    chosen_on_data: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name.

        Returns:
            A new dictionary.
        """
        return asdict(self)


def parse_name(name: str) -> tuple[str, str] | None:
    """Read the clustering and the share of partial-tumour patches from a model's name.

    Args:
        name: The name, CLUSTERING-SHARE.

    Returns:
        The clustering and the share, a number or `natural`; None for other names.

    Example:
        >>> parse_name("ImageNet-Natural%"), parse_name("unet")
        (('ImageNet', 'natural'), None)
    """
    found = _NAME.match(name)
    return (found["clustering"], found["share"].lower()) if found else None


def _ensemble(name: str, rule: str, members: Sequence[str], *, chosen: bool = False) -> Ensemble:
    return Ensemble(
        name=name, rule=rule, members=tuple(members), is_and=is_and(members), chosen_on_data=chosen
    )


def study_ensembles(
    models: Sequence[str],
    *,
    on_tumour: Sequence[str],
    on_normal: Sequence[str],
    rng: np.random.Generator,
    size: int = NON_GENERALISING,
) -> list[Ensemble]:
    """List the ensembles of the lymph-node study.

    Models are named CLUSTERING-SHARE, such as `imagenet-20` or `single-natural`; models with other names belong to no
    ensemble by share or clustering.

    Args:
        models: The models.
        on_tumour: Those that generalise on tumour patches.
        on_normal: Those that generalise on normal patches.
        rng: The generator of the random draw among the non-generalising models.
        size: How many non-generalising models are drawn, at most.

    Returns:
        Generalising (either), non-generalising, T&N, T, N, one per share, one per clustering: those that have members.

    Example:
        >>> names = [f"{c}-{s}" for c in ("single", "imagenet") for s in ("0", "natural")]
        >>> made = study_ensembles(names, on_tumour=names[:2], on_normal=names[1:3], rng=np.random.default_rng(0))
        >>> [one.name for one in made][:4], len(made)
        (['Generalising', 'Non-Generalising (1)', 'Generalising (T&N)', 'Generalising (T)'], 9)
    """
    passing = {*on_tumour, *on_normal}
    others = [name for name in models if name not in passing]
    drawn = (
        sorted(rng.choice(len(others), size=min(size, len(others)), replace=False).tolist()) if others else []
    )
    lost = [others[i] for i in drawn]
    rows = [
        _ensemble(
            EITHER,
            "equivalent on tumour or on normal patches",
            [m for m in models if m in passing],
            chosen=True,
        ),
        _ensemble(
            f"Non-Generalising ({len(lost)})",
            f"drawn at random among the {len(others)} that are equivalent on neither",
            lost,
            chosen=True,
        ),
        _ensemble(
            BOTH,
            "equivalent on tumour and on normal patches",
            [m for m in models if m in on_tumour and m in on_normal],
            chosen=True,
        ),
        _ensemble(
            ON_TUMOUR, "equivalent on tumour patches", [m for m in models if m in on_tumour], chosen=True
        ),
        _ensemble(
            ON_NORMAL, "equivalent on normal patches", [m for m in models if m in on_normal], chosen=True
        ),
    ]
    parsed = {name: found for name in models if (found := parse_name(name))}
    shares = sorted({share for _, share in parsed.values()}, key=lambda s: (s != "natural", s.zfill(3)))
    for share in shares:
        title = "Natural %" if share == "natural" else f"{int(share)} %"
        members = [name for name, found in parsed.items() if found[1] == share]
        rows.append(_ensemble(title, "share of partial-tumour patches", members))
    for clustering in sorted({found for found, _ in parsed.values()}):
        members = [name for name, found in parsed.items() if found[0] == clustering]
        rows.append(_ensemble(clustering, "clustering", members))
    return [row for row in rows if row.members]


def passing_models(
    scores: PatchScores,
    metric: PatchMetric,
    domains: Domains,
    chosen: BoolArray,
    *,
    margin: float | str,
    alpha: float,
) -> list[str]:
    """List the models that pass the study's test by fold.

    Args:
        scores: The scores.
        metric: The metric.
        domains: Which slides are internal and external.
        chosen: The parts that count.
        margin: The margin, or 'study'.
        alpha: The level of each one-sided test.

    Returns:
        The names.
    """
    made = by_fold(
        scores.fold_means(metric, chosen & domains.internal),
        scores.fold_means(metric, chosen & domains.external),
        margin=margin,
        alpha=alpha,
    )
    return [
        name
        for name, test in zip(scores.variants["model"], made.tests, strict=True)
        if test is not None and test.equivalent
    ]


def halves(scores: PatchScores, domains: Domains, rng: np.random.Generator) -> tuple[BoolArray, BoolArray]:
    """Divide the patients of each domain into two halves at random.

    Args:
        scores: The scores.
        domains: Which slides are internal and external.
        rng: The generator of the draw.

    Returns:
        The parts of each half.
    """
    first = np.zeros(len(scores.parts), dtype=bool)
    for side in (domains.internal, domains.external):
        people = np.unique(scores.patient_of_part[side])
        drawn = rng.permutation(people)[: people.size // 2]
        first |= side & np.isin(scores.patient_of_part, drawn)
    return first, ~first & (domains.internal | domains.external)


def ensembles_of(scores: PatchScores, domains: Domains, options: GeneraliseOptions) -> dict[str, Any]:
    """Choose the ensembles, on all patients and on other ones, and compare them with random ones.

    Args:
        scores: The scores.
        domains: Which slides are internal and external.
        options: The margins and the seed.

    Returns:
        The ensembles by the study's rule, and per chosen rule the mean of the members chosen on all patients and
        cross-fitted, each against random ensembles of the same size.
    """
    everyone = domains.internal | domains.external
    rng = generator_for("ensembles", options.seed)
    models = scores.models

    def chosen_on(parts: BoolArray) -> tuple[list[str], list[str]]:
        found = [
            passing_models(
                scores,
                metric,
                domains,
                parts,
                margin=options.margins.get(metric.name, STUDY),
                alpha=options.alpha,
            )
            for metric in PATCH_METRICS
        ]
        return found[0], found[1]

    on_tumour, on_normal = chosen_on(everyone)
    listed = study_ensembles(models, on_tumour=on_tumour, on_normal=on_normal, rng=rng)
    first, second = halves(scores, domains, rng)
    crossed: dict[str, list[tuple[tuple[str, ...], BoolArray]]] = {}
    for choose, score in ((first, second), (second, first)):
        tumour, normal = chosen_on(choose)
        for one in study_ensembles(models, on_tumour=tumour, on_normal=normal, rng=rng):
            if one.chosen_on_data:
                crossed.setdefault(one.name, []).append((one.members, score))
    rows = []
    for one in listed:
        rows.append({**one.to_dict(), "members_scored": "the same patients"} | _against_null(
            scores, domains, [(one.members, everyone)], rng
        ))  # fmt: skip
    for name in (EITHER, BOTH, ON_TUMOUR, ON_NORMAL):
        halved = crossed.get(name, [])
        if len(halved) == 2:
            rows.append(
                {
                    "name": name,
                    "rule": "members chosen on the other half of the patients",
                    "members": [" + ".join(members) for members, _ in halved],
                    "is_and": any(is_and(members) for members, _ in halved),
                    "chosen_on_data": True,
                    "members_scored": "other patients",
                }
                | _against_null(scores, domains, halved, rng)
            )
    return {
        "rows": rows,
        "random_ensembles": RANDOM_ENSEMBLES,
        "note": "The mean of the members' external results, not their vote: a vote needs masks. p: the share of random "
        "ensembles of the same size that are at least as good. A choice on the patients that are then scored is "
        "optimistic; the rows of other patients are not.",
    }


def _against_null(
    scores: PatchScores,
    domains: Domains,
    chosen: Sequence[tuple[Sequence[str], BoolArray]],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """The members' mean on external patches, averaged over the given parts, and random ensembles likewise."""
    number = {name: i for i, name in enumerate(scores.models)}
    out: dict[str, Any] = {}
    for metric in (DICE, FPR):
        values = [
            sides_of(scores, metric, replace(domains, external=domains.external & parts), parts)[1].value
            for _, parts in chosen
        ]
        mine = float(
            np.mean(
                [
                    v[[number[m] for m in members]].mean()
                    for v, (members, _) in zip(values, chosen, strict=True)
                ]
            )
        )
        null = np.mean(
            [_random_means(v, len(members), rng) for v, (members, _) in zip(values, chosen, strict=True)],
            axis=0,
        )
        better = null >= mine - 1e-12 if metric.higher_is_better else null <= mine + 1e-12
        lo, hi = np.quantile(null, [0.025, 0.975])
        out |= {
            metric.name: mine,
            f"{metric.name}_random": float(null.mean()),
            f"{metric.name}_random_lo": float(lo),
            f"{metric.name}_random_hi": float(hi),
            f"{metric.name}_p": float((better.sum() + 1) / (null.size + 1)),
        }
    return out


def _random_means(values: FloatArray, size: int, rng: np.random.Generator) -> FloatArray:
    """Means of random sets of models, as one product of a matrix of members and the models' values."""
    order = rng.random((RANDOM_ENSEMBLES, values.size)).argsort(axis=1)[:, :size]
    member = np.zeros((RANDOM_ENSEMBLES, values.size))
    np.put_along_axis(member, order, 1.0 / size, axis=1)
    return np.asarray(member @ values)
