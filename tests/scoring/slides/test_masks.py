"""Masks of slides scored in strips and on cells of 8 microns, against whole masks in memory (LN-14, LN-15, LN-26)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import ndimage

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions import Predictions, ReadOptions
from elsewhere.predictions.slide_masks import SlideGeometry, SlideMask
from elsewhere.predictions.slides import read_slides
from elsewhere.protocols import SlideRules, protocols
from elsewhere.scoring.slides import SlideTask
from elsewhere.scoring.slides.boundary import boundary_dice, near_line
from elsewhere.scoring.slides.evaluator import class_averages
from elsewhere.scoring.slides.masks import StageStream, measure_slide
from elsewhere.scoring.slides.mean_map import cell_px, mean_map
from elsewhere.scoring.slides.objects import measure_objects
from elsewhere.scoring.task import ScoreOptions

TASK = SlideTask()
OWN, CELLS = SlideRules(), SlideRules(stage_pixels="8um")
GEOMETRY = SlideGeometry(mpp=0.5)


def mask_of(pixels, *, step=1.0, height=37, name="a", **more):
    values = np.asarray(pixels, dtype=np.uint8) * np.uint8(255)
    strips = [values[top : top + height] for top in range(0, len(values), height)]
    return SlideMask(
        path=Path(name), columns=values.shape[1], rows=values.shape[0], step_px=step,
        reader=lambda: iter(strips), **more,
    )  # fmt: skip


def blobs(shape, seed, share=0.2):
    field = ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=shape), 5)
    return field > np.quantile(field, 1 - share)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 300), st.sampled_from([1, 2, 4]))
def test_masks_streamed_side_by_side_equal_whole_masks(seed, height, times):
    """The prediction has pixels as large as `times` pixels of the truth."""
    truth = blobs((times * 90, times * 70), seed)
    said = blobs((90, 70), seed + 1)
    large = np.repeat(np.repeat(said, times, 0), times, 1)
    found = measure_slide(
        mask_of(said, step=float(times), height=height), mask_of(truth, height=height + 5), GEOMETRY, OWN
    )
    overlap = found.overlap
    assert (overlap.true_positive, overlap.false_positive, overlap.false_negative) == (
        (large & truth).sum(), (large & ~truth).sum(), (truth & ~large).sum(),
    )  # fmt: skip
    assert overlap.n_pixels == truth.size
    assert found.said.axis_mm == pytest.approx(
        measure_objects(said).largest_axis_px() * times * 0.5 / 1000, rel=1e-12
    )
    labels, n = ndimage.label(truth, structure=np.ones((3, 3)))
    touched = {int(label) for label in np.unique(labels[large & truth])}
    assert len(found.lesion_mm) == n and int((found.lesion_share > 0).sum()) == len(touched)


def test_a_placed_mask_counts_where_it_lies():
    truth = np.zeros((200, 300), dtype=bool)
    truth[100:140, 150:220] = True
    said = truth[80:180, 120:260]
    found = measure_slide(mask_of(said, offset_px=(120.0, 80.0), placed=True), mask_of(truth), GEOMETRY, OWN)
    assert found.overlap.dice == 1.0
    assert found.said == found.truth
    cells = measure_slide(
        mask_of(said, offset_px=(120.0, 80.0), placed=True), mask_of(truth), GEOMETRY, CELLS
    )
    assert cells.said == cells.truth


def test_scales_that_do_not_divide_each_other_are_refused_by_name_and_scored_on_cells():
    said, truth = mask_of(np.ones((40, 40)), step=2.5, name="said"), mask_of(np.ones((100, 100)))
    with pytest.raises(UserError, match=r"2\.5 slide pixels cannot be laid") as refused:
        measure_slide(said, truth, GEOMETRY, OWN)
    assert refused.value.where == "said"
    assert measure_slide(said, truth, GEOMETRY, CELLS).overlap.dice == 1.0


def test_cells_are_16_pixels_of_20x():
    assert [cell_px(mpp) for mpp in (0.226, 0.243, 0.25, 0.48, 0.5)] == [32, 32, 32, 16, 16]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 60), st.sampled_from([1.0, 2.0, 16.0]))
def test_a_cell_is_tumour_where_over_half_of_it_is(seed, height, step):
    pixels = np.random.default_rng(seed).random((64, 96)) < 0.5
    mask = mask_of(pixels, step=step, height=height)
    k = round(16 / step)
    got = mean_map(mask, cell=16.0)
    padded = np.zeros((-(-64 // k) * k, -(-96 // k) * k))
    inside = padded.copy()
    padded[:64, :96], inside[:64, :96] = pixels, 1
    total, count = (a.reshape(len(a) // k, k, a.shape[1] // k, k).sum(axis=(1, 3)) for a in (padded, inside))
    np.testing.assert_array_equal(got, total > 0.5 * count)


def test_pixels_across_the_borders_of_cells_are_shared_out_by_area():
    pixels = np.zeros((10, 10), dtype=bool)
    pixels[:, :4] = True
    mask = mask_of(pixels, step=2.5)
    assert mean_map(mask, cell=16.0).tolist() == [[True, False], [True, False]]
    assert mean_map(replace(mask, threshold=0.63), cell=16.0)[0].tolist() == [False, False]
    assert mean_map(replace(mask, threshold=0.62), cell=16.0)[0].tolist() == [True, False]


def test_specks_are_no_object_on_cells_and_itc_on_own_pixels():
    pixels = np.zeros((320, 320), dtype=bool)
    pixels[100, 100] = True
    mask = mask_of(pixels)
    stream = StageStream(mask, GEOMETRY, SlideRules())
    for strip in mask.strips():
        stream.add(strip)
    own, cells = stream.finish()
    assert (own.stage, cells.stage) == ("itc", "negative")
    assert measure_slide(mask, None, GEOMETRY, OWN).said == own
    assert measure_slide(mask, None, GEOMETRY, CELLS).said == cells


@pytest.mark.parametrize("rules", [OWN, CELLS])
@pytest.mark.parametrize("coarse", [1, 16, 64])
def test_false_positives_over_all_pixels_and_over_tissue_have_their_own_rates(rules, coarse):
    said, tissue = np.zeros((256, 256), dtype=bool), np.zeros((256, 256), dtype=bool)
    tissue[:, :128] = True
    said[:64, 64:192] = True
    found = measure_slide(
        mask_of(said), None, GEOMETRY, rules, is_negative=True,
        tissue=mask_of(tissue[::coarse, ::coarse], step=float(coarse)),
    )  # fmt: skip
    assert found.overlap.false_positive_rate == 64 * 128 / 256**2
    assert found.overlap.false_positive_rate_tissue == 64 * 64 / (256 * 128)
    assert np.isnan(found.overlap.dice)


def test_dice_near_the_line_and_away_from_it_by_hand():
    truth, said = blobs((60, 70), 3, 0.3), blobs((60, 70), 4, 0.3)
    inside, outside = np.argwhere(truth), np.argwhere(~truth)
    tolerance = 2.3
    near = np.zeros_like(truth)
    for one, other in ((inside, outside), (outside, inside)):
        for r, c in one:
            near[r, c] = np.sqrt(((other - (r, c)) ** 2).sum(axis=1).min()) - 0.5 <= tolerance
    np.testing.assert_array_equal(near_line(truth, tolerance_px=tolerance), near)
    found = boundary_dice(said, truth, tolerance_px=tolerance)
    for value, where in ((found.within, near), (found.beyond, ~near)):
        a, b = said & where, truth & where
        assert value == pytest.approx(2 * (a & b).sum() / (a.sum() + b.sum()))
    assert boundary_dice(None, truth, tolerance_px=tolerance).within == 0.0
    assert not near_line(np.zeros((5, 5), dtype=bool), tolerance_px=3).any()


# Through the task -------------------------------------------------------------------------------


def write(folder, pictures):
    folder.mkdir(exist_ok=True)
    for name, pixels in pictures.items():
        Image.fromarray(np.asarray(pixels, dtype=np.uint8) * np.uint8(255)).save(folder / f"{name}.png")


def world(tmp_path, truths, said, **columns):
    """Slides of 8 micron pixels, with truths and predictions as PNG."""
    write(tmp_path / "truth", truths)
    write(tmp_path / "said", said)
    frame = pd.DataFrame({"case_id": list(truths), "patient_id": list(truths), "microns_per_pixel": 0.25})
    frame["mask"] = [f"truth/{name}.png" for name in truths]
    return Cohort.from_frame(frame.assign(**columns), root=tmp_path), read_slides(
        tmp_path / "said", ReadOptions()
    )


def evaluate(cohort, predictions, protocol="plain", **options):
    chosen = protocols.get(protocol)
    scores = TASK.score(cohort, predictions, chosen, ScoreOptions(**options))
    return scores, TASK.evaluator(scores, TASK.partition(scores), ScoreOptions()).values()


def square(top, left, size, shape=(200, 240)):
    out = np.zeros(shape, dtype=bool)
    out[top : top + size, left : left + size] = True
    return out


def test_lesions_are_counted_by_diameter_with_those_that_were_found(tmp_path):
    """Squares of n pixels of 8 microns have an axis of 4 sqrt((n2 - 1) / 12) pixels: 0.92, 0.37 and 0.03 mm."""
    truth = square(10, 10, 100) | square(150, 20, 40) | square(150, 80, 3) | square(150, 150, 3)
    said = square(20, 20, 80) | square(150, 80, 2)
    cohort, predictions = world(tmp_path, {"a": truth, "b": truth}, {"a": said})
    scores, values = evaluate(cohort, predictions)
    assert values["mask_lesion_recall"] == pytest.approx(2 / 8)
    table = TASK.details(scores, TASK.partition(scores), ScoreOptions())["lesion_recall_by_diameter"]
    counts = {row["diameter"]: (row["lesions"], row["found"]) for row in table if row["lesions"]}
    assert counts == {"up to 0.2 mm": (4, 1), "0.2 to 0.5 mm": (2, 0), "0.5 to 1 mm": (2, 1)}
    empty = {"diameter": "over 5 mm", "lesions": 0, "found": 0, "recall": None, "lo": None, "hi": None}
    assert table[-1] == empty


def test_masks_shifted_by_one_patch_are_refused_by_name(tmp_path):
    truths = {name: square(40, 40 + 10 * k, 30 + 5 * k) for k, name in enumerate("abc")}
    moved = {name: np.roll(mask, 16, axis=1) for name, mask in truths.items()}
    cohort, predictions = world(tmp_path, truths, moved)
    with pytest.raises(
        UserError, match=r"shifted by one patch: moved by 128 microns to the left .* Dice of 1\.00"
    ):
        evaluate(cohort, predictions)
    scores, values = evaluate(cohort, predictions, on_invalid="worst")
    assert any("shifted by one patch" in text for text in scores.warnings)
    assert values["slide_dice"] < 0.8


def test_masks_that_are_wrong_otherwise_are_no_shift(tmp_path):
    truths = {name: square(40, 40 + 10 * k, 30 + 5 * k) for k, name in enumerate("abc")}
    for said in (
        {name: np.roll(mask, 90, axis=1) for name, mask in truths.items()},
        {name: np.zeros_like(mask) for name, mask in truths.items()},
        {
            name: np.roll(mask, shift, axis=0)
            for (name, mask), shift in zip(truths.items(), (16, -16, 7), strict=True)
        },
    ):
        assert not evaluate(*world(tmp_path, truths, said))[0].warnings


def test_a_stage_that_the_mask_contradicts_is_counted_and_named(tmp_path):
    truths = {"a": square(10, 10, 100), "b": square(10, 10, 4)}
    cohort, predictions = world(tmp_path, truths, truths, stage=["macro", "itc"])
    scores, _ = evaluate(cohort, predictions)
    assert scores.warnings == (
        "1 of 2 slides has another stage in the cohort than its truth mask gives, and the cohort's counts: a (macro, by "
        "its mask micro)",
    )
    assert scores.cases["stage_true"].tolist() == ["macro", "itc"]


def test_a_missing_or_damaged_mask_is_the_worst_everywhere(tmp_path):
    truths = {"a": square(10, 10, 100), "b": np.zeros((200, 240), dtype=bool), "c": square(10, 10, 60)}
    write(tmp_path / "tissue", dict.fromkeys("abc", np.ones((200, 240), dtype=bool)))
    cohort, _ = world(tmp_path, truths, {"c": truths["c"]}, tissue_mask=[f"tissue/{n}.png" for n in "abc"])
    (tmp_path / "said" / "a.png").write_bytes((tmp_path / "said" / "c.png").read_bytes()[:60])
    predictions = read_slides(tmp_path / "said", ReadOptions())
    with pytest.raises(UserError, match=r"a\.png"):
        evaluate(cohort, predictions)
    scores, values = evaluate(cohort, predictions, on_invalid="worst")
    rows = scores.cases.set_index("case_id")
    assert rows["status"].tolist() == ["invalid", "missing", "scored"]
    assert rows.loc["a", "slide_dice"] == 0.0 and rows.loc["a", "slide_dice_within_line"] == 0.0
    assert (
        rows.loc["b", "slide_false_positive_rate"] == rows.loc["b", "slide_false_positive_rate_tissue"] == 1.0
    )
    assert values["slide_dice"] == 0.5 and values["mask_lesion_recall"] == 0.5


def test_a_damaged_truth_is_always_an_error(tmp_path):
    truths = {"a": square(10, 10, 100)}
    cohort, predictions = world(tmp_path, truths, truths)
    (tmp_path / "truth" / "a.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match="truth"):
        evaluate(cohort, predictions, on_invalid="worst")


def asap(path, top, left, size, step):
    corners = [(left, top), (left + size, top), (left + size, top + size), (left, top + size)]
    points = "".join(
        f'<Coordinate Order="{k}" X="{x * step}" Y="{y * step}"/>' for k, (x, y) in enumerate(corners)
    )
    path.write_text(
        "<?xml version='1.0'?><ASAP_Annotations><Annotations><Annotation Name='a' Type='Polygon' "
        f"PartOfGroup='Tumor'><Coordinates>{points}</Coordinates></Annotation></Annotations></ASAP_Annotations>"
    )


@pytest.mark.parametrize("kind", ["png", "xml", "tif", "fine tif"])
def test_the_lesion_froc_is_equal_for_png_xml_and_pyramids(tmp_path, kind):
    pixels = square(50, 60, 40)
    file = tmp_path / {"png": "a.png", "xml": "a.xml"}.get(kind, "a.tif")
    if kind == "png":
        Image.fromarray(pixels).save(file)
    elif kind == "xml":
        asap(file, 50, 60, 40, 32)
    else:
        tifffile = pytest.importorskip("tifffile", reason="needs the extra 'slides'")
        fine = np.repeat(np.repeat(pixels, 8, 0), 8, 1).astype(np.uint8) * 255
        levels = [fine, pixels.astype(np.uint8) * 255] if kind == "tif" else [fine]
        with tifffile.TiffWriter(file) as out:
            for k, level in enumerate(levels):
                out.write(level, tile=(128, 128), compression="zlib", resolution=(1e4, 1e4), metadata=None,
                          resolutionunit="CENTIMETER", subfiletype=int(k > 0))  # fmt: skip
    frame = pd.DataFrame(
        {"case_id": ["a", "b"], "patient_id": ["a", "b"], "mask": [file.name, ""], "microns_per_pixel": 0.25}
    )
    points = pd.DataFrame(
        {
            "case_id": ["a", "a", "b"],
            "x": [32.0 * 61, 5.0, 5.0],
            "y": [32.0 * 51, 5.0, 5.0],
            "score": [0.8, 0.9, 0.3],
        }
    )
    table = pd.DataFrame({"case_id": ["a", "b"]})
    said = Predictions(kind="slides", table=table, points=points, source="t", digest="x")
    scores, values = evaluate(Cohort.from_frame(frame, root=tmp_path), said, "camelyon16")
    assert scores.cases["n_lesions"].tolist() == [1, 0]
    assert sorted(scores.events["kind"]) == ["fp", "fp", "tp"]
    assert values["froc_score"] == pytest.approx(np.mean([0, 1, 1, 1, 1, 1]))


def test_pyramids_and_outlines_are_scored_like_png(tmp_path):
    """The same truth and prediction as pictures of 8 microns, as tiled TIFF of 1 micron and as outlines."""
    pytest.importorskip("tifffile", reason="needs the extra 'slides'")
    from elsewhere.inputs.slides.annotations import MaskGrid, write_strips

    truth, said = square(40, 40, 80), square(50, 40, 80)
    cohort, predictions = world(tmp_path, {"a": truth}, {"a": said})
    _, wanted = evaluate(cohort, predictions, "lymph-nodes")
    asap(tmp_path / "truth" / "a.xml", 40, 40, 80, 32)
    fine = np.repeat(np.repeat(said, 8, 0), 8, 1).astype(np.uint8) * np.uint8(255)
    (tmp_path / "said" / "a.png").unlink()
    write_strips(tmp_path / "said" / "a.tif", [fine], MaskGrid(columns=240 * 8, rows=200 * 8, pixel_um=1.0))
    cases = cohort.cases.assign(mask="truth/a.xml", width_px=240 * 32, height_px=200 * 32)
    other = Cohort.from_frame(cases, root=tmp_path)
    predictions = read_slides(tmp_path / "said", ReadOptions())
    scores, got = evaluate(other, predictions, "lymph-nodes")
    assert got == pytest.approx(wanted, nan_ok=True)
    assert scores.cases["stage_predicted"].tolist() == ["micro"]
    own = evaluate(other, predictions, "plain")[1]
    assert own["slide_dice"] == pytest.approx(wanted["slide_dice"])


@pytest.mark.parametrize(("itc", "specificity"), [("negative", 2 / 4), ("left-out", 1 / 2)])
def test_slides_of_isolated_cells_are_negative_or_left_out(itc, specificity):
    truth = ["macro", "micro", "itc", "itc", "negative", "negative"]
    said = ["macro", "negative", "itc", "macro", "negative", "micro"]
    frame = pd.DataFrame({"case_id": list("abcdef"), "patient_id": list("abcdef"), "stage": truth})
    table = pd.DataFrame({"case_id": list("abcdef"), "stage": said})
    predictions = Predictions(kind="slides", table=table, source="t", digest="x")
    name = "lymph-nodes" if itc == "negative" else "lymph-nodes-tables"
    scores, values = evaluate(Cohort.from_frame(frame), predictions, name)
    assert values["positive_specificity"] == specificity
    assert values["positive_sensitivity"] == 0.5
    assert values["positive_precision"] == (1 / 3 if itc == "negative" else 1 / 2)
    assert values["stage_accuracy"] == pytest.approx(3 / 6)
    matrices = TASK.details(scores, TASK.partition(scores), ScoreOptions())["confusion"]
    assert np.sum(matrices["two_class"]["rows_truth_columns_prediction"]) == (6 if itc == "negative" else 4)
    assert np.sum(matrices["four_class"]["rows_truth_columns_prediction"]) == 6
    evaluator = TASK.evaluator(scores, TASK.partition(scores), ScoreOptions())
    for metric in ("positive_specificity", "positive_precision", "positive_sensitivity"):
        parts = evaluator.closed_form(metric)
        assert parts.numerator.sum() / parts.denominator.sum() == pytest.approx(values[metric])


def test_class_averages_of_an_empty_class_are_undefined():
    rates = class_averages(0, 0, 3, 7)
    assert np.isnan(rates["sensitivity"]) and rates["specificity"] == 0.7


def test_stored_scores_give_the_same_metrics(tmp_path):
    truths = {"a": square(10, 10, 100), "b": np.zeros((200, 240), dtype=bool)}
    said = {"a": square(20, 10, 100), "b": square(5, 5, 3)}
    cohort, predictions = world(tmp_path, truths, said, stage=["macro", "negative"])
    scores, values = evaluate(cohort, predictions, "lymph-nodes")
    again = TASK.from_table(cohort, scores.cases, None, scores.protocol, ScoreOptions())
    evaluator = TASK.evaluator(again, TASK.partition(again), ScoreOptions())
    assert evaluator.values() == pytest.approx(values, nan_ok=True)
    assert json.dumps(TASK.details(again, TASK.partition(again), ScoreOptions())) == json.dumps(
        TASK.details(scores, TASK.partition(scores), ScoreOptions())
    )
