"""Many models' masks of slides combined: every model and ensemble scored, and the choice compared with chance (LN-16)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.generalise.ensembles import RANDOM_ENSEMBLES
from elsewhere.analysis.slide_ensembles.choice import Choice, CrossFitted
from elsewhere.analysis.slide_ensembles.null import NullCounts, NullSets, random_sets
from elsewhere.analysis.slide_ensembles.parts import Report, VoteParts
from elsewhere.analysis.slide_ensembles.rates import Outcomes, stage_codes, worst_code
from elsewhere.analysis.slide_ensembles.reading import SlideVotes
from elsewhere.ensembles.cell_votes import WordArray, member_words
from elsewhere.ensembles.pixel_votes import TIE_RULES
from elsewhere.predictions.stages import STAGES

__all__ = [
    "TIE_RULES",
    "Combined",
    "NullRow",
    "Variant",
    "VoteOptions",
    "combine",
    "patch_table",
    "stage_of_slides",
]
FloatArray = npt.NDArray[np.float64]


def patch_table(
    parts: VoteParts, cases: Sequence[str], models: Sequence[str], folds: Sequence[str]
) -> pd.DataFrame:
    """Make the table of patch sums from the masks themselves, on patches of 128 microns (LN-02, LN-10).

    Args:
        parts: The parts of all slides and folds.
        cases: The ids of the slides.
        models: The models.
        folds: The folds.

    Returns:
        One row per slide, model and fold: `n_tumour`, `sum_dice`, `n_normal`, `sum_fpr`; none for a missing mask.
    """
    rows = []
    for (i, f), _ in parts.paths.items():
        made = parts.read(i, f)
        for m in np.flatnonzero(made.votes.present).tolist():
            rows.append(
                (
                    cases[i],
                    models[m],
                    folds[f],
                    made.n_tumour,
                    made.sum_dice[m],
                    made.n_normal,
                    made.sum_fpr[m],
                )
            )
    return pd.DataFrame(
        rows, columns=["case_id", "model", "fold", "n_tumour", "sum_dice", "n_normal", "sum_fpr"]
    )


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A model, or an ensemble, that is scored on every slide.

    Attributes:
        name: Its name.
        kind: 'model' or 'ensemble'.
        members: The numbers of its members.
    """

    name: str
    kind: str
    members: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class NullRow:
    """An ensemble, or a cross-fitted rule, and the random ensembles that it is compared with.

    Attributes:
        name: Its name.
        kind: 'ensemble', or 'cross-fitted'.
        sets: The random ensembles.
        rates: The rates of the random ones, by name.
    """

    name: str
    kind: str
    sets: NullSets
    rates: dict[str, FloatArray]


@dataclass(frozen=True, kw_only=True)
class Combined:
    """What all models and ensembles say of all slides.

    Attributes:
        variants: The models, then the ensembles.
        outcomes: What each says.
        crossed: The cross-fitted rules that have members, each as outcomes of one variant.
        null: The random ensembles of each ensemble and cross-fitted rule.
    """

    variants: tuple[Variant, ...]
    outcomes: Outcomes
    crossed: dict[str, Outcomes]
    null: tuple[NullRow, ...]


@dataclass(frozen=True, kw_only=True)
class VoteOptions:
    """How ensembles vote.

    Attributes:
        rule: The tie rule: 'strict' or 'mean-probability'.
        random: How many random ensembles of each size there are; 0 for none.
    """

    rule: str = "strict"
    random: int = RANDOM_ENSEMBLES


def combine(
    parts: VoteParts,
    models: Sequence[str],
    folds: Sequence[str],
    truth: npt.NDArray[np.int8],
    choice: Choice,
    options: VoteOptions,
    rng: np.random.Generator,
    *,
    progress: Report | None = None,
) -> Combined:
    """Let every model and ensemble vote on every slide and fold, and likewise the random ensembles.

    Args:
        parts: The votes.
        models: The models.
        folds: The folds.
        truth: The code of the true stage of each slide; -1 where it is not known.
        choice: The ensembles.
        options: How they vote.
        rng: The generator of the random ensembles.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        What each says.

    Raises:
        UserError: The rule needs probabilities, and the masks hold none.
    """
    number = {name: m for m, name in enumerate(models)}

    def numbers(members: Sequence[str]) -> tuple[int, ...]:
        return tuple(number[name] for name in members)

    variants = [Variant(name=name, kind="model", members=(m,)) for m, name in enumerate(models)]
    variants += [
        Variant(name=one.name, kind="ensemble", members=numbers(one.members)) for one in choice.ensembles
    ]
    crossed = [one for one in choice.crossed if one.members]
    halves = [
        Variant(name=one.name, kind="half", members=numbers(half)) for one in crossed for half in one.members
    ]
    listed = member_words([one.members for one in (*variants, *halves)])
    null = _null_sets(variants, crossed, numbers, len(models), truth.size, options, rng)
    counts = {
        key: NullCounts(sets.words[0].size, len(folds))
        for key, sets in null.items()
        if key == _owner(null, key)
    }
    shape = (listed.size, len(folds), truth.size)
    outcomes = Outcomes(
        truth=truth,
        stage=np.zeros(shape, dtype=np.int8),
        dice=np.full(shape, np.nan),
        fpr=np.full(shape, np.nan),
        fpr_tissue=np.full(shape, np.nan),
    )
    for done, (i, f) in enumerate(parts.paths):
        made = parts.read(i, f)
        wanted = [(key, k) for key in counts for k, on in enumerate(null[key].slides) if on[i]]
        words, where = np.unique(
            np.concatenate([listed, *(null[key].words[k] for key, k in wanted)]), return_inverse=True
        )
        said = _say(made, words, int(truth[i]), rule=options.rule)
        mine = where[: listed.size]
        outcomes.stage[:, f, i] = said.stage[mine]
        for name in ("dice", "fpr", "fpr_tissue"):
            values = getattr(said, name)
            if values is not None:
                getattr(outcomes, name)[:, f, i] = values[mine]
        begin = listed.size
        for key, k in wanted:
            at = where[begin : begin + null[key].words[k].size]
            begin += at.size
            counts[key].add(
                f,
                int(truth[i]),
                said.stage[at],
                None if said.dice is None else said.dice[at],
                None if said.fpr is None else said.fpr[at],
            )
        if progress is not None:
            progress("slides and folds voted", done + 1, len(parts.paths))
    joined = {}
    for k, one in enumerate(crossed):
        first = len(variants) + 2 * k
        second_scores = one.scored[1]
        joined[one.name] = _only(
            outcomes.joined(first, first + 1, second_scores), one.scored[0] | second_scores
        )
    rates = {key: made.rates() for key, made in counts.items()}
    rows = tuple(
        NullRow(name=name, kind=kind, sets=sets, rates=rates[_owner(null, (kind, name))])
        for (kind, name), sets in null.items()
    )
    whole = slice(0, len(variants))
    return Combined(
        variants=tuple(variants),
        outcomes=replace(
            outcomes,
            stage=outcomes.stage[whole],
            dice=outcomes.dice[whole],
            fpr=outcomes.fpr[whole],
            fpr_tissue=outcomes.fpr_tissue[whole],
        ),
        crossed=joined,
        null=rows,
    )


