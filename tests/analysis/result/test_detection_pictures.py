"""Pictures of detections: which lesions and false positives are chosen, what is drawn, and what is not said."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from elsewhere.analysis.result.detection_pictures import PictureOptions, picture_detections, picture_volumes
from elsewhere.analysis.result.pictured import TRUTH
from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.inputs.tomosynthesis.source import TomosynthesisSource
from elsewhere.privacy import Redactor
from elsewhere.scoring.detection.found import lesions_of_models, lesions_table
from worlds.pictured_lesions import (
    LESIONS,
    NORTH,
    SLICES,
    SOUTH,
    VOLUMES,
    box,
    bright_box,
    cohort_of,
    on_lesion,
    pictured,
    scored,
    volumes_of,
)


@pytest.fixture(scope="module")
def shown():
    return pictured()


def slice_of(place, z: int) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(place.slices[z - place.first])))


def drawn_boxes(place, model: int):
    return [one for one in place.boxes if one.model == model]


def test_lesions_come_in_the_order_of_their_difficulty(shown):
    cohort = cohort_of()
    held = {name: scored(boxes, cohort).scores for name, boxes in (("north", NORTH), ("south", SOUTH))}
    expected = lesions_table(lesions_of_models(held))
    assert [shown.key[place.title.lower()] for place in shown.lesions] == [
        f"{case}, lesion {lesion}"
        for case, lesion in zip(expected["case_id"], expected["lesion_id"], strict=True)
    ]
    assert [place.title for place in shown.lesions] == ["Lesion 1", "Lesion 2", "Lesion 3"]
    assert [line.says for line in shown.lesions[0].models] == ["not found", "not found"]
    assert "found by 0 of 2 models" in shown.lesions[0].facts[-1]


def test_the_annotation_lies_on_the_bright_lesion(shown):
    for place in shown.lesions:
        (truth,) = [one for one in drawn_boxes(place, TRUTH) if one.subject]
        where = bright_box(slice_of(place, place.start))
        assert (truth.x, truth.y, truth.width, truth.height) == pytest.approx(where, abs=0.5 / 64)
        assert truth.centre == place.start


def test_strips_are_cut_at_the_ends_of_the_volume(shown):
    slices = {place.volume: (place.first, place.start, len(place.slices)) for place in shown.lesions}
    of_case = {shown.key[volume]: value for volume, value in slices.items()}
    assert of_case[VOLUMES[0]] == (5, 10, 11)
    assert of_case[VOLUMES[1]] == (0, 2, 8)
    assert of_case[VOLUMES[2]] == (14, 19, 7)
    assert all(place.depth == SLICES for place in shown.places)


def test_the_box_of_a_model_that_finds_the_lesion_is_its_box(shown):
    (place,) = [one for one in shown.lesions if shown.key[one.volume] == VOLUMES[0]]
    for model, score in ((0, 0.9), (1, 55.0)):
        first = next(one for one in drawn_boxes(place, model) if one.score == score)
        truth = drawn_boxes(place, TRUTH)[0]
        assert (first.x, first.y, first.width, first.height) == (truth.x, truth.y, truth.width, truth.height)
        assert (first.first, first.last) == (9, 11)
    assert [(line.says, line.score, line.first, line.last) for line in place.models] == [
        ("found", 0.9, 9, 11),
        ("found", 55.0, 9, 11),
    ]
    assert place.models[0].cost == 0.0 and place.models[1].cost == 0.75


def test_false_positives_go_by_their_rank_in_each_model_and_one_place_is_one(shown):
    assert [shown.key[place.title.lower()] for place in shown.false_positives] == [
        f"{VOLUMES[3]}, box 20 60 16 16",
        f"{VOLUMES[0]}, box 72 152 16 16",
        f"{VOLUMES[2]}, box 40 60 16 16",
        f"{VOLUMES[1]}, box 90 20 16 16",
    ]
    first, second = shown.false_positives[:2]
    assert [line.says for line in first.models] == [
        "its highest false positive",
        "its false positive number 3",
    ]
    assert [line.says for line in second.models] == [
        "its false positive number 2",
        "its highest false positive",
    ]
    assert "a box of 2 of 2 models" in first.facts
    assert [line.says for line in shown.false_positives[2].models] == [
        "no box here",
        "its false positive number 2",
    ]
    (subject,) = [one for one in second.boxes if one.subject]
    assert (subject.model, subject.score) == (1, 99.0)


def test_the_scale_of_scores_changes_no_choice(shown):
    other = pictured({"north": NORTH, "south": [{**one, "score": one["score"] ** 3 - 5e5} for one in SOUTH]})
    assert other.key == shown.key


def test_a_box_without_depth_lies_on_its_middle_slice():
    models = {"only": [*NORTH, box(3, 60, 100, 0.95, z=7, depth=0)]}
    place = pictured(models).false_positives[0]
    (subject,) = [one for one in place.boxes if one.subject]
    assert (subject.first, subject.last, place.start) == (7, 7, 7)


def test_boxes_beyond_the_budget_are_dashed():
    many = [box(3, 20 + 3 * (k % 9), 60 + 5 * (k % 7), 0.5 + k / 1000) for k in range(40)]
    shown = pictured({"busy": [*many, on_lesion(0, 0.1)]})
    (place,) = [one for one in shown.lesions if shown.key[one.volume] == VOLUMES[0]]
    (low,) = [one for one in place.boxes if one.score == 0.1]
    assert not low.full
    assert place.models[0].says == "found beyond the budget"
    assert all(len(drawn_boxes(one, 0)) <= 8 for one in shown.places)
    assert any(one.full for one in shown.false_positives[0].boxes if one.model == 0)


def test_one_model_shows_its_missed_lesions_first():
    shown = pictured({"north": NORTH})
    assert [shown.key[place.title.lower()][-1] for place in shown.lesions] == ["c", "b", "a"]
    assert not any("models" in fact for place in shown.places for fact in place.facts)


def test_fewer_pictures_where_fewer_are_asked_for():
    shown = pictured(options=PictureOptions(count=1, either_side=1))
    assert (len(shown.lesions), len(shown.false_positives)) == (1, 1)
    assert all(len(place.slices) <= 3 for place in shown.places)


def test_pictures_are_reduced_until_they_fit(shown):
    small = pictured(options=PictureOptions(most_bytes=shown.bytes // 2))
    assert 0 < small.bytes <= shown.bytes // 2
    assert [len(place.slices) for place in small.places] == [len(place.slices) for place in shown.places]


def test_volumes_that_cannot_be_read_are_listed():
    cohort = cohort_of()
    held = volumes_of(cohort)
    missing = picture_volumes("detection", cohort, PictureOptions()).source
    some = {name: held.source.volume(name) for name in held.source.cases if "secret-9" not in name}
    some |= {name: missing.volume(name) for name in missing.cases if "secret-8" in name}
    shown = pictured(volumes=dataclasses.replace(held, source=TomosynthesisSource(some)))
    problems = {shown.key[place.volume]: place.problem for place in shown.places if place.problem}
    assert set(problems) == {VOLUMES[1], VOLUMES[2]}
    assert "names no file" in problems[VOLUMES[2]] and "secret-8.dcm" in problems[VOLUMES[1]]
    assert shown.warnings() == (
        "Pictures: 2 of 4 volumes could not be read; the report lists them with the reason.",
    )
    clean = shown.shared(Redactor([*VOLUMES, "secret-8"]))
    assert not any("secret" in place.problem for place in clean.places) and clean.key == {}
    assert all(place.slices for place in shown.places if not place.problem)


def test_what_cannot_be_pictured_is_counted():
    boxes = [*NORTH, box("elsewhere/lcc", 10, 10, 5.0), box(0, 30, 30, 4.0, width=-3.0)]
    cohort = cohort_of()
    held = {"north": scored(boxes, cohort, on_invalid="worst")}
    shown = picture_detections(held, volumes_of(cohort), PictureOptions())
    assert shown.notes == (
        "1 false positives lie in volumes that the cohort does not list and are not among the pictures.",
        "1 false positives are invalid and are not among the pictures.",
    )
    assert shown.key["false positive 1"].startswith(VOLUMES[3])


def test_a_cohort_without_lesions_shows_false_positives_alone():
    cohort = Cohort.from_frame(cohort_of().cases, synthetic=True)
    shown = pictured(cohort=cohort)
    assert shown.lesions == () and len(shown.false_positives) == 6
    assert shown.notes == ("The cohort lists no lesions, so only false positives are shown.",)


@pytest.mark.parametrize("boxes", [(), (on_lesion(0, 1.0),)])
def test_a_model_without_false_positives_shows_the_lesions(boxes):
    shown = pictured({"quiet": boxes})
    assert len(shown.lesions) == 3 and shown.false_positives == ()
    assert [place.models[0].says for place in shown.lesions].count("found") == len(boxes)
    assert shown.notes == ("No model has a false positive that can be shown.",)


def test_pictures_without_slices_show_all_boxes():
    """Single pictures are volumes of one slice; the slices of lesions and boxes are those of the original."""
    cohort = cohort_of()
    held = volumes_of(cohort)
    flat = {name: _first(held.source.volume(name)) for name in held.source.cases}
    shown = pictured(volumes=dataclasses.replace(held, source=TomosynthesisSource(flat)))
    assert all(len(place.slices) == 1 and place.start == 0 for place in shown.places)
    (place,) = [one for one in shown.lesions if shown.key[one.volume] == VOLUMES[0]]
    assert {one.model for one in place.boxes} == {TRUTH, 0, 1}
    assert not any("slice" in fact for one in shown.places for fact in one.facts)


def _first(volume):
    from elsewhere.inputs.tomosynthesis.stored import ArrayVolume

    return ArrayVolume(volume.stack()[:1].copy(), side="left", window=(0.0, 1000.0))


@pytest.mark.parametrize(
    ("task", "image", "count", "words"),
    [
        ("segmentation", "x", 6, "the task is segmentation"),
        ("detection", None, 6, "no column image"),
        ("detection", "", 6, "names no volume"),
        ("detection", "x", 0, "0 pictures"),
        ("detection", "x", 51, "51 pictures"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_scored(task, image, count, words):
    cohort = cohort_of(image=image)
    if image == "":
        cohort = Cohort.from_frame(
            cohort.cases.assign(image=pd.NA), lesions=pd.DataFrame(LESIONS), synthetic=True
        )
    with pytest.raises(UserError, match=words) as refused:
        picture_volumes(task, cohort, PictureOptions(count=count))
    assert refused.value.fix
