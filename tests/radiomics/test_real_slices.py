"""The automatic region and the features on real slices of BreastDCEDL."""

from __future__ import annotations

import math

import numpy as np
import pytest

from elsewhere.cohort.readers.breast_dcedl import read_breast_dcedl
from elsewhere.radiomics import automatic_region, case_features
from elsewhere.study.volumes import volumes_of

pytestmark = pytest.mark.real_data


@pytest.fixture(scope="module")
def held(data_dir):
    folder = data_dir / "mri" / "BreastDCEDL"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    cohort = read_breast_dcedl(folder)
    return cohort.cases, volumes_of(cohort)


def test_the_automatic_area_goes_with_the_experts(held):
    from scipy.stats import spearmanr

    cases, volumes = held
    part = cases[(cases["dataset"] == "ISPY2") & (cases["tumor_area_mm2"] > 0)].iloc[::2]
    found = []
    for case in part["case_id"]:
        before, early = (volumes.phase(f"ISPY2/{case}", at) for at in (0, 1))
        x, y, _ = volumes.grid(f"ISPY2/{case}").spacing_mm
        found.append(automatic_region(before, early, (x, y, 1.0), centred=True).sum() * x * y)
    expert = part["tumor_area_mm2"].to_numpy(dtype=float)
    assert spearmanr(found, expert).statistic > 0.6
    assert 0.8 < float(np.median(np.array(found) / expert)) < 1.6


def test_features_of_real_slices_are_finite_and_of_their_kind(held):
    cases, volumes = held
    for dataset in ("DUKE", "ISPY1", "ISPY2"):
        for case in cases[cases["dataset"] == dataset]["case_id"].iloc[:5]:
            values = case_features(volumes, f"{dataset}/{case}").values
            assert all(math.isfinite(v) for v in values.values()), case
            assert values["shape_flatness"] == 0.0
            shares = [values[f"kinetic_share_{k}"] for k in ("wash_out", "plateau", "persistent")]
            assert sum(shares) == pytest.approx(1.0)
            assert values["shape_max_diameter"] <= math.hypot(80.0, 80.0) + 2.0
