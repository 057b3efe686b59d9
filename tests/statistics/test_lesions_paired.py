"""The paired comparison of lesions: exact in small cases, its level and its power by simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from elsewhere.errors import UserError
from elsewhere.statistics.found_lesions import found_lesions
from elsewhere.statistics.lesions_paired import (
    DRAWN,
    EXACT,
    compare_by_stratum,
    compare_pairs,
    pairs_of,
)
from elsewhere.statistics.resampling import Resampling
from worlds.found_worlds import two_detectors

NO_DRAWS = Resampling(key="paired", resamples=0)


def of_patients(found_a, found_b, *, per_patient=1):
    """Two models without false positives: lesion i is of patient i // per_patient."""
    ids = [f"v{i}" for i in range(len(found_a))]
    events = {}
    for name, found in (("A", found_a), ("B", found_b)):
        kinds = np.where(found, "tp", "fn")
        scores = np.where(found, 0.5, np.nan)
        events[name] = pd.DataFrame({"case_id": ids, "lesion_id": ids, "score": scores, "kind": kinds})
    patients = pd.Series([f"P{i // per_patient}" for i in range(len(ids))], index=ids)
    return found_lesions(events, volumes=len(ids)), patients


def by_hand(events, patients, *, budget):
    """All exchanges of a small world, written out: scores become costs, patients are swapped, thresholds found anew."""
    volumes = len(patients)
    rows = []
    for m, table in enumerate(events.values()):
        false = table.loc[table["kind"] == "fp", "score"].to_numpy()
        for row in table.itertuples():
            rows.append((m, patients[row.case_id], row.kind, int((false >= row.score).sum())))
    people = sorted({row[1] for row in rows})

    def gap(swapped):
        found = [0, 0]
        for m in (0, 1):
            own = [(cost, kind) for k, who, kind, cost in rows if (k ^ (who in swapped)) == m]
            spent = [cost for cost, kind in own if kind == "fp"]
            for cost, kind in own:
                if kind == "tp" and sum(x <= cost for x in spent) <= budget * volumes:
                    found[m] += 1
        return found[0] - found[1]

    observed = gap(set())
    every = [gap(set(some)) for k in range(len(people) + 1) for some in itertools.combinations(people, k)]
    return observed, np.mean([abs(x) >= abs(observed) for x in every])


def test_one_lesion_per_patient_is_the_exact_test_of_mcnemar():
    a = np.array([True] * 7 + [False] * 1 + [True] * 2)
    b = np.array([False] * 7 + [True] * 1 + [True] * 2)
    row = compare_pairs(*of_patients(a, b), budget=1.0, resampling=NO_DRAWS)[0]
    assert (row.both, row.only_a, row.only_b, row.neither) == (2, 7, 1, 0)
    assert row.p == pytest.approx(stats.binomtest(7, 8).pvalue)
    assert row.p_method == EXACT
    assert row.difference == pytest.approx(0.6)


def test_lesions_of_one_patient_count_as_one_exchange():
    a, b = np.array([True] * 8), np.array([False] * 8)
    found, patients = of_patients(a, b, per_patient=2)
    row = compare_pairs(found, patients, budget=1.0, resampling=NO_DRAWS)[0]
    assert row.discordant_patients == 4
    assert row.p == pytest.approx(2 / 2**4)


@pytest.mark.parametrize("seed", range(4))
def test_exchanges_with_false_positives_equal_those_written_out(seed):
    events, patients = two_detectors(
        np.random.default_rng(seed),
        patients=6,
        volumes_each=2,
        share_positive=0.7,
        false_per_volume=1.5,
        gain=0.6,
    )
    found = found_lesions(events, volumes=len(patients))
    row = compare_pairs(found, patients, budget=0.75, resampling=NO_DRAWS)[0]
    observed, p = by_hand(events, patients, budget=0.75)
    assert row.only_a - row.only_b == observed
    assert row.p is None if row.only_a + row.only_b == 0 else row.p == pytest.approx(p)


def test_models_exchanged_give_the_same_p_value_and_a_monotone_score_changes_nothing():
    events, patients = two_detectors(np.random.default_rng(5), gain=0.5)
    draws = Resampling(key="k", resamples=199)
    made = compare_pairs(found_lesions(events, volumes=200), patients, budget=2.0, resampling=draws)[0]
    warped = {"A": events["A"].assign(score=np.exp(events["A"]["score"])), "B": events["B"]}
    same = compare_pairs(found_lesions(warped, volumes=200), patients, budget=2.0, resampling=draws)[0]
    assert same == made
    turned = {"B": events["B"], "A": events["A"]}
    other = compare_pairs(found_lesions(turned, volumes=200), patients, budget=2.0, resampling=draws)[0]
    assert other.p == made.p and other.difference == -made.difference
    assert (other.only_a, other.only_b) == (made.only_b, made.only_a)
    assert made.p_method == DRAWN and made.lo < made.difference < made.hi


