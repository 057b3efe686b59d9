"""Synthetic ultrasound hospitals: the truth is the truth, the classes and the sites differ as asked for."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from elsewhere.errors import UserError
from elsewhere.phantom.ultrasound import (
    LAYOUTS,
    Hospital,
    compactness,
    hospital_from,
    pictures,
    plan,
    render,
)
from elsewhere.phantom.ultrasound_tissue import Scanner, draw_lesion, field, speckle

SMALL = {"patients": 24, "scale": 0.5}


def auroc(drawn, score):
    return roc_auc_score([p.plan.label == "malignant" for p in drawn], [score(p) for p in drawn])


def shadow(picture):
    """How much darker it is behind the lesion than beside that."""
    x0, _, x1, y1 = picture.box
    w, rows = x1 - x0, slice(y1, y1 + 25)
    beside = np.concatenate(
        [picture.grey[rows, max(x0 - w // 2, 0) : x0].ravel(), picture.grey[rows, x1 : x1 + w // 2].ravel()]
    )
    behind = picture.grey[rows, x0 + w // 4 : x1 - w // 4]
    return float(beside.mean() - behind.mean()) if beside.size and behind.size else 0.0


@settings(max_examples=20, deadline=None)
@given(
    layout=st.sampled_from(LAYOUTS),
    shift=st.floats(0, 2),
    difficulty=st.floats(0, 1),
    scale=st.floats(0.3, 0.7),
    seed=st.integers(0, 2**32 - 1),
)
def test_truth_fits_the_picture(layout, shift, difficulty, scale, seed):
    hospital = Hospital(layout=layout, patients=5, shift=shift, difficulty=difficulty, scale=scale, seed=seed)
    planned = plan(hospital)
    assert {p.patient for p in planned} == set(range(5))
    for one in planned[:3]:
        picture = render(hospital, one)
        assert picture.grey.dtype == np.uint8
        assert len(picture.masks) == len(one.lesions)
        assert (one.label == "normal") == (not picture.masks)
        for mask, lesion in zip(picture.masks, one.lesions, strict=True):
            assert mask.shape == picture.grey.shape
            # The outline's area in mm^2, in pixels: the sector formula. Cut at the border it can only be less.
            disc = 0.5 * float((lesion.outline.astype(float) ** 2).sum()) * 2 * np.pi / len(lesion.outline)
            assert 0.3 * disc < mask.sum() * hospital.optics.pixel_mm**2 < 1.1 * disc + 1
        if picture.masks:
            x0, y0, x1, y1 = picture.box
            union = np.logical_or.reduce(picture.masks)
            assert union[y0:y1, x0:x1].sum() == union.sum()
            assert union[y0].any() and union[y1 - 1].any() and union[:, x0].any() and union[:, x1 - 1].any()


def test_the_same_specification_gives_the_same_pictures_in_any_order():
    hospital = Hospital(**SMALL, layout="busi")
    planned = plan(hospital)
    forward = [render(hospital, p).grey for p in planned[:4]]
    backward = [render(hospital, p).grey for p in plan(hospital)[:4][::-1]][::-1]
    assert all(np.array_equal(a, b) for a, b in zip(forward, backward, strict=True))
    for other in (replace(hospital, seed=8), replace(hospital, name="Birch")):
        assert not np.array_equal(render(other, plan(other)[0]).grey, forward[0])


def test_more_patients_leave_the_first_pictures_views_alone():
    few, many = Hospital(patients=20), Hospital(patients=20, plant={"duplicate": 2})
    assert [p.number for p in plan(few)] == [p.number for p in plan(many)][: len(plan(few))]
    one = plan(few)[3]
    assert np.array_equal(render(few, one).grey, render(many, plan(many)[3]).grey)


def test_views_of_a_patient_show_the_same_lesion_with_other_speckle():
    hospital = Hospital(**SMALL)
    planned = plan(hospital)
    pairs = [(a, b) for a, b in itertools.pairwise(planned) if a.patient == b.patient]
    assert len(pairs) > 8
    size = [(np.log(a.lesions[0].outline.mean()), np.log(b.lesions[0].outline.mean())) for a, b in pairs]
    assert np.corrcoef(np.transpose(size))[0, 1] > 0.9
    assert all(a.label == b.label for a, b in pairs)
    first, second = (render(hospital, p).grey.astype(float) for p in pairs[0])
    rough = [g - field_mean(g) for g in (first, second)]
    assert abs(np.corrcoef(rough[0].ravel(), rough[1].ravel())[0, 1]) < 0.1


def field_mean(grey):
    from scipy.ndimage import uniform_filter

    return uniform_filter(grey, 9)


def test_speckle_is_fully_developed_and_looks_smooth_it():
    """Known answer: the intensity of Rayleigh speckle is exponential, its sd equal to its mean."""
    flat = np.zeros((300, 300), dtype=np.float32)
    for looks, expected in ((1, 1.0), (3, 1 / np.sqrt(3))):
        scanner = Scanner(looks=looks, lateral_mm=0.25, pixel_mm=0.1)
        db = speckle(np.random.default_rng(1), flat, scanner, focus_mm=15.0)
        power = 10 ** (db[60:240, 40:-40].astype(float) / 10)
        contrast = power.std() / power.mean()
        assert contrast == pytest.approx(expected, rel=0.15)
        assert power.mean() == pytest.approx(1.0, rel=0.25)
    scanner = Scanner(looks=1, pixel_mm=0.1)
    power = 10 ** (speckle(np.random.default_rng(2), flat, scanner, focus_mm=15.0)[100:200:6, 40:-40:9] / 10)
    sample = (power / power.mean()).ravel()
    assert stats.kstest(sample, "expon").pvalue > 0.001


def test_random_fields_have_unit_variance():
    values = np.concatenate([field(np.random.default_rng(k), (80, 90), 6.0, 9.0).ravel() for k in range(60)])
    assert values.std() == pytest.approx(1.0, abs=0.05)
    assert values.mean() == pytest.approx(0.0, abs=0.06)


@pytest.mark.parametrize(
    ("difficulty", "low", "high"), [(0.0, 0.84, 1.0), (0.3, 0.74, 0.95), (0.7, 0.55, 0.85)]
)
def test_shape_and_shadow_tell_the_classes_apart(difficulty, low, high):
    hospital = Hospital(patients=80, malignant=0.5, difficulty=difficulty, scale=0.4, shift=0.0, seed=3)
    drawn = list(pictures(hospital))
    assert low < auroc(drawn, lambda p: -compactness(p.masks[0])) <= high
    assert low < auroc(drawn, shadow) <= high


def test_at_full_difficulty_the_label_says_nothing():
    rng = np.random.default_rng(5)
    drawn = [(label, draw_lesion(rng, label, 1.0)) for label in ("benign", "malignant") * 800]
    label = [name == "malignant" for name, _ in drawn]
    for value in ("irregular", "echo_db", "margin_mm", "absorbs_db_mm", "halo_db", "specks"):
        assert abs(roc_auc_score(label, [getattr(lesion, value) for _, lesion in drawn]) - 0.5) < 0.055
    easy = [(label, draw_lesion(rng, label, 0.0)) for label in ("benign", "malignant") * 200]
    assert roc_auc_score([name == "malignant" for name, _ in easy], [x.absorbs_db_mm for _, x in easy]) > 0.9


def statistics(hospital):
    drawn = [p.grey.astype(float) for p in pictures(hospital)]
    top = [g[10:70, 10:-10] for g in drawn]
    dark = [np.quantile(t, 0.1) for t in top]
    return np.array([[t.mean() for t in top], [t.std() for t in top], dark])


def test_shift_moves_grey_levels_and_nothing_at_zero():
    def apart(shift):
        one, other = (
            statistics(Hospital(name=name, scanner=at, shift=shift, patients=12, scale=0.7))
            for at, name in ((0, "Alder"), (1, "Birch"))
        )
        return np.abs(one.mean(axis=1) - other.mean(axis=1)) / np.sqrt(
            one.var(axis=1) / one.shape[1] + other.var(axis=1) / other.shape[1]
        )

    same, shifted = apart(0.0), apart(1.0)
    assert (same < 4.0).all()
    assert (shifted[1:] > 8.0).all()
    assert shifted.sum() > 4 * same.sum()


@pytest.mark.parametrize("at", range(4))
def test_shift_moves_the_grain(at):
    """Known answer: the intensity's autocorrelation at the focus is exp(-d^2 / 2 s^2), s the lateral width."""
    flat = np.zeros((200, 600), dtype=np.float32)
    found = {}
    for shift in (0.0, 1.0):
        scanner = replace(Hospital(scanner=at, shift=shift).optics, pixel_mm=0.05, looks=1)
        db = speckle(np.random.default_rng(at), flat, scanner, focus_mm=5.0)
        power = 10 ** (db[60:140, 60:-60].astype(float) / 10)
        found[shift] = np.corrcoef(power[:, :-5].ravel(), power[:, 5:].ravel())[0, 1]
        assert found[shift] == pytest.approx(np.exp(-(0.25**2) / (2 * scanner.lateral_mm**2)), abs=0.12)
    wider = Hospital(scanner=at, shift=1.0).optics.lateral_mm > Scanner().lateral_mm
    assert (found[1.0] > found[0.0]) == wider


