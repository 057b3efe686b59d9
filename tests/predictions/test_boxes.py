"""Box tables: columns, numbers, volumes, and what is done about bad rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.cohort.table import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.boxes import boxes_from_frame, check_boxes, read_boxes, volume_extent
from elsewhere.scoring.task import read_predictions

NATIVE = ["case_id", "x", "y", "width", "height", "z", "depth", "score"]


def native(**changes):
    """Three sound boxes in two volumes, with changed columns."""
    frame = pd.DataFrame(
        {
            "case_id": ["S1/lcc", "S1/lcc", "S2/rcc"],
            "x": [10.0, 20.0, 30.0],
            "y": [10.0, 20.0, 30.0],
            "width": [50.0, 50.0, 50.0],
            "height": [60.0, 60.0, 60.0],
            "z": [1.0, 2.0, 3.0],
            "depth": [2.0, 2.0, 2.0],
            "score": [0.9, 0.5, 0.1],
        }
    )
    return frame.assign(**changes)


def cohort():
    cases = pd.DataFrame(
        {
            "case_id": ["S1/lcc", "S2/rcc"],
            "patient_id": ["P1", "P2"],
            "image_width": [2000, np.nan],
            "image_height": [2500, np.nan],
        }
    )
    lesions = pd.DataFrame({"case_id": ["S1/lcc", "S1/lcc"], "volume_slices": [40, 60]})
    return Cohort(cases=cases, lesions=lesions)


@pytest.mark.parametrize("name", ["x", "y", "width", "height", "z", "depth"])
@pytest.mark.parametrize("known", [True, False])
def test_a_box_beyond_any_picture_is_invalid(name, known):
    """Boxes at 1e16 were scored where no extent was known, and one as wide as that around its own centre anywhere."""
    frame = native(**{name: [1e16, 20.0, 30.0]})
    if name in ("width", "height", "depth"):
        frame.loc[0, {"width": "x", "height": "y", "depth": "z"}[name]] = -5e15
    with pytest.raises(UserError, match=r"1 of 3 boxes: .* is over 1,000,000"):
        boxes_from_frame(frame, cohort=cohort() if known else None)
    worst = boxes_from_frame(frame, ReadOptions(on_invalid="worst"), cohort() if known else None).table
    assert worst["reason"].notna().tolist() == [True, False, False]


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".xlsx", ".csv.gz", ".tsv"])
def test_native_columns_in_every_format(ending, tmp_path):
    path = tmp_path / f"boxes{ending}"
    if ending == ".parquet":
        native().to_parquet(path)
    elif ending == ".xlsx":
        native().to_excel(path, index=False)
    else:
        native().to_csv(path, index=False, sep="\t" if ending == ".tsv" else ",")
    predictions = read_predictions("detection", path)
    assert predictions.kind == "boxes"
    assert predictions.table[NATIVE[1:]].to_numpy().tolist() == native()[NATIVE[1:]].to_numpy().tolist()
    assert predictions.table["case_id"].tolist() == ["S1/lcc", "S1/lcc", "S2/rcc"]
    assert predictions.flow[0]["n"] == 3
    assert predictions.digest


def test_a_header_alone_is_no_finding(tmp_path):
    path = tmp_path / "boxes.csv"
    path.write_text(",".join(NATIVE) + "\n")
    assert read_boxes(path).table.empty


def test_an_empty_file_is_an_error(tmp_path):
    path = tmp_path / "boxes.csv"
    path.write_text("")
    with pytest.raises(UserError, match="empty"):
        read_boxes(path)


@pytest.mark.parametrize("column", ["x", "y", "width", "height", "score", "case_id"])
def test_a_missing_native_column_is_named(column):
    with pytest.raises(UserError, match=column):
        boxes_from_frame(native().drop(columns=column))


@pytest.mark.parametrize("column", ["PatientID", "X", "Width", "Y", "Height", "Z", "Depth", "Score"])
def test_a_missing_dbtex_column_is_named(column):
    names = ["PatientID", "StudyUID", "View", "X", "Width", "Y", "Height", "Z", "Depth", "Score"]
    frame = pd.DataFrame([["P", "S", "lcc", 1, 1, 1, 1, 1, 1, 0.5]], columns=names)
    with pytest.raises(UserError, match=f"DBTex's csv needs the column {column}"):
        boxes_from_frame(frame.drop(columns=column))


def test_z_without_depth_is_half_a_statement_and_neither_is_a_flat_picture():
    with pytest.raises(UserError, match="'z' but no 'depth'"):
        boxes_from_frame(native().drop(columns="depth"))
    flat = boxes_from_frame(native().drop(columns=["z", "depth"])).table
    assert flat["z"].isna().all() and flat["reason"].isna().all()


def test_columns_by_another_name_are_mapped_or_diagnosed():
    renamed = native().rename(columns={"score": "malignancy"})
    assert boxes_from_frame(renamed, ReadOptions(column_map={"score": "malignancy"})).table[
        "score"
    ].tolist() == [0.9, 0.5, 0.1]
    with pytest.raises(UserError, match="no column 'malignanci'") as error:
        boxes_from_frame(renamed, ReadOptions(column_map={"score": "malignanci"}))
    assert "malignancy" in (error.value.fix or "")


BAD = [
    ({"score": [0.9, np.nan, 0.1]}, "score is missing"),
    ({"score": [0.9, np.inf, 0.1]}, "score is missing or not a finite"),
    ({"x": [10.0, -np.inf, 30.0]}, "x is missing or not a finite"),
    ({"width": [50.0, -1.0, 50.0]}, "width is negative"),
    ({"height": [50.0, -1.0, 50.0]}, "height is negative"),
    ({"depth": [2.0, -1.0, 2.0]}, "depth is negative"),
    ({"z": [1.0, 51.0, 3.0]}, "outside its volume"),
    ({"z": [1.0, -12.0, 3.0]}, "outside its volume"),
    ({"x": [1.0, 2090.0, 3.0]}, "outside its volume"),
    ({"x": [1.0, -400.0, 3.0]}, "outside its volume"),
    ({"y": [1.0, 2800.0, 3.0]}, "outside its volume"),
]


@pytest.mark.parametrize(("change", "why"), BAD)
def test_a_bad_box_is_an_error_that_names_its_row(change, why):
    with pytest.raises(UserError, match=why) as error:
        boxes_from_frame(native(**change), cohort=cohort())
    assert "rows 2" in (error.value.where or "")
    assert "--on-invalid worst" in (error.value.fix or "")


@pytest.mark.parametrize(("change", "why"), BAD)
def test_with_worst_it_stays_with_its_reason(change, why):
    table = boxes_from_frame(native(**change), ReadOptions(on_invalid="worst"), cohort()).table
    assert table["reason"].notna().tolist() == [False, True, False]
    assert why.split(" or ")[0] in table["reason"].iloc[1]


def test_cells_that_are_no_numbers(tmp_path):
    path = tmp_path / "boxes.csv"
    native(score=["0.9", "high", "0.1"]).to_csv(path, index=False)
    with pytest.raises(UserError, match=r"not numbers.*row 2"):
        read_boxes(path)
    assert read_boxes(path, ReadOptions(on_invalid="worst")).table["reason"].notna().tolist() == [
        False,
        True,
        False,
    ]


def test_boxes_that_overshoot_the_edge_are_sound():
    """The published evaluation lets them hit lesions beside the edge."""
    table = native(z=[-6.0, 47.0, 3.0], x=[-60.0, 1990.0, 9e4], y=[-60.0, 2490.0, 9e4])
    assert boxes_from_frame(table, cohort=cohort()).table["reason"].isna().all()


def test_sizes_of_zero_and_repeated_rows_are_sound():
    table = native(width=[0.0, 0.0, 0.0], height=0.0, depth=0.0)
    assert boxes_from_frame(pd.concat([table, table])).table["reason"].isna().all()
    assert len(boxes_from_frame(pd.concat([table, table])).table) == 6


def test_rows_without_an_id_cannot_be_scored_even_as_worst():
    with pytest.raises(UserError, match="without an id"):
        boxes_from_frame(native(case_id=["S1/lcc", None, "S2/rcc"]), ReadOptions(on_invalid="worst"))


def test_volume_extent_takes_the_first_lesion_row_and_the_case_table():
    extent = volume_extent(cohort())
    assert extent.loc["S1/lcc", "volume_slices"] == 40
    assert np.isnan(extent.loc["S2/rcc", "volume_slices"])
    assert extent.loc["S1/lcc", "image_width"] == 2000
    wider = cohort().cases.assign(volume_slices=[70, 80])
    assert volume_extent(Cohort(cases=wider, lesions=cohort().lesions))["volume_slices"].tolist() == [70, 80]


def test_ids_are_brought_to_the_cohorts_spelling_only_on_request():
    shouted = native(case_id=["S1/LCC", "S1/LCC", "S9/RCC"])
    assert boxes_from_frame(shouted, cohort=cohort()).table["case_id"].tolist() == [
        "S1/LCC",
        "S1/LCC",
        "S9/RCC",
    ]
    predictions = boxes_from_frame(shouted, ReadOptions(normalise_ids=("case",)), cohort())
    assert predictions.table["case_id"].tolist() == ["S1/lcc", "S1/lcc", "S9/RCC"]
    assert "2 boxes" in predictions.warnings[0]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(*[st.floats(allow_nan=True, allow_infinity=True, width=32)] * 7), min_size=1, max_size=5
    )
)
def test_whatever_the_numbers_a_row_is_sound_or_has_a_reason(rows):
    table = pd.DataFrame(rows, columns=NATIVE[1:]).assign(case_id="S1/lcc")
    checked = check_boxes(table, extent=volume_extent(cohort()), on_invalid="worst")
    sound = checked["reason"].isna()
    numbers = checked.loc[sound, NATIVE[1:]].to_numpy(dtype=float)
    flat = table[["z", "depth"]].isna().all().all()
    assert np.isfinite(np.delete(numbers, [4, 5], axis=1) if flat else numbers).all()
    assert (checked.loc[sound, ["width", "height"]] >= 0).all().all()
