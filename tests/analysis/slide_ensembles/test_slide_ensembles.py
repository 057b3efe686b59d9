"""Chosen ensembles against random ones, on worlds with a known truth (LN-16, ST-12); rates with golden values (LN-15)."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.analysis.generalise.ensembles import BOTH, ON_TUMOUR
from elsewhere.analysis.slide_ensembles.choice import ChoiceOptions, choose
from elsewhere.analysis.slide_ensembles.combine import VoteOptions, combine, patch_table
from elsewhere.analysis.slide_ensembles.null import random_sets, share_as_good
from elsewhere.analysis.slide_ensembles.published import printed_comparison, printed_tables, study_model
from elsewhere.analysis.slide_ensembles.rates import (
    MACRO,
    NULL_RATES,
    RATE_NAMES,
    rates_of,
    stage_codes,
    two_class,
)
from elsewhere.phantom.patch_scores import model_names
from elsewhere.phantom.slide_models import ModelWorld, steady_models
from elsewhere.simulation.coverage import binomial_interval
from worlds.slide_votes import votes_world

SMALL = ModelWorld(internal=14, external=10, models=7, folds=3, steady=2, side=96, spots=8)


def run(world: ModelWorld, seed: int, *, random: int = 99, margins=None):
    made = votes_world(world, seed, patch=16)
    table = patch_table(made.parts, made.cases["case_id"].tolist(), made.models, made.folds)
    options = ChoiceOptions(margins=margins or {"dice": "study", "fpr": "study"})
    choice = choose(made.models, made.cases, table, options, np.random.default_rng([seed, 1]))
    combined = combine(
        made.parts,
        made.models,
        made.folds,
        made.truth,
        choice,
        VoteOptions(random=random),
        np.random.default_rng([seed, 2]),
    )
    return choice, combined


def p_of(combined, kind: str, name: str, rate: str) -> float | None:
    """The share of random ensembles that are as good as the named one."""
    row = next((row for row in combined.null if (row.kind, row.name) == (kind, name)), None)
    if row is None:
        return None
    outcomes = combined.crossed[name] if kind == "cross-fitted" else combined.outcomes
    at = 0 if kind == "cross-fitted" else [(v.kind, v.name) for v in combined.variants].index((kind, name))
    value = float(outcomes.by_fold()[rate][at].mean())
    return share_as_good(value, row.rates[rate], higher_is_better=rate != "fpr", exact=row.sets.exact)


def test_random_ensembles_hold_the_values_of_the_listed_ones():
    """A single model's vote is itself: all ensembles of one member are the models."""
    choice, combined = run(SMALL, 3)
    sizes = {len(v.members) for v in combined.variants}
    assert 2 in sizes
    folds = combined.outcomes.by_fold()
    for row in combined.null:
        if row.kind != "ensemble" or not row.sets.exact:
            continue
        at = [v.name for v in combined.variants].index(row.name, len(SMALL_NAMES))
        word = sum(1 << m for m in combined.variants[at].members)
        mine = row.sets.words[0].tolist().index(word)
        for rate in NULL_RATES:
            assert row.rates[rate][mine] == pytest.approx(folds[rate][at].mean(), nan_ok=True)
    assert choice.passing


SMALL_NAMES = model_names(SMALL.models)


def test_fifteen_ensembles_by_the_studys_printed_members():
    made = votes_world(ModelWorld(internal=2, external=2, side=64, folds=1), 1)
    options = ChoiceOptions(members="study")
    choice = choose(made.models, made.cases, None, options, np.random.default_rng(0))
    sizes = {one.name: len(one.members) for one in choice.ensembles}
    assert len(sizes) == 15
    assert [
        sizes[n] for n in ("Generalising", "Non-Generalising (8)", "Generalising (T&N)", "Generalising (T)")
    ] == [8, 8, 2, 5]
    both = next(one for one in choice.ensembles if one.name == BOTH)
    assert both.is_and and set(both.members) == {"histopathology-0", "single-natural"}