def test_at_zero_shift_all_scanners_are_one():
    optics = {Hospital(scanner=at, shift=0.0).optics for at in range(4)}
    assert optics == {Scanner()}
    assert len({Hospital(scanner=at, shift=0.0).malignant_here for at in range(4)}) == 1
    assert len({Hospital(scanner=at, shift=1.0).optics.shape for at in range(4)}) == 4
    assert len({Hospital(scanner=at, shift=1.0).malignant_here for at in range(4)}) == 4


def test_overlays_leave_the_tissue_alone():
    plain = Hospital(layout="bus-uclm", patients=8, shift=0.0, scale=0.6)
    marked = [p for p in pictures(plain) if p.marks]
    assert len(marked) < len(plan(plain))
    with_shortcut = replace(plain, shortcut=1.0)
    for one in plan(plain)[:6]:
        a, b = render(plain, one), render(with_shortcut, one)
        assert np.array_equal(a.grey[40:, 40:], b.grey[40:, 40:])
        assert b.shortcut == (one.label == "malignant")


def test_a_shortcut_goes_with_the_label_as_often_as_asked():
    hospital = Hospital(patients=80, shortcut=0.8, scale=0.3)
    drawn = list(pictures(hospital))
    rate = {
        label: np.mean([p.shortcut for p in drawn if p.plan.label == label])
        for label in ("benign", "malignant")
    }
    assert rate["malignant"] == pytest.approx(0.9, abs=0.12)
    assert rate["benign"] == pytest.approx(0.1, abs=0.12)