def _null_sets(
    variants: Sequence[Variant],
    crossed: Sequence[CrossFitted],
    numbers: Callable[[Sequence[str]], tuple[int, ...]],
    models: int,
    slides: int,
    options: VoteOptions,
    rng: np.random.Generator,
) -> dict[tuple[str, str], NullSets]:
    """The random ensembles of each row; ensembles of one size share theirs."""
    if options.random == 0:
        return {}
    everywhere = np.ones(slides, dtype=bool)
    of_size: dict[int, NullSets] = {}
    out: dict[tuple[str, str], NullSets] = {}
    for one in variants:
        size = len(one.members)
        if one.kind == "ensemble" and size < models:
            if size not in of_size:
                of_size[size] = random_sets(
                    [range(size)], [everywhere], models, count=options.random, rng=rng
                )
            out["ensemble", one.name] = of_size[size]
    for rule in crossed:
        members = [numbers(half) for half in rule.members]
        out["cross-fitted", rule.name] = random_sets(
            members, rule.scored, models, count=options.random, rng=rng
        )
    return out


def _owner(null: dict[tuple[str, str], NullSets], key: tuple[str, str]) -> tuple[str, str]:
    """The first row with the same random ensembles, which are counted once."""
    return next(other for other, sets in null.items() if sets is null[key])


def _only(outcomes: Outcomes, slides: npt.NDArray[np.bool_]) -> Outcomes:
    """Leave out the slides that no member set scores."""

    def kept(values: FloatArray) -> FloatArray:
        return np.where(slides, values, np.nan)

    return Outcomes(
        truth=np.where(slides, outcomes.truth, -1).astype(np.int8),
        stage=outcomes.stage,
        dice=kept(outcomes.dice),
        fpr=kept(outcomes.fpr),
        fpr_tissue=kept(outcomes.fpr_tissue),
    )


@dataclass(frozen=True, kw_only=True)
class _Said:
    """What ensembles say of one slide."""

    stage: npt.NDArray[np.int8]
    dice: FloatArray | None
    fpr: FloatArray | None
    fpr_tissue: FloatArray | None


def _say(made: SlideVotes, words: WordArray, truth: int, *, rule: str) -> _Said:
    votes = made.votes
    found = votes.measure(words, rule=rule)
    stage = stage_codes(found.objects, found.axis * votes.cell_um / 1000)
    if truth >= 0:
        stage[found.lost] = worst_code(truth)
    if not made.known:
        return _Said(stage=stage, dice=None, fpr=None, fpr_tissue=None)
    tumour = votes.n_truth
    if tumour:
        said = found.true_positive + found.false_positive
        dice = 2 * found.true_positive / (tumour + said)
        return _Said(stage=stage, dice=np.where(found.lost, 0.0, dice), fpr=None, fpr_tissue=None)
    fpr = np.where(found.lost, 1.0, found.false_positive / votes.n_cells)
    on_tissue = None
    if votes.n_tissue:
        on_tissue = np.where(found.lost, 1.0, found.false_positive_tissue / votes.n_tissue)
    return _Said(stage=stage, dice=None, fpr=fpr, fpr_tissue=on_tissue)


def stage_of_slides(parts: VoteParts, stated: Sequence[str | None]) -> npt.NDArray[np.int8]:
    """Code the true stage of each slide: the cohort's, else that of its truth mask.

    Args:
        parts: The parts of all slides and folds.
        stated: The stage of each slide in the cohort; None where it has none.

    Returns:
        The codes; -1 where the stage is not known.
    """
    out = np.full(len(stated), -1, dtype=np.int8)
    for i, stage in enumerate(stated):
        found = stage if stage is not None else parts.read(i, 0).truth_stage
        if found is not None:
            out[i] = STAGES.index(found)
    return out
