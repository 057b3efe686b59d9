"""DBTex's csv with `Depth` -1 and 0, as the organisers' baseline and other published files have it.

The organisers' published evaluation (duke_dbt_data.py, `_is_tp`) takes Z + Depth/2 as the slice of a box and looks
at no other property of Depth: whether a box hits, and every number, follows from that centre alone. The rules
are written out once more in `reference_rules.py`; expected kinds are worked out by hand at the edge.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import elsewhere
from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions.boxes import boxes_from_frame, read_boxes
from golden.reference_rules import Box, Lesion, dbtex, match

VOLUMES = ["S0/lcc", "S1/lcc", "S2/rmlo"]
LESIONS = [Lesion("S0/lcc", 500, 600, 100, 120, 20, 48), Lesion("S1/lcc", 500, 600, 100, 120, 20, 48)]


def csv_of(boxes, path):
    rows = [
        {
            "PatientID": box.case.split("/")[0],
            "StudyUID": box.case.split("/")[0],
            "View": box.case.split("/")[1],
            "X": box.x,
            "Width": box.width,
            "Y": box.y,
            "Height": box.height,
            "Z": box.z,
            "Depth": int(box.depth),
            "Score": box.score,
        }
        for box in boxes
    ]
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def cohort():
    cases = pd.DataFrame({"case_id": VOLUMES, "patient_id": [v.split("/")[0] for v in VOLUMES]})
    truth = pd.DataFrame([vars(lesion) for lesion in LESIONS]).rename(columns={"case": "case_id"})
    truth = truth.astype({"case_id": "string"}).assign(lesion_id=["0", "0"], **{"class": "cancer"})
    return Cohort.from_frame(cases, lesions=truth)


@pytest.mark.parametrize(
    ("z", "depth", "hit"),
    [
        (8.5, -1, True),
        (8.0, -1, False),
        (8.0, 0, True),
        (7.5, 0, False),
        (32.5, -1, True),
        (33.0, -1, False),
        (32.0, 0, True),
        (32.5, 0, False),
        (12.0, -8, True),
        (11.5, -8, False),
    ],
)
def test_the_centre_slice_is_z_plus_half_the_depth(z, depth, hit, tmp_path):
    """48 slices reach 12 slices to either side of slice 20, inclusive: centres from 8 to 32 hit."""
    box = Box("S0/lcc", 520, 620, 60, 60, z, depth, 0.9)
    assert (match([box], LESIONS, code=True, nearest=True)[0] is not None) == hit
    scored = elsewhere.score("detection", cohort(), csv_of([box], tmp_path / "said.csv"), resamples=0)
    assert scored.scores.events["kind"].iloc[0] == ("tp" if hit else "fp")


@pytest.mark.parametrize("protocol", ["dbtex-code", "dbtex-paper"])
def test_every_number_of_such_a_file_is_the_evaluations(protocol, tmp_path):
    rng = np.random.default_rng(5)
    boxes = [
        Box(
            str(rng.choice(VOLUMES)),
            float(rng.choice([520, 560, 590, 900])),
            620.0,
            60.0,
            60.0,
            float(rng.integers(5, 36)),
            float(rng.choice([-1, 0])),
            float(np.round(rng.random(), 3)),
        )
        for _ in range(60)
    ]
    file = csv_of(boxes, tmp_path / "said.csv")
    wanted = dbtex(VOLUMES, LESIONS, boxes, code=protocol == "dbtex-code")
    for given in (file, pd.read_csv(file)):
        scored = elsewhere.score("detection", cohort(), given, protocol=protocol, resamples=0)
        for name, value in wanted.items():
            assert scored.metrics[name]["value"] == pytest.approx(value, abs=1e-12), name
    assert scored.summary["counts"]["invalid_boxes"] == 0


def test_such_a_file_is_written_back_byte_for_byte(tmp_path):
    from elsewhere.predictions.dbtex import write_dbtex

    box = Box("S0/lcc", 520, 620, 60, 60, 12, -1, 0.9)
    file = csv_of([box], tmp_path / "said.csv")
    assert write_dbtex(read_boxes(file), tmp_path / "again.csv").read_bytes() == file.read_bytes()


def test_our_own_columns_still_refuse_a_negative_depth():
    """In a native table `depth` counts slices, so a negative one is a mistake and not somebody's convention."""
    row = {"case_id": "S0/lcc", "x": 1, "y": 1, "width": 1, "height": 1, "z": 3, "depth": -1, "score": 0.5}
    with pytest.raises(UserError, match="depth is negative"):
        boxes_from_frame(pd.DataFrame([row]))