def test_the_printed_tables_belong_to_our_names():
    tables = printed_tables()
    assert {study_model(name) for name in model_names(21)} == set(tables["model"])
    assert len(tables["ensemble"]) == 15
    assert tables["ensemble"]["nongeneralising"]["f1"] == 0.689
    assert tables["model"]["single-natural"]["sensitivity"] == 0.704
    assert printed_comparison([{"name": "unet", "kind": "model"}]) is None


def test_rates_of_figure_8_give_the_printed_averages():
    """Figure 8's sensitivity of 90.9 % and specificity of 62.2 %, 105 positive and 110 negative slides (LN-15)."""
    table = np.zeros((4, 4))
    table[MACRO, MACRO], table[MACRO, 0] = 95.4, 9.6
    table[0, MACRO], table[0, 0] = 41.6, 68.4
    rates = rates_of(table)
    assert rates["precision_mean_left_out"] == pytest.approx(0.787, abs=5e-4)
    assert rates["f1_mean_left_out"] == pytest.approx(0.758, abs=5e-4)
    table[1, MACRO], table[1, 0] = 22 * 0.378, 22 * 0.622
    rates = rates_of(table)
    assert rates["precision_mean_negative"] == pytest.approx(0.776, abs=1e-3)
    assert rates["f1_mean_negative"] == pytest.approx(0.748, abs=1e-3)
    assert two_class(table, "left-out").sum() == pytest.approx(215)
    assert set(rates) <= set(RATE_NAMES)


def test_stages_follow_from_the_longest_axis():
    axis = np.array([0.0, 0.1, 0.2, 0.2001, 2.0, 2.0001])
    assert stage_codes(np.array([0, 1, 1, 1, 1, 1]), axis).tolist() == [0, 1, 1, 2, 2, 3]


def test_names_are_exchanged_in_both_halves_at_once():
    on = np.array([True, False])
    made = random_sets([[0, 1, 2], [2, 3]], [on, ~on], 9, count=200, rng=np.random.default_rng(1))
    shared = np.bitwise_count(made.words[0] & made.words[1])
    assert not made.exact and (shared == 1).all()
    assert (np.bitwise_count(made.words[0]) == 3).all() and (np.bitwise_count(made.words[1]) == 2).all()


def test_steady_models_are_chosen_and_beat_random_ones():
    world = ModelWorld(internal=18, external=18, models=9, folds=3, steady=3, drop=3.0, side=96, spots=12)
    choice, combined = run(world, 5)
    names = model_names(9)
    steady = {names[m] for m in steady_models(world)}
    chosen = next(one for one in choice.ensembles if one.name == ON_TUMOUR)
    assert steady <= set(chosen.members) and len(chosen.members) < 7
    assert p_of(combined, "cross-fitted", ON_TUMOUR, "dice") <= 0.05
    assert p_of(combined, "cross-fitted", ON_TUMOUR, "fpr") <= 0.05


@pytest.mark.slow
def test_without_a_better_model_a_choice_on_other_patients_beats_chance_as_often_as_the_level_says():
    """120 worlds in which all models are equally good: p at most 0.1 in about 10 % of those that choose anybody."""
    found = {"dice": [], "fpr": []}
    for seed in range(120):
        world = ModelWorld(internal=14, external=10, models=9, folds=3, steady=0, drop=0.0, side=96, spots=8)
        _, combined = run(world, 1000 + seed)
        for rate, values in found.items():
            values += [
                p
                for row in combined.null
                if row.kind == "cross-fitted" and row.name == ON_TUMOUR
                and (p := p_of(combined, row.kind, row.name, rate)) is not None
            ]  # fmt: skip
    for rate, values in found.items():
        assert len(values) > 40, rate
        hits = int((np.array(values) <= 0.1).sum())
        assert binomial_interval(hits, len(values))[0] <= 0.1, (rate, hits, len(values))


@pytest.mark.slow
def test_with_steady_models_the_choice_on_other_patients_beats_chance_most_of_the_time():
    better = []
    for seed in range(30):
        world = ModelWorld(internal=18, external=18, models=9, folds=3, steady=3, drop=2.0, side=96, spots=12)
        _, combined = run(world, 2000 + seed)
        p = p_of(combined, "cross-fitted", ON_TUMOUR, "dice")
        better.append(p is not None and p <= 0.05)
    assert np.mean(better) > 0.6
