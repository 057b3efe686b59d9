"""What the leak of image ids is worth: the same study twice."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from elsewhere.analysis.study.id_readings import compare_id_readings
from elsewhere.errors import UserError
from worlds.picture_results import SMALL_SIZES, World, make_results, tables_of


def summary_of(results):
    return SimpleNamespace(tables=tables_of(results, "averages"))


def test_what_the_leak_of_image_ids_is_worth():
    patient = summary_of(make_results(models=("cnn",), seeds=(1, 2)))
    leaky = summary_of(make_results(World(models=("cnn",), seeds=(1, 2), home=0.92, drop=0.14)))
    got = compare_id_readings(patient, leaky)
    inside = got[(got["kind"] == "internal") & (got["dataset"] == "all")].iloc[0]
    a = patient.tables["scenarios"].query("kind == 'internal'").groupby("scenario")["auroc"].mean()
    b = leaky.tables["scenarios"].query("kind == 'internal'").groupby("scenario")["auroc"].mean()
    assert inside["worth"] == pytest.approx((b - a).mean()) and inside["worth"] > 0.02
    assert inside["smallest_p"] == 0.125
    outside = got[got["kind"] == "external"].iloc[0]
    assert abs(outside["worth"]) < 0.02
    assert set(got.loc[got["pairs_are"] == "configurations", "dataset"]) == set(SMALL_SIZES)
    with pytest.raises(UserError, match="share no scenario"):
        compare_id_readings(
            patient, SimpleNamespace(tables={"scenarios": leaky.tables["scenarios"].assign(model="x")})
        )
