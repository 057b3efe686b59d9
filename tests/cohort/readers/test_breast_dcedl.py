"""BreastDCEDL: a small set in its layout, its mistakes, and the real one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from elsewhere.cohort import Cohort, audit, data_sheet, load_cohort, read_cohort
from elsewhere.errors import UserError
from elsewhere.study.volumes import volumes_of

SIDE = 16


def row(pid: str, cohort: str, **more) -> dict[str, object]:
    return {
        "filename": f"images/{pid}/slice_003.webp",
        "pid": pid,
        "cohort": cohort,
        "split": "test",
        "label_name": "TripleNeg",
        "roi_source": "mask",
        "bbox_x": 2,
        "bbox_y": 3,
        "bbox_w": 6,
        "bbox_h": 5,
        "slice_thick": 2.0,
        "img_size": SIDE,
        "mm_per_px": 0.5,
        "mamamia_id": f"ID_{pid}",
        "in_mamamia": 1,
        "mm_pcr": 1.0,
        "mm_site": "AAI ",
        "mm_manufacturer": "GE",
        "mm_field_strength": 1.5,
        "mm_age": 44.0,
        "pcr_breastdcedl": 1.0,
    } | more


def patient(pid: str, **more) -> dict[str, object]:
    return {"pid": pid, "pCR": 1.0, "age": 44.5, "menopause": 0.0, "test": 1.0} | more


@pytest.fixture
def world(tmp_path):
    """Writes a set: rows of the index, and of the metadata (None: no such file)."""

    def make(rows, meta="same", pictures=None):
        if isinstance(meta, str):
            meta = [patient(str(each["pid"])) for each in rows]
        pd.DataFrame(rows).to_csv(tmp_path / "index.csv", index=False)
        if meta is not None:
            pd.DataFrame(meta).to_csv(tmp_path / "BreastDCEDL_metadata.csv", index=False)
        rng = np.random.default_rng(0)
        for each in rows if pictures is None else pictures:
            folder = tmp_path / "images" / str(each["pid"])
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (SIDE, SIDE, 3)).astype(np.uint8)).save(
                folder / "slice_003.png"
            )
        return tmp_path

    return make


def said(cohort: Cohort, words: str) -> bool:
    return any(words in warning for warning in cohort.warnings)


def test_a_slice_is_a_volume_of_depth_one(world, tmp_path):
    folder = world([row("a", "duke", mm_site=None), row("b", "spy1"), row("c", "spy2", bbox_x=-4, bbox_h=40)])
    cohort = read_cohort("breast-dcedl", folder)
    cases = cohort.cases
    assert cases["dataset"].tolist() == ["DUKE", "ISPY1", "ISPY2"]
    assert cases["site"].tolist() == ["DUKE", "AAI", "AAI"]
    assert cases["menopausal_status"].tolist() == ["pre"] * 3
    assert cases["age"].tolist() == [44.5] * 3
    assert cases["vendor"].tolist() == ["GE"] * 3
    boxes = cases[["box_x0", "box_y0", "box_x1", "box_y1"]].to_numpy().tolist()
    assert boxes == [[2, 3, 8, 8], [2, 3, 8, 8], [0, 3, 2, SIDE]]
    assert said(cohort, "1 lesion boxes reach beyond the slice and are cut: c")
    assert said(cohort, "3 of 3 patients are in MAMA-MIA too")
    assert {grade.grade for grade in cohort.id_grades.values()} == {"A"}
    volumes = volumes_of(cohort)
    assert volumes.problems() == {}
    assert volumes.grid("DUKE/a").shape == (SIDE, SIDE, 1)
    assert volumes.grid("DUKE/a").spacing_mm == (0.5, 0.5, 2.0)
    assert volumes.phases("DUKE/a") == 3
    assert volumes.lesion_box("ISPY2/c") == (0, 3, 0, 2, SIDE, 1)
    cohort.save(tmp_path / "out")
    assert load_cohort(tmp_path / "out").hash == cohort.hash
    kinds = {finding.kind for finding in audit(cohort)}
    assert "not-the-published-count" in kinds


def test_what_the_tables_say_differently_is_counted(world):
    rows = [
        row("a", "duke", mm_pcr=0.0),
        row("b", "duke", mm_pcr=None, in_mamamia=0),
        row("c", "spy1", mm_age=60.0),
    ]
    meta = [patient("a", pCR=0.0), patient("b", test=2.0), patient("c", menopause=None)]
    rows[2]["mamamia_id"] = rows[0]["mamamia_id"]
    cohort = read_cohort("breast-dcedl", world(rows, meta))
    assert said(cohort, "1 patients have another outcome in BreastDCEDL_metadata.csv, the index is used: a")
    assert said(cohort, "1 patients have another outcome in MAMA-MIA: a")
    assert said(cohort, "1 patients have an outcome here and none in MAMA-MIA: b")
    assert said(cohort, "1 patients are in another part of the published split")
    assert said(cohort, "1 patients are a year or more older or younger in MAMA-MIA: c")
    assert said(cohort, "2 patients share a mamamia_id with another: one woman twice?: a, c")
    assert said(cohort, "1 of 3 patients have no menopausal status (ISPY1 1)")
    assert cohort.cases["pcr"].tolist() == [1, 1, 1]
    assert cohort.cases["mamamia_id"].isna().tolist() == [False, True, False]


def test_nothing_is_dropped_silently(world):
    rows = [row("a", "duke", pcr_breastdcedl=None), row("b", "spy1")]
    cohort = read_cohort("breast-dcedl", world(rows, [patient("a")], [{"pid": "a"}, {"pid": "z"}]))
    assert cohort.counts["cases"] == 2
    assert cohort.counts["without_outcome"] == 1
    assert said(cohort, "1 of 2 patients have no outcome (pcr) (DUKE 1)")
    assert said(cohort, "1 patients have no slice picture: b")
    assert said(cohort, "1 pictures are not in the index: z/slice_003")
    assert said(cohort, "1 patients are not in BreastDCEDL_metadata.csv: b")
    assert cohort.id_grades["ISPY1"].grade == "B"
    assert "ISPY1/b" not in volumes_of(cohort)


def test_without_the_metadata_the_status_is_unknown(world):
    cohort = read_cohort("breast-dcedl", world([row("a", "duke"), row("b", "spy1")], None))
    assert said(cohort, "menopausal status is unknown")
    assert cohort.cases["age"].tolist() == [44, 44]
    assert {grade.grade for grade in cohort.id_grades.values()} == {"B"}


@pytest.mark.parametrize(
    ("more", "meta", "words"),
    [
        ({"cohort": "duk"}, {}, "cohort in row 1 is 'duk'"),
        ({"pcr_breastdcedl": 2}, {}, "pcr_breastdcedl in row 1 is 2"),
        ({"bbox_x": "left"}, {}, "column 'bbox_x'"),
        ({}, {"age": "old"}, "column 'age'"),
        ({}, {"age": 400}, "age in row 1 is 400"),
        ({}, {"age": -1}, "age in row 1 is -1"),
        ({"mm_age": 121}, {}, "mm_age in row 1 is 121"),
        ({}, {"menopause": 3}, "menopause in row 1 is 3"),
    ],
)
def test_values_that_cannot_be(world, more, meta, words):
    folder = world([row("a", "duke") | more, row("b", "spy1")], [patient("a", **meta), patient("b")])
    with pytest.raises(UserError, match=words):
        read_cohort("breast-dcedl", folder)


def test_tables_that_cannot_be(world, tmp_path):
    with pytest.raises(UserError, match=r"no index.csv"):
        read_cohort("breast-dcedl", tmp_path)
    folder = world([{key: value for key, value in row("a", "duke").items() if key != "mm_per_px"}])
    with pytest.raises(UserError, match="no column 'mm_per_px'"):
        read_cohort("breast-dcedl", folder)
    folder = world([row("a", "duke")], [patient("a"), patient("a")])
    with pytest.raises(UserError, match="two rows are of patient 'a'"):
        read_cohort("breast-dcedl", folder)
    folder = world([row("q", "duke", filename="images/else/slice_009.webp")])
    with pytest.raises(UserError, match="none of the slices"):
        read_cohort("breast-dcedl", folder)


def test_the_data_sheet():
    sheet = data_sheet("breast-dcedl")
    assert all(word in sheet for word in ("licence", "citation", "patients", "labels", "known defects"))


@pytest.fixture(scope="module")
def real(data_dir) -> Cohort:
    folder = data_dir / "mri" / "BreastDCEDL"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return read_cohort("breast-dcedl", folder)


@pytest.mark.real_data
def test_the_real_set(real):
    cases = real.cases
    assert cases["dataset"].value_counts().to_dict() == {"DUKE": 272, "ISPY2": 198, "ISPY1": 66}
    known = cases[cases["pcr"].notna()]
    assert known["dataset"].value_counts().to_dict() == {"ISPY2": 198, "DUKE": 87, "ISPY1": 66}
    assert known.groupby("dataset")["pcr"].sum().to_dict() == {"DUKE": 19, "ISPY1": 22, "ISPY2": 64}
    counted = {key: real.counts[key] for key in DEFECTS}
    assert counted == DEFECTS
    volumes = volumes_of(real)
    assert volumes.problems() == {}
    first = volumes.phase("ISPY2/ACRIN-6698-102212", 1)
    assert first.shape == (224, 224, 1)
    assert first.std() > 5


DEFECTS = {
    "outcome_differs_in_metadata": 0,
    "outcome_differs_in_mama_mia": 0,
    "outcome_here_alone": 4,
    "age_differs_in_mama_mia": 0,
    "mamamia_id_twice": 0,
    "split_differs_in_metadata": 11,
    "boxes_cut": 20,
    "boxes_empty": 0,
    "also_in_mama_mia": 352,
    "without_outcome": 185,
    "without_menopausal_status": 75,
    "without_vendor": 184,
    "not_in_metadata": 0,
    "without_picture": 0,
}


@pytest.mark.real_data
def test_the_coding_of_menopause_by_the_same_women_in_mama_mia(real, data_dir):
    other = read_cohort("mama-mia", data_dir / "mri" / "MAMA-MIA").cases.set_index("patient_id")
    told = real.cases["mamamia_id"].map(other["menopausal_status"])
    both = told.notna() & real.cases["menopausal_status"].notna()
    assert int(both.sum()) == 244
    assert (told[both] == real.cases["menopausal_status"][both]).all()
    outcome = real.cases["mamamia_id"].map(other["pcr"])
    same = outcome.notna() & real.cases["pcr"].notna()
    assert int(same.sum()) == 347
    assert (outcome[same] == real.cases["pcr"][same]).all()
