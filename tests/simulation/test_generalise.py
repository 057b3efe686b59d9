"""Coverage of the difference between two domains by patient, and by fold (LN-20, ST-11, ST-13)."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.phantom.patch_scores import PatchWorld, draw_patch_scores
from elsewhere.simulation.generalise import CELLS, DomainsCell, domain_promises


@pytest.mark.parametrize("external", [False, True])
def test_the_integrated_truth_is_that_of_a_large_draw(external):
    world = PatchWorld(
        internal=40_000, external=40_000, models=1, folds=1, model_spread=0, drop=0.5, fpr_ratio=2.0
    )
    world = PatchWorld(**{**vars(world), "fold_spread": 0.0})
    table = draw_patch_scores(world, np.random.default_rng(0))
    part = table[(table["domain"] == "OOD") == external]
    assert part["sum_dice"].sum() / part["n_tumour"].sum() == pytest.approx(
        world.true_dice(external=external), abs=0.01
    )
    assert part["sum_fpr"].sum() / part["n_normal"].sum() == pytest.approx(
        world.true_fpr(external=external), rel=0.1
    )


def test_five_slides_hold_two_fifths_of_the_tumour_patches():
    shares = []
    for seed in range(40):
        table = draw_patch_scores(PatchWorld(models=1, folds=1), np.random.default_rng(seed))
        n = np.sort(table["n_tumour"])
        shares.append(n[-5:].sum() / n.sum())
    assert 0.35 < np.mean(shares) < 0.5


def test_by_patient_covers_where_by_fold_does_not():
    cell = DomainsCell(world=PatchWorld(internal=40, external=20, models=1, model_spread=0.0, drop=0.3))
    made = {row.event.rpartition(", ")[2]: row for row in domain_promises(replicates=60, cells=[cell])}
    by_patient, by_fold = made["dice: by patient"], made["dice: by fold (Welch)"]
    assert by_patient.nominal == 0.9 and by_patient.holds and by_patient.rate >= 0.8
    assert by_fold.nominal is None and by_fold.rate < by_patient.rate - 0.2


@pytest.mark.slow
def test_every_promise_of_the_page_holds():
    rows = domain_promises(replicates=500, processes=2)
    kept = [row for row in rows if row.nominal is not None]
    assert len(kept) == 5 + 2 * 3
    assert [f"{row.event}, {row.setting}: {row.rate}" for row in kept if not row.holds] == []
    fold = [row for row in rows if "by fold" in row.event]
    assert all(row.rate < 0.8 for row in fold)


def test_the_cells_are_those_that_the_study_asks_for():
    sizes = {(cell.world.internal, cell.world.external) for cell in CELLS}
    assert sizes == {(12, 12), (40, 20), (169, 68)}
    assert sum(cell.better for cell in CELLS) == 3
