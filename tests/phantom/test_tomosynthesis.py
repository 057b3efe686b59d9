"""Tomosynthesis phantoms as arrays: what is planted is there, and nothing else decides what is drawn."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.phantom.tomosynthesis import draw
from elsewhere.phantom.tomosynthesis_lesions import Thing, distortion, mass, place
from elsewhere.phantom.tomosynthesis_patients import SIZES, VENDORS, World
from elsewhere.phantom.tomosynthesis_tissue import Spectrum, frame_of, upsampled

WORLD = World(patients=10, seed=3)


def grey(volume, window):
    centre, width = window
    return (volume.astype(float) - (centre - width / 2)) * 255 / width


def positives(world=WORLD):
    return [case for case in world.cases() if case.finding in ("benign", "cancer")]


def ring_contrast(plane, lesion):
    """Mean of a box minus that of the breast around it, in standard deviations of the latter."""
    y, x, h, w = lesion.y, lesion.x, lesion.height, lesion.width
    outer = np.zeros(plane.shape, dtype=bool)
    outer[max(0, y - h // 2) : y + h + h // 2, max(0, x - w // 2) : x + w + w // 2] = True
    inner = np.zeros(plane.shape, dtype=bool)
    inner[y : y + h, x : x + w] = True
    around = plane[outer & ~inner & (plane > 10)]
    return (plane[inner].mean() - around.mean()) / around.std()


@pytest.fixture(scope="module")
def drawn():
    return [(case, draw(case)) for case in positives()]


def test_volumes_have_the_vendors_numbers(drawn):
    for case, phantom in drawn:
        volume = phantom.volume()
        slices, rows, columns = phantom.shape
        assert volume.dtype == np.uint16 and volume.shape == phantom.shape
        assert rows == 192 and columns in (148, 156) and 6 <= slices <= 25
        assert 2 ** (case.vendor.bits - 2) < volume.max() < 2**case.vendor.bits
        breast = volume[slices // 2] > 0
        assert 0.12 < breast.mean() < 0.6
        values = grey(volume[slices // 2][breast], phantom.window)
        assert 30 < np.median(values) < 100 and (values < 0).mean() < 0.05


def test_slices_are_the_same_in_any_order():
    phantom = draw(WORLD.cases()[0])
    volume = phantom.volume()
    for z in (3, 0, 5, 3):
        assert np.array_equal(phantom.slice(z), volume[z])
    assert not np.array_equal(volume[3], volume[4])


def test_a_patient_depends_on_seed_vendor_and_number_alone():
    larger = World(patients=25, vendors=("B", "A"), seed=3)
    ours, theirs = ({case.case_name: case for case in world.cases()} for world in (WORLD, larger))
    assert set(ours) < set(theirs)
    for name in list(ours)[::7]:
        one, other = draw(ours[name]), draw(theirs[name])
        assert one.lesions == other.lesions and np.array_equal(one.slice(4), other.slice(4))
    stranger = draw(World(patients=10, seed=4).cases()[0])
    assert not np.array_equal(stranger.volume()[4], draw(WORLD.cases()[0]).volume()[4])


def test_the_breast_lies_at_the_edge_that_the_view_names(drawn):
    for case, phantom in drawn:
        plane = phantom.slice(phantom.shape[0] // 2)
        left, right = int(plane[:, 0].sum()), int(plane[:, -1].sum())
        assert (left > right) == case.view.startswith("l")
        assert min(left, right) == 0


def test_boxes_lie_in_the_breast_and_hold_their_brightest_voxel(drawn):
    for _, phantom in drawn:
        assert phantom.lesions
        for lesion in phantom.lesions:
            slices, rows, columns = phantom.shape
            assert lesion.x >= 0 and lesion.x + lesion.width <= columns
            assert lesion.y >= 0 and lesion.y + lesion.height <= rows
            assert 0 <= lesion.slice < slices
            x, y, z = lesion.brightest
            assert lesion.x <= x < lesion.x + lesion.width and lesion.y <= y < lesion.y + lesion.height
            assert z == lesion.slice
            box = phantom.slice(z)[lesion.y : lesion.y + lesion.height, lesion.x : lesion.x + lesion.width]
            assert (box > 0).mean() > 0.5


def test_masses_have_the_contrast_that_was_set():
    goals, found = [], []
    for case in positives(World(patients=30, seed=9)):
        phantom = draw(case)
        for lesion in phantom.lesions:
            if not lesion.distortion:
                goals.append(lesion.contrast)
                found.append(ring_contrast(grey(phantom.slice(lesion.slice), phantom.window), lesion))
    assert len(goals) > 30
    assert np.corrcoef(goals, found)[0, 1] > 0.6
    assert abs(np.median(found) - np.median(goals)) < 0.3


def test_a_lesion_spreads_out_of_its_plane_by_the_vendors_arc():
    """About 1.4 diameters at 15 degrees and half a diameter at 50, next to the lesion's own thickness."""
    wide = {}
    for name in VENDORS:
        world = World(vendors=(name,), patients=30, size="half", seed=2)
        case = next(c for c in positives(world) if not c.patient.findings[0].distortion)
        phantom = draw(case)
        lesion = phantom.lesions[0]
        thing = next(t for t in phantom.things if t.cover is not None)
        diameter = 0.8 * np.sqrt(lesion.width * lesion.height) * phantom.frame.pixel_mm
        wide[name] = 2.355 * thing.spread * phantom.frame.slice_mm / diameter
    assert wide["A"] == pytest.approx(np.hypot(0.6, 1.4), rel=0.15)
    assert wide["B"] == pytest.approx(np.hypot(0.6, 0.5), rel=0.15)


