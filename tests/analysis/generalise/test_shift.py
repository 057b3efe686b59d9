"""Worlds with one planted shift: the decomposition finds it, and nothing else (LN-22)."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.commands.slide_rerender import rerender
from elsewhere.commands.slide_shift import ShiftSettings, shift
from elsewhere.predictions.rendered_patches import open_rendered, predict_versions
from worlds.shifted_patches import WORLDS, PlantedWorld, arrays, model_of


def divided(world, folder, *, patients, per_slide, seed, training=8):
    """The rows of the Brier score of a planted world."""
    arrays(world, folder / "patches", patients=patients, per_slide=per_slide, seed=seed)
    rerender(folder / "patches", out=folder / "rendered")
    model = model_of(world, patients=training, seed=seed + 100)
    predict_versions(open_rendered(folder / "rendered"), model, folder / "predictions")
    made = shift(folder / "rendered", folder / "predictions", settings=ShiftSettings(resamples=200))
    return [row for row in made.summary["shift"]["rows"] if row["metric"] == "brier"]


def only(rows, quantity, intervention=""):
    return next(row for row in rows if (row["quantity"], row["intervention"]) == (quantity, intervention))


def others(world, rows):
    """The intervals of what was not planted hold 0."""
    parts = [row for row in rows if row["quantity"] == "part" and row["intervention"] != world.part]
    assert len(parts) == 3
    return all(row["lo"] <= 0 <= row["hi"] for row in parts)


def reliable(world, rows):
    """Whether the drop and the planted part both lie above 0."""
    return only(rows, "drop")["lo"] > 0 and only(rows, "part", world.part)["lo"] > 0


@pytest.mark.parametrize("world", WORLDS[:1], ids=lambda world: world.name)
def test_a_planted_shift_is_found(world, tmp_path):
    rows = divided(world, tmp_path, patients=4, per_slide=5, seed=1, training=4)
    left = only(rows, "left over")
    assert reliable(world, rows) and others(world, rows)
    assert only(rows, "part", world.part)["share"] >= 0.8
    assert left["lo"] <= 0 <= left["hi"]


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_planted_shift_has_at_least_80_percent_of_the_drop(world, tmp_path):
    drops, parts, found = [], [], 0
    for seed in (1, 2, 3):
        rows = divided(world, tmp_path / str(seed), patients=10, per_slide=8, seed=seed)
        assert others(world, rows)
        found += reliable(world, rows)
        drops.append(only(rows, "drop")["value"])
        parts.append(only(rows, "part", world.part)["value"])
    assert found >= 1  # a model does not suffer from every shift in every world
    assert np.sum(parts) / np.sum(drops) >= 0.8


@pytest.mark.slow
def test_two_laboratories_that_are_alike_have_nothing_to_divide(tmp_path):
    world = PlantedWorld("nothing", "")
    rows = divided(world, tmp_path, patients=10, per_slide=8, seed=1)
    assert only(rows, "drop")["value"] == 0
    assert all(row["direction"] == "not applied" for row in rows if row["quantity"] == "part")