def test_a_model_and_its_copy():
    events, patients = two_detectors(np.random.default_rng(1))
    twins = {"A": events["A"], "copy": events["A"]}
    row = compare_pairs(
        found_lesions(twins, volumes=200), patients, budget=2.0, resampling=Resampling(key="k", resamples=50)
    )[0]
    assert row.only_a == row.only_b == 0 and row.p is None and row.p_holm is None
    assert row.difference == 0.0 and (row.lo, row.hi) == (0.0, 0.0)


def test_no_boxes_at_all_and_boxes_of_unlisted_volumes():
    events, patients = two_detectors(np.random.default_rng(2), patients=30)
    nothing = events["A"].iloc[:24].assign(score=np.nan, kind="fn")
    stray = pd.DataFrame({"case_id": ["X/1"] * 30, "lesion_id": None, "score": 9.0, "kind": "fp"})
    three = {"A": events["A"], "none": nothing, "stray": pd.concat([events["A"], stray], ignore_index=True)}
    rows = compare_pairs(
        found_lesions(three, volumes=120), patients, budget=1.0, resampling=Resampling(key="k", resamples=99)
    )
    against = {(row.a, row.b): row for row in rows}
    assert against["A", "none"].only_b == 0 and against["A", "none"].p < 0.1
    # The stray boxes spend a quarter of the budget of the third model.
    assert against["A", "stray"].only_a >= 0 and against["A", "stray"].only_b == 0


def test_pairs_against_a_baseline_that_is_not_there():
    with pytest.raises(UserError, match="model"):
        pairs_of(["A", "B"], "C")


def test_groups_are_corrected_together():
    events, patients = two_detectors(np.random.default_rng(8), patients=60, gain=1.0)
    found = found_lesions(events, volumes=240)
    view = found.lesions["case_id"].str[-1]
    draws = Resampling(key="k", resamples=199)
    rows = compare_by_stratum(found, patients, {"view": view}, pair=("A", "B"), budget=2.0, resampling=draws)
    whole = compare_pairs(found, patients, budget=2.0, resampling=draws)[0]
    assert [row.level for row in rows] == ["0", "1"]
    assert sum(row.only_a for row in rows) == whole.only_a
    assert sum(row.lesions for row in rows) == whole.lesions
    smallest = min(row.p for row in rows)
    assert min(row.p_holm for row in rows) == pytest.approx(min(1.0, 2 * smallest))
    assert compare_by_stratum(found, patients, {}, pair=("A", "B"), budget=2.0, resampling=draws) == []


WORLDS = {
    "few patients": {"patients": 40, "share_positive": 0.5},
    "uneven false positives": {"patients": 60, "share_positive": 0.4, "spread_of_false": 0.8},
    "many patients": {"patients": 200, "share_positive": 0.2, "spread_of_false": 0.5},
}


def rejections(world, *, times, gain=0.0, resamples=199):
    rng = np.random.default_rng(20)
    rejected = covered = 0
    for number in range(times):
        events, patients = two_detectors(rng, gain=gain, **world)
        found = found_lesions(events, volumes=len(patients))
        row = compare_pairs(
            found, patients, budget=2.0, resampling=Resampling(key=str(number), resamples=resamples)
        )[0]
        rejected += row.p is not None and row.p <= 0.05
        covered += row.lo <= 0.0 <= row.hi
    return rejected / times, covered / times


def test_small_form_of_the_level_and_the_power():
    level, _ = rejections(WORLDS["few patients"], times=120, resamples=99)
    power, _ = rejections({**WORLDS["few patients"], "patients": 80}, times=40, gain=1.2, resamples=99)
    assert stats.binomtest(round(level * 120), 120, 0.05, alternative="greater").pvalue > 0.01
    assert power > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_the_level_holds_and_the_power_grows(name):
    times = 1000
    level, covered = rejections(WORLDS[name], times=times)
    assert stats.binomtest(round(level * times), times, 0.05, alternative="greater").pvalue > 0.01
    assert covered > 0.92
    powers = [rejections(WORLDS[name], times=200, gain=gain)[0] for gain in (0.3, 0.7, 1.2)]
    assert powers[0] < powers[1] < powers[2] and powers[2] > 0.8
