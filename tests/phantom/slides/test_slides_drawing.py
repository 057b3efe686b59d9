"""The drawing of synthetic slides: every region by itself, one axis shifted at a time, the planted stain found again."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.stain import macenko
from elsewhere.phantom.slides.anatomy import LYMPH, SINUS, STROMA
from elsewhere.phantom.slides.centres import AXES, CENTRES, Shift, centre_at, shift_from
from elsewhere.phantom.slides.drawing import Drawing, paint
from elsewhere.phantom.slides.painting import Painter
from elsewhere.phantom.slides.patients import World, world_from
from elsewhere.phantom.slides.tumour import longest_axis_px
from elsewhere.scoring.slides.regions import find_regions


def slide_of(stage, *, centre=0, shift=None, seed=1, size="tiny"):
    world = World(patients=6, nodes=5, centres=(centre,), size=size, shift=shift or Shift(), seed=seed)
    return next(one for one in world.slides() if one.stage == stage)


def alike(axis=None, amount=1.0):
    return shift_from({axis: amount} if axis else {"stain": 0.0})


def same_slide(centre, shift, seed=4):
    return World(patients=1, nodes=1, centres=(centre,), size="tiny", shift=shift, seed=seed).slides()[0]


@pytest.fixture(scope="module")
def drawing():
    return Drawing(slide_of("micro"))


@pytest.mark.parametrize("reduction", [1, 4])
@pytest.mark.parametrize("box", [(0, 0, 40, 30), (97, 61, 128, 96), (233, 150, 31, 77), (-20, -9, 50, 40)])
def test_a_patch_drawn_alone_equals_the_region_of_the_slide(drawing, box, reduction):
    left, top, width, height = -24, -16, 320, 256
    whole = drawing.region(left, top, width, height, reduction=reduction)
    truth = drawing.truth(left, top, width, height, reduction=reduction)
    x, y, w, h = box
    part = np.s_[y - top : y - top + h, x - left : x - left + w]
    assert np.array_equal(drawing.region(*box, reduction=reduction), whole[part])
    assert np.array_equal(drawing.truth(*box, reduction=reduction), truth[part])
    again = Drawing(drawing.spec)
    assert np.array_equal(again.region(*box, reduction=reduction), whole[part])


def test_a_level_drawn_anew_has_the_colours_of_the_averaged_finest_level(drawing):
    fine = drawing.region(600, 400, 256, 256).astype(float).reshape(64, 4, 64, 4, 3).mean((1, 3))
    coarse = drawing.region(150, 100, 64, 64, reduction=4).astype(float)
    assert np.abs(fine.mean((0, 1)) - coarse.mean((0, 1))).max() < 4
    assert np.corrcoef(fine.mean(2).ravel(), coarse.mean(2).ravel())[0, 1] > 0.6


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("reduction", [1, 2])
def test_patches_at_once_are_the_patches_by_themselves(drawing, device, reduction):
    if device:
        pytest.importorskip("torch")
    corners = [(0, 0), (311, 207), (150, 90), (-2000, -1500)]
    pixels, truth = drawing.patches(corners, 48, reduction=reduction, device=device)
    for at, (x, y) in enumerate(corners):
        alone = drawing.region(x, y, 48, 48, reduction=reduction).astype(int)
        assert np.abs(np.asarray(pixels[at]) - alone).max() <= (1 if device else 0)
        assert np.array_equal(truth[at], drawing.truth(x, y, 48, 48, reduction=reduction))
    assert drawing.plan(-2000, -1500, 48, 48, reduction=reduction) is None  # glass among them


def test_torch_paints_what_numpy_paints(drawing):
    torch = pytest.importorskip("torch")
    plans = [drawing.plan(500 + 101 * at, 350, 96, 96) for at in range(3)]
    plain = paint(drawing, plans, 1, np)
    other = paint(drawing, plans, 1, torch, "cpu").numpy()
    difference = np.abs(plain.astype(int) - other)
    assert plain.std() > 10
    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3


def densities(drawing, box):
    plan = drawing.plan(*box)
    blue, pink = Painter(drawing, 1).densities([plan])
    return blue, pink


BOX = (600, 400, 160, 128)


def test_a_shift_of_the_stain_changes_colours_and_nothing_else():
    base, moved = (Drawing(same_slide(4, shift)) for shift in (alike(), alike("stain")))
    assert base.size_px == moved.size_px
    for a, b in zip(densities(base, BOX), densities(moved, BOX), strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(base.truth(0, 0, *base.size_px), moved.truth(0, 0, *base.size_px))
    assert base.disease.axis_um == moved.disease.axis_um
    assert np.abs(base.region(*BOX).astype(int) - moved.region(*BOX)).mean() > 5


def test_a_shift_of_the_scanner_leaves_tissue_nuclei_and_truth_where_they_are():
    base, moved = (Drawing(same_slide(2, shift)) for shift in (alike(), alike("scanner")))
    assert moved.spec.mpp == pytest.approx(0.452)
    assert base.stain == moved.stain
    assert base.disease.axis_um == moved.disease.axis_um
    assert base.disease.area_mm2 == moved.disease.area_mm2
    places = []
    for one in (base, moved):
        step = one.spec.mpp
        plan = one.plan(round(300 / step), round(250 / step), round(160 / step), round(160 / step))
        corner = np.array([[plan.corner[0]], [plan.corner[1]]])
        marks = np.concatenate([marks[1:] + corner for _, marks in plan.marks], axis=1).T * step
        places.append(marks[((marks > [305, 255]) & (marks < [455, 405])).all(1)])
    for here, there in (places, places[::-1]):
        nearest = np.abs(here[:, None] - there[None]).max(2).min(1)
        assert len(here) > 30
        assert (nearest < 0.6).mean() > 0.97  # up to one at the border of the box


def test_a_shift_of_the_tissue_mix_leaves_truth_stain_and_scanner():
    base, moved = (Drawing(same_slide(4, shift, seed=3)) for shift in (alike(), alike("tissue", 2.0)))
    assert base.stain == moved.stain
    assert base.spec.centre.scanner == moved.spec.centre.scanner
    assert base.disease.lesions
    assert np.array_equal(base.truth(0, 0, *base.size_px), moved.truth(0, 0, *base.size_px))
    u, v = np.meshgrid(np.arange(0, 720, 4, dtype=np.float32), np.arange(0, 480, 4, dtype=np.float32))
    sinus = [(one.anatomy.ground(u, v).tissue == SINUS).sum() for one in (base, moved)]
    assert sinus[1] > 1.3 * sinus[0]


def test_a_shift_of_the_stage_mix_changes_the_stages_only():
    base, moved = (World(patients=20, nodes=5, shift=shift).slides() for shift in (alike(), alike("stages")))
    changed = [a for a, b in zip(base, moved, strict=True) if a.stage != b.stage]
    assert 0 < len(changed) < len(base) / 2
    equal = next(
        (a, b)
        for a, b in zip(base, moved, strict=True)
        if a.stage == b.stage == "micro" and a.centre.number == 4
    )
    assert np.array_equal(*(Drawing(one).region(2400, 1200, 96, 96) for one in equal))
    shares = [
        sum(one.stage == "macro" for one in slides if one.centre.number == 2) / 100
        for slides in (base, moved)
    ]
    assert shares == pytest.approx([0.30, 0.40], abs=0.04)


def test_without_a_shift_the_centres_are_equal_and_at_one_they_are_the_real_ones():
    for number in range(5):
        flat, real = centre_at(number, alike()), centre_at(number, Shift())
        base = centre_at(3, Shift())
        assert (flat.stain, flat.scanner, flat.tissue) == (base.stain, base.scanner, base.tissue)
        assert flat.stages == pytest.approx(base.stages)
        assert real.scanner.mpp == CENTRES[number].scanner.mpp
        assert real.tissue == CENTRES[number].tissue
    half = centre_at(2, Shift(stain=0.5, scanner=0.5, tissue=0.5, stages=0.5))
    assert half.stain.strength[0] == pytest.approx((2.31 + 3.42) / 2)
    assert half.scanner.mpp == pytest.approx((0.226 + 0.243) / 2)
    assert half.stages[3] == pytest.approx(0.35)


@pytest.mark.parametrize("centre", range(5))
def test_the_planted_stain_is_measured_again(centre):
    seeds = (Drawing(slide_of("negative", centre=centre, seed=seed)) for seed in range(1, 20))
    # a pen's colour is no stain, and Macenko's method takes it for one
    drawing = next(
        one for one in seeds if all(artefact.kind != "ink" for artefact in one.artefacts.artefacts)
    )
    width, height = drawing.size_px
    fit = macenko.fit(drawing.region(width // 8, height // 8, width * 3 // 4, height * 3 // 4))
    stain = drawing.stain
    # within a real slide haematoxylin's red varies by 0.02, the strengths by 0.3 to 0.6 of 0.9 to 3.4
    assert np.abs(np.subtract(fit.haematoxylin, stain.haematoxylin)).max() < 0.02
    assert np.abs(np.subtract(fit.eosin, stain.eosin)).max() < 0.08
    assert 0.85 < fit.concentrations[0] / stain.strength[0] < 1.2
    assert 0.75 < fit.concentrations[1] / stain.strength[1] < 1.4


@pytest.mark.parametrize("stage", ["negative", "itc", "micro"])
def test_the_stage_follows_from_the_annotated_axis(stage):
    for seed in (1, 2, 3):
        disease = Drawing(slide_of(stage, seed=seed)).disease
        assert disease.stage == stage
        low, high = {"negative": (0, 0), "itc": (1, 200), "micro": (200, 2000)}[stage]
        assert low <= disease.axis_um <= high
        assert (disease.area_mm2 > 0) == bool(disease.lesions) == (stage != "negative")


def test_a_macrometastasis_fits_on_a_small_slide():
    for seed in (1, 2, 3):
        drawing = Drawing(slide_of("macro", seed=seed, size="small"))
        assert drawing.disease.stage == "macro"
        assert 2000 < drawing.disease.axis_um < 3000


def test_tumour_lies_in_tissue_and_tissue_has_its_parts(drawing):
    width, height = drawing.size_px
    step = drawing.spec.mpp
    u, v = np.meshgrid(
        np.arange(0, width, 8, dtype=np.float32) * np.float32(step),
        np.arange(0, height, 8, dtype=np.float32) * np.float32(step),
    )
    ground = drawing.anatomy.ground(u, v)
    assert ground.depth[drawing.disease.height(u, v) > 0].min() > -0.5  # interpolated
    share = [(ground.tissue == kind).mean() for kind in (LYMPH, STROMA, SINUS)]
    assert min(share) > 0.01
    assert share[0] > 0.1


def test_blank_places_of_a_slide_of_real_size_are_glass():
    drawing = Drawing(slide_of("negative", size="real", seed=3))
    white = np.array(drawing.spec.centre.scanner.white)
    blank = 0
    for at in np.random.default_rng(1).integers(0, 1 << 30, (60, 2)):
        x, y = (int(a % (n - 24)) for a, n in zip(at, drawing.size_px, strict=True))
        pixels = drawing.region(x, y, 24, 16)
        if drawing.is_blank(x, y, 24, 16):
            blank += 1
            assert np.abs(pixels.astype(float) - white).max() < 8
            # the painter agrees where it is asked for a region that reaches further
            assert np.array_equal(drawing.region(x - 3, y, 40, 16)[:, 3:27], pixels)
    assert 10 < blank < 58


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: World(size="smal"), "unknown size 'smal'"),
        (lambda: World(patients=0), "0 patients per centre"),
        (lambda: World(nodes=6), "6 slides per patient"),
        (lambda: World(centres=(0, 0)), "named twice"),
        (lambda: World(centres=(5,)), "no centre 5"),
        (lambda: shift_from({"stian": 1}), "unknown axis 'stian'"),
        (lambda: shift_from({"stain": 9}), "a shift of stain by 9"),
        (lambda: shift_from({"stain": float("nan")}), "a shift of stain by nan"),
        (lambda: world_from({"patient": 1}), "unknown setting 'patient'"),
        (lambda: world_from({"patients": "many"}), "wrong type"),
    ],
)
def test_mistakes_have_a_message(make, text):
    with pytest.raises(UserError, match=text):
        make()


@pytest.mark.parametrize("bad", [{"width": 0, "height": 5}, {"width": 5, "height": 5, "reduction": 3}])
def test_a_region_that_cannot_be_drawn_is_refused(drawing, bad):
    with pytest.raises(UserError, match="a region of"):
        drawing.region(0, 0, **bad)


def test_all_axes_have_a_shift():
    assert set(AXES) == set(Shift.__dataclass_fields__)


def test_the_axis_is_that_of_the_evaluation():
    rng = np.random.default_rng(4)
    for share in (0.02, 0.3, 0.6):
        mask = rng.random((60, 80)) < share
        assert longest_axis_px(mask) == pytest.approx(find_regions(mask).major_axis_px.max())
    assert longest_axis_px(np.zeros((5, 5), dtype=bool)) == 0


def test_a_machine_with_numpy_and_scipy_alone_draws():
    code = (
        "import sys\n"
        "absent = 'numba tifffile openslide pandas contourpy pyarrow imagecodecs pydantic typer matplotlib PIL'.split()\n"
        "sys.modules.update(dict.fromkeys(absent))\n"
        "from elsewhere.phantom.slides.drawing import Drawing\n"
        "from elsewhere.phantom.slides.patients import World\n"
        "slides = World(patients=4, nodes=2, size='tiny').slides()\n"
        "drawing = Drawing(next(one for one in slides if one.stage == 'micro'))\n"
        "print(drawing.disease.stage, drawing.region(600, 400, 32, 32).shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[0] == "micro (32, 32, 3)", done.stderr
