"""Which slices a detector is trained on (DBT-10, DBT-12, DBT-13, DBT-17)."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")

from elsewhere.boxes import Boxes
from elsewhere.errors import TrainingError
from elsewhere.training.detection.sampling import (
    ACTIONABLE,
    LESION,
    NEGATIVE,
    SamplingSettings,
    draw_order,
    list_slices,
    perturbed_cases,
    reach_of,
    shown_lesions,
)
from worlds.toy_volumes import ToyLesion, ToyView


def table(view, settings, **kwargs):
    return list_slices(view, view.cases, settings, rng=np.random.default_rng(0), **kwargs)


def test_a_lesion_is_seen_on_three_slices_to_each_side_and_ends_with_the_volume():
    lesions = [ToyLesion(0, 0, 9, 9, 1), ToyLesion(0, 0, 9, 9, 6)]
    shown = shown_lesions(lesions, 9)
    assert shown == {0: (0,), 1: (0,), 2: (0,), 3: (0, 1), 4: (0, 1), 5: (1,), 6: (1,), 7: (1,), 8: (1,)}


def test_the_reach_by_size_is_the_root_of_the_mean_side():
    assert reach_of(ToyLesion(0, 0, 300, 276, 5), "size") == 16
    assert reach_of(ToyLesion(0, 0, 300, 276, 5), 3) == 3


def test_lesion_slices_carry_their_boxes_and_kinds():
    view = ToyView(3)
    found = table(view, SamplingSettings(reach=1))
    for row in range(len(found)):
        (lesion,) = view.lesions(found.case[row])
        assert abs(found.z[row] - lesion.slice) <= 1
        assert found.box[row, 0].tolist() == [
            lesion.x,
            lesion.y,
            lesion.x + lesion.width,
            lesion.y + lesion.height,
        ]
        assert found.label[row].tolist() == [int(lesion.kind == "cancer")]
    assert len(found.rows(LESION)) == len(found) == 9


def test_slices_without_a_lesion_come_from_everywhere_but_near_lesions():
    view = ToyView(2, normals=2, actionable=2, size=(160, 128, 24))
    found = table(view, SamplingSettings(reach=1, negatives=1.0, actionable=1.0, per_volume=3))
    assert len(found.rows(NEGATIVE)) == 4 * 3 and len(found.rows(ACTIONABLE)) == 2 * 3
    for row in found.rows(NEGATIVE):
        for lesion in view.lesions(found.case[row]):
            assert abs(found.z[row] - lesion.slice) > 2
    assert {view.finding(found.case[row]) for row in found.rows(ACTIONABLE)} == {"actionable"}


def test_detections_in_actionable_volumes_join_the_training_as_background():
    view = ToyView(1, actionable=1)
    case = view.cases[1]
    boxes = Boxes.on_slice([[0, 0, 9, 9]] * 2, [0.9, 0.8], [5, 7])
    found = table(view, SamplingSettings(), detections={case: boxes, view.cases[0]: boxes})
    rows = found.rows(ACTIONABLE)
    assert found.z[rows].tolist() == [5, 7] and (found.label[rows] == -1).all()
    assert {found.case[row] for row in rows} == {case}


def test_benign_lesions_can_be_left_out_and_withheld_cases_always_are():
    view = ToyView(6, hidden=["T/001"])
    found = table(view, SamplingSettings(only_cancer=True, negatives=1.0))
    assert set(found.case) == {"T/002", "T/004", "T/005"}


def test_an_epoch_has_each_lesion_slice_once_and_the_others_in_their_ratio():
    view = ToyView(4, normals=3)
    settings = SamplingSettings(reach=1, negatives=0.5)
    found = table(view, settings)
    order = draw_order(found, settings, np.random.default_rng(0))
    kind = found.kind[order]
    assert sorted(order[kind == LESION]) == found.rows(LESION).tolist()
    assert (kind == NEGATIVE).sum() == round(0.5 * (kind == LESION).sum())
    again = draw_order(found, settings, np.random.default_rng(0))
    assert (order == again).all()
    assert (found.kind[draw_order(found, settings, np.random.default_rng(0), most=2)] == LESION).sum() == 2


def test_perturbed_sets_leave_out_whole_patients():
    cases = [f"{patient}/{view}" for patient in range(20) for view in range(3)]
    group = [case.split("/")[0] for case in cases]
    sets = [perturbed_cases(cases, group, np.random.default_rng(seed)) for seed in range(4)]
    assert len(set(sets)) == 4
    for chosen in sets:
        assert len(chosen) == 18 * 3 and len({case.split("/")[0] for case in chosen}) == 18
        assert sorted(chosen, key=cases.index) == list(chosen)
    assert perturbed_cases([], [], np.random.default_rng(0)) == ()


def test_a_training_part_without_lesions_is_refused():
    view = ToyView(0, normals=2)
    settings = SamplingSettings(negatives=1.0)
    with pytest.raises(TrainingError, match="no slice with a lesion"):
        draw_order(table(view, settings), settings, np.random.default_rng(0))