def test_the_arc_blurs_the_tissue_in_proportion_to_its_detail():
    frame = frame_of(World(patients=1, size="half").cases()[0])
    kept = {}
    for name, vendor in VENDORS.items():
        spectrum = Spectrum((32, 96, 96), frame, vendor.spread, 0.0)
        field = spectrum.field(spectrum.square**-1, np.random.default_rng(1))
        kept[name] = [float(np.corrcoef(field[8].ravel(), field[8 + d].ravel())[0, 1]) for d in (1, 2, 4, 8)]
        assert abs(float(field.mean())) < 1e-3 and float(field.std()) == pytest.approx(1, abs=1e-3)
    assert all(a > b for a, b in zip(kept["A"], kept["B"], strict=True))


def test_slices_of_the_field_have_the_exponent_three():
    frame = frame_of(World(patients=1, size="half").cases()[0])
    spectrum = Spectrum((24, 256, 256), frame, 1.0, 0.0)
    field = spectrum.field(spectrum.square**-1, np.random.default_rng(2))
    power = np.mean([np.abs(np.fft.fft2(plane)) ** 2 for plane in field[::4]], axis=0)
    line = np.log([power[k, 0] + power[0, k] for k in range(3, 40)])
    slope = np.polyfit(np.log(np.arange(3, 40)), line, 1)[0]
    assert -3.6 < slope < -2.4


def test_cc_and_mlo_show_one_lesion_at_one_distance_from_the_nipple(drawn):
    by_patient: dict = {}
    for case, phantom in drawn:
        by_patient.setdefault(case.patient.patient_id, []).append(phantom)
    for views in by_patient.values():
        assert [v.case.view[1:] for v in views] == ["cc", "mlo"]
        subjects = [{b.subject for b in v.lesions} for v in views]
        assert subjects[0] == subjects[1]
        for subject in subjects[0]:
            one, other = (next(b for b in v.lesions if b.subject == subject) for v in views)
            assert one.distortion == other.distortion and one.kind == other.kind
            shares = []
            for view, box in zip(views, (one, other), strict=True):
                x = box.x + box.width / 2
                x = x if view.case.view.startswith("l") else view.frame.columns - x
                shares.append(x / view.outline.nipple[1])
            assert abs(shares[0] - shares[1]) < 0.25


def test_normal_volumes_have_no_findings_and_actionable_ones_no_boxes():
    for case in World(patients=12, views=4, seed=1).cases():
        if case.finding in ("normal", "actionable"):
            assert draw(case).lesions == ()
        if case.patient.finding == "actionable" and case.affected:
            assert len(case.patient.findings) == 1 and not case.patient.findings[0].biopsied
        if not case.affected:
            assert case.finding == "normal"