def test_case_mix_and_normals_per_layout():
    for layout in LAYOUTS:
        labels = [p.label for p in plan(Hospital(layout=layout, patients=100, malignant=0.4, shift=0.0))]
        assert ("normal" in labels) == (layout != "bus-bra")
        assert {"benign", "malignant"} <= set(labels)
    uclm = plan(Hospital(layout="bus-uclm", patients=100))
    per_patient = {}
    for p in uclm:
        per_patient.setdefault(p.patient, set()).add(p.label)
    assert sum({"benign", "malignant"} <= held for held in per_patient.values()) >= 3
    assert 0.3 < np.mean([p.label == "normal" for p in uclm]) < 0.7
    busi = plan(Hospital(layout="busi", patients=150))
    assert sum(len(p.lesions) > 1 for p in busi) >= 3


def test_a_small_hospital_has_both_classes():
    for seed in range(20):
        labels = {p.label for p in plan(Hospital(patients=4, malignant=0.1, seed=seed))}
        assert labels == {"benign", "malignant"}


@pytest.mark.parametrize(
    "spec",
    [
        {"layuot": "busi"},
        {"layout": "busj"},
        {"patients": 1},
        {"shift": -1},
        {"difficulty": 1.5},
        {"layout": "bus-bra", "normal": 0.2},
        {"plant": {"duplicates": 1}},
        {"layout": "busi", "plant": {"patient-id": 1}},
        {"patients": 4, "plant": {"duplicate": 50}},
        {"name": "../Alder"},
        {"name": ".."},
        {"name": "."},
        {"name": ".Alder"},
        {"name": "A" * 300},
        {"scanner": 9},
        {"patients": "many"},
    ],
    ids=str,
)
def test_mistakes_are_said(spec):
    with pytest.raises(UserError):
        plan(hospital_from(spec))


def test_a_near_match_is_named():
    with pytest.raises(UserError, match="layout"):
        hospital_from({"layuot": "busi"})
    with pytest.raises(UserError, match="duplicate"):
        hospital_from({"plant": {"duplicats": 1}})