def test_the_planted_drop_is_at_vendor_b_in_dense_breasts_alone():
    plain, dropped = World(patients=30, seed=5), World(patients=30, seed=5, drop=0.6)
    fewer = 0
    for one, other in zip(plain.people(), dropped.people(), strict=True):
        hit = one.vendor == "B" and one.density in ("C", "D")
        for a, b in zip(one.findings, other.findings, strict=True):
            assert b.contrast == pytest.approx(a.contrast * (0.4 if hit else 1.0))
            assert replace(b, contrast=a.contrast, kept=a.kept) == a
            fewer += hit
    assert fewer > 5
    case = next(c for c in positives(dropped) if c.patient.findings[0].kept < 1)
    same = next(c for c in positives(plain) if c.case_name == case.case_name)
    lower, higher = draw(case), draw(same)
    z = lower.lesions[0].slice
    x, y, _ = lower.lesions[0].brightest
    assert lower.slice(z)[y, x] < higher.slice(z)[y, x]
    far = lower.slice(0 if z > lower.shape[0] // 2 else lower.shape[0] - 1)
    assert far.shape == lower.slice(z).shape


def test_every_split_has_every_finding_and_patients_are_in_one_split():
    people = World(patients=25, seed=2).people()
    for vendor in ("A", "B"):
        mine = [p for p in people if p.vendor == vendor]
        assert {(p.finding, p.split) for p in mine} >= {
            (finding, split) for finding in ("benign", "cancer") for split in ("train", "validation", "test")
        }
    assert len({p.patient_id for p in people}) == len(people)


@pytest.mark.slow
def test_sizes_and_depths_are_those_of_the_published_boxes():
    """The published training set: diagonal 299 px (195-426), depth 0.42 +- 0.16."""
    diagonals, depths, slices = [], [], []
    for case in positives(World(patients=60, seed=8)):
        phantom = draw(case)
        slices.append(phantom.shape[0] * 73 / 16)
        for lesion in phantom.lesions:
            diagonals.append(np.hypot(lesion.width, lesion.height) / case.size.unit)
            depths.append(lesion.slice / phantom.shape[0])
    assert np.percentile(diagonals, [25, 50, 75]) == pytest.approx([195, 299, 426], rel=0.2)
    assert np.mean(depths) == pytest.approx(0.42, abs=0.04) and np.std(depths) == pytest.approx(
        0.16, abs=0.03
    )
    assert np.median(slices) == pytest.approx(73, abs=5)


def test_patients_have_as_many_lesions_and_distortions_as_published_ones():
    """The published training set: 1.12 boxes per volume with a box, 34 % of them distortions."""
    people = [p for p in World(patients=1500, seed=8).people() if p.finding in ("benign", "cancer")]
    findings = [finding for person in people for finding in person.findings]
    assert len(findings) / len(people) == pytest.approx(1.12, abs=0.03)
    assert np.mean([finding.distortion for finding in findings]) == pytest.approx(0.34, abs=0.05)


def test_a_spiculated_mass_reaches_beyond_its_body_and_a_distortion_has_no_centre():
    frame = frame_of(World(patients=1, size="real").cases()[0])
    smooth = mass((120, 100), 0.0, frame, np.random.default_rng(1))
    spiculated = mass((120, 100), 1.0, frame, np.random.default_rng(1))
    assert len(smooth) == 1 and len(spiculated) == 3
    assert sum(picture[:, :30].max() for picture in spiculated[1:]) > 0.2 > smooth[0][:, :10].max()
    haze, *lines = distortion((240, 220), frame, np.random.default_rng(2))
    assert len(lines) == 3 and haze.max() <= 1
    total = sum(lines)
    y, x = (n // 2 for n in total.shape)
    assert total[y - 2 : y + 3, x - 2 : x + 3].max() < total.max() / 2


def test_a_thing_at_the_border_is_cut():
    value = np.zeros((5, 6), dtype=np.float32)
    thing = Thing(picture=np.ones((3, 3), dtype=np.float32), top=-1, left=4, slice=2.0, spread=1.0)
    place(thing, 2, value)
    assert value.sum() == 4 and value[:2, 4:].all()
    place(replace(thing, top=9), 2, value)
    place(thing, 40, value)
    assert value.sum() == 4


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_interpolation_keeps_ramps_and_sizes(factor):
    ramp = np.add.outer(np.arange(12.0), 2 * np.arange(9.0)).astype(np.float32)
    large = upsampled(ramp, factor, 12 * factor - 1, 9 * factor)
    assert large.shape == (12 * factor - 1, 9 * factor)
    inside = large[2 * factor : -2 * factor, 2 * factor : -2 * factor]
    assert np.allclose(np.diff(inside, axis=0), 1 / factor, atol=1e-4)
    assert np.allclose(np.diff(inside, axis=1), 2 / factor, atol=1e-4)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"vendors": ("C",)}, "vendor"),
        ({"vendors": ()}, "vendor"),
        ({"vendors": ("A", "A")}, "vendor"),
        ({"size": "huge"}, "size"),
        ({"patients": 0}, "patients"),
        ({"views": 3}, "views"),
        ({"drop": 1.5}, "drop"),
        ({"drop": 0.5, "vendors": ("A",)}, "vendor B"),
        ({"mix": (1.0, 1.0, 0.0, 0.0)}, "mix"),
        ({"splits": (0.5, 0.5)}, "splits"),
    ],
)
def test_mistakes_are_named(words, told):
    with pytest.raises(UserError) as error:
        World(**words)
    assert told in str(error.value)


def test_it_needs_numpy_and_scipy_alone():
    code = (
        "import sys; import elsewhere.phantom.tomosynthesis, elsewhere.phantom.tomosynthesis_on_demand;"
        "strange = {'pydicom', 'imagecodecs', 'numba', 'elsewhere.tables', 'PIL', 'sklearn', 'torch'} & set(sys.modules);"
        "sys.exit(' '.join(strange) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_floor_is_scaled_with_the_size():
    assert SIZES["real"].floor_px == 100
    assert SIZES["small"].floor_px == pytest.approx(7.81, abs=0.01)
