"""The study table: what stops a study before any training, what is counted, what may not be split."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from elsewhere.errors import UserError
from elsewhere.study.file import load_study
from elsewhere.study.table import build_table
from worlds.picture_study import edit


def table_of(study, *changes: str, cache=None):
    return build_table(load_study(study, changes=changes), cache=cache)


def test_columns_and_counts(world):
    made = table_of(world)
    frame = made.frame
    assert list(frame.columns) == [
        "case",
        "dataset",
        "case_id",
        "patient",
        "group",
        "label",
        "box_x0",
        "box_y0",
        "box_x1",
        "box_y1",
        "width",
        "height",
        "image",
        "masks",
        "site",
    ]
    assert made.datasets == ("Alder", "Birch", "Cedar", "Dogwood")
    assert list(dict.fromkeys(frame["dataset"])) == list(made.datasets)
    assert frame["case"].is_unique and tuple(frame["case"]) == made.cases.case
    assert frame["case_id"].is_unique, (
        "predictions are joined by id alone, so that shared ids get their dataset"
    )
    assert (frame["case_id"] == frame["case"].str.replace("/", "_")).all()
    assert (frame["group"] == frame["patient"]).all()
    assert set(zip(frame["width"], frame["height"], strict=True)) == {(24, 20)}
    lesion = (frame["label"] != "normal").to_numpy()
    assert (made.cases.box[lesion] == [3, 2, 15, 12]).all()
    assert not made.cases.box[~lesion].any()
    assert frame["box_x0"].isna().to_numpy().tolist() == (~lesion).tolist()
    about = made.audit["cohorts"]["Alder"]
    assert about["images"] == {"benign": 16, "malignant": 16, "normal": 6}
    assert (about["patients"], about["without_box"], about["invalid_box"]) == (19, 0, 0)
    assert about["id_grade"] in "ABC"


def test_the_order_of_rows_in_a_source_does_not_count(world):
    before = table_of(world)
    path = world.parent / "Birch" / "cohort.csv"
    frame = pd.read_csv(path)
    frame.sample(frac=1, random_state=3).to_csv(path, index=False)
    after = table_of(world)
    assert before.cases.case == after.cases.case
    assert before.cases.digest == after.cases.digest


def test_an_empty_patient_id_stops_before_anything_is_trained_and_names_the_rows(world):
    """US-02."""
    edit(world, "Cedar", lambda t: t.__setitem__("patient_id", t["patient_id"].mask(t.index.isin([3, 8]))))
    with pytest.raises(UserError) as caught:
        table_of(world)
    assert "4, 9" in caught.value.what and "patient_id" in caught.value.what
    made = table_of(world, "study.publication=false")
    assert any("2 rows without a patient id" in word for word in made.audit["warnings"])
    assert made.audit["cohorts"]["Cedar"]["id_grade"] == "C"
    assert made.frame["patient"].str.contains("no id").sum() == 2


def test_a_reader_that_lets_an_empty_id_through_is_stopped_too(world):
    from dataclasses import replace

    from elsewhere.study.cohorts import read_cohorts
    from elsewhere.study.picture_part import join_cohorts

    file = load_study(world)
    cohorts = read_cohorts(file)
    cases = cohorts["Alder"].cases.copy()
    cases.loc[5, "patient_id"] = " "
    cohorts["Alder"] = replace(cohorts["Alder"], cases=cases)
    with pytest.raises(UserError, match=r"1 of 38 patient ids are empty: rows 6 \(m002_1\)"):
        join_cohorts(file, cohorts)


def test_labels_outside_the_list_are_left_out_and_counted(world):
    """US-01."""

    def change(table):
        table.loc[[0, 1], "label"] = "phyllodes"
        table.loc[2, "label"] = None
        table.loc[3, "label"] = "Malignant "

    edit(world, "Alder", change)
    made = table_of(world)
    left = {(gone["dataset"], gone["reason"]): gone["rows"] for gone in made.audit["left_out"]}
    assert left == {
        ("Alder", "label 'phyllodes' is not in the list"): 2,
        ("Alder", "label '(empty)' is not in the list"): 1,
    }
    assert made.audit["cohorts"]["Alder"]["images"]["malignant"] == 13
    assert len(made.frame) == 4 * 38 - 3


def test_a_truncated_picture_is_named_with_its_case_and_file(world):
    path = world.parent / "Birch" / "images" / "b010_1.png"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError) as caught:
        table_of(world)
    assert "Birch/b010_1" in caught.value.what and str(path) == caught.value.where
    path.unlink()
    with pytest.raises(UserError, match=r"Birch/b010_1.*no such file"):
        table_of(world)
    path.write_text("no picture")
    with pytest.raises(UserError, match="it is no picture"):
        table_of(world)


def test_every_bad_picture_is_named_at_once(world):
    for name in ("b008_0", "b009_0"):
        (world.parent / "Alder" / "images" / f"{name}.png").write_bytes(b"")
    with pytest.raises(UserError) as caught:
        table_of(world)
    assert "Alder/b008_0" in caught.value.what and "Alder/b009_0" in caught.value.what


def test_a_lesion_without_a_valid_box_falls_back_and_is_counted(world):
    """US-13, US-03: no box, an empty one, one outside its picture; a box that sticks out stays."""

    def change(table):
        table.loc[0, "box_x0"] = None
        table.loc[1, ["box_x0", "box_x1"]] = (9, 9)
        table.loc[2, ["box_x0", "box_x1"]] = (40, 60)
        table.loc[3, ["box_x1", "box_y1"]] = (99, 99)

    edit(world, "Alder", change)
    made = table_of(world)
    about = made.audit["cohorts"]["Alder"]
    assert (about["without_box"], about["invalid_box"]) == (3, 2)
    assert made.fallbacks(("Alder/m000_0", "Alder/m001_1", "Alder/m000_1", "Alder/n016_0")) == 2
    assert made.cases.box[made.cases.row["Alder/m001_1"]].tolist() == [3, 2, 99, 99]
    assert any("3 lesions have no valid box" in word for word in made.audit["warnings"])


def test_a_mask_that_the_table_lists_and_that_is_not_there_is_counted_also_where_a_box_is(world):
    def change(table):
        table["mask"] = None
        table.loc[1, "mask"] = "not-there.png"

    edit(world, "Alder", change)
    made = table_of(world)
    assert any(
        told.startswith("Alder: masks that the table lists and that are not there: 1 (")
        for told in made.audit["warnings"]
    )
    assert made.audit["cohorts"]["Alder"]["without_box"] == 0


def test_boxes_come_from_masks_where_the_source_has_none(world):
    """US-01; a missing mask is no box."""
    folder = world.parent / "Dogwood"
    mask = np.zeros((20, 24), dtype=np.uint8)
    mask[4:9, 6:20] = 255
    Image.fromarray(mask).save(folder / "mask.png")
    other = np.zeros((20, 24), dtype=np.uint8)
    other[10:12, 2:4] = 255
    Image.fromarray(other).save(folder / "other.png")

    def change(table):
        for name in ("box_x0", "box_y0", "box_x1", "box_y1"):
            table.pop(name)
        table["mask"] = "mask.png"
        table["mask_2_path"] = None
        table.loc[0, "mask_2_path"] = "other.png"
        table.loc[1, "mask"] = "not-there.png"

    edit(world, "Dogwood", change)
    made = table_of(world)
    box = {
        name: made.cases.box[made.cases.row[f"Dogwood/{name}"]].tolist()
        for name in ("m000_0", "m000_1", "m001_0")
    }
    assert box == {"m000_0": [2, 4, 20, 12], "m000_1": [0, 0, 0, 0], "m001_0": [6, 4, 20, 9]}
    assert made.audit["cohorts"]["Dogwood"]["without_box"] == 1


def test_a_dataset_of_one_class_warns(world):
    edit(world, "Cedar", lambda t: t.__setitem__("label", t["label"].replace("malignant", "benign")))
    made = table_of(world)
    assert any("Cedar has one class (benign)" in word for word in made.audit["warnings"])


def test_patients_with_both_labels_stay_one_unit(world):
    edit(world, "Alder", lambda t: t.loc.__setitem__((0, "label"), "benign"))
    made = table_of(world)
    assert made.audit["cohorts"]["Alder"]["patients_with_both_labels"] == 1
    assert any("1 patients carry both labels" in word for word in made.audit["warnings"])


def test_ids_of_pictures(world):
    """The published study's reading, to measure what it is worth."""
    made = table_of(world, "study.ids=image")
    assert (made.frame["patient"] == made.frame["case"]).all()
    about = made.audit["cohorts"]["Alder"]
    assert (about["patients"], about["id_grade"]) == (38, "C")
    assert made.cases.digest == table_of(world).cases.digest


def test_one_dataset_from_two_cohorts(world):
    text = world.read_text().replace("Birch/cohort.csv", "Alder/cohort.csv")
    world.write_text(text)
    with pytest.raises(UserError, match="two cohorts bring the dataset 'Alder'"):
        table_of(world)
    world.write_text(
        text.replace('source = "Alder/cohort.csv"', 'source = "Alder/cohort.csv"\nname = "Again"', 1)
    )
    made = table_of(world)
    assert made.datasets == ("Again", "Alder", "Cedar", "Dogwood")
    assert made.audit["cohorts"]["Again"]["rows"] == 38


def test_a_source_that_is_not_there(world):
    world.write_text(world.read_text().replace("Birch/cohort.csv", "Beech/cohort.csv"))
    with pytest.raises(UserError, match="no such cohort") as caught:
        table_of(world)
    assert "Beech" in (caught.value.where or "")


def test_what_was_seen_of_pictures_is_kept_until_a_file_changes(world, tmp_path, monkeypatch):
    import elsewhere.study.pictures as pictures

    looks: list[str] = []
    look = pictures._look
    monkeypatch.setattr(pictures, "_look", lambda path: looks.append(path.name) or look(path))
    first = table_of(world, cache=tmp_path)
    assert len(looks) == 4 * 38
    looks.clear()
    assert table_of(world, cache=tmp_path).cases.digest == first.cases.digest
    assert looks == []
    Image.fromarray(np.full((20, 24), 9, dtype=np.uint8)).save(
        world.parent / "Alder" / "images" / "b008_0.png"
    )
    second = table_of(world, cache=tmp_path)
    assert looks == ["b008_0.png"]
    assert sum(a != b for a, b in zip(first.cases.digest, second.cases.digest, strict=True)) == 1
    (tmp_path / "pictures.json").write_text("{")
    looks.clear()
    table_of(world, cache=tmp_path)
    assert len(looks) == 4 * 38


def test_duplicates_join_groups_and_are_searched_once(world, tmp_path, monkeypatch):
    """US-30: a copy in another patient, and one in another dataset."""
    rng = np.random.default_rng(5)
    for folder in ("Alder", "Birch", "Cedar", "Dogwood"):
        for path in sorted((world.parent / folder / "images").glob("*.png")):
            blobs = rng.random((12, 15))
            large = Image.fromarray((255 * blobs).astype(np.uint8)).resize(
                (120, 96), Image.Resampling.BICUBIC
            )
            noise = rng.normal(0, 12, (96, 120))
            Image.fromarray(np.clip(np.asarray(large) + noise, 0, 255).astype(np.uint8)).save(path)
    alder, birch = world.parent / "Alder" / "images", world.parent / "Birch" / "images"
    (alder / "b009_0.png").write_bytes((alder / "m001_0.png").read_bytes())
    (birch / "b010_1.png").write_bytes((alder / "b009_1.png").read_bytes())
    together = "scenarios.keep_duplicates_together=true"
    made = table_of(world, together, cache=tmp_path)
    group = dict(zip(made.frame["case"], made.frame["group"], strict=True))
    assert group["Alder/b009_0"] == group["Alder/m001_1"] == group["Birch/b010_0"] == "Alder/p001"
    assert (made.frame["group"] != made.frame["patient"]).sum() == 4
    assert {tuple(pair[:2]) for pair in made.audit["duplicates"]["pairs"]} == {
        ("Alder/b009_0", "Alder/m001_0"),
        ("Alder/b009_1", "Birch/b010_1"),
    }
    import elsewhere.cohort.duplicates as search

    def fail(*_, **__):
        raise AssertionError("searched again")

    monkeypatch.setattr(search, "find_duplicates", fail)
    again = table_of(world, together, cache=tmp_path)
    assert again.audit["duplicates"] == made.audit["duplicates"]
    apart = table_of(world, cache=tmp_path)
    assert (apart.frame["group"] == apart.frame["patient"]).all()
    assert apart.audit["duplicates"]["kept_together"] is False
    with pytest.raises(AssertionError):
        table_of(world, together)


def test_a_published_set_is_read_once_until_a_file_of_it_changes(tmp_path, monkeypatch):
    import elsewhere.study.cohorts as cohorts
    from elsewhere.phantom.ultrasound import Hospital
    from elsewhere.phantom.ultrasound_layouts import write_hospital

    write_hospital(Hospital(name="Alder", layout="busi", patients=8, scale=0.3), tmp_path / "BUSI")
    study = tmp_path / "one.toml"
    study.write_text(
        '[study]\nname = "one"\n[[cohort]]\nreader = "busi"\nsource = "{data}/BUSI"\n'
        '[scenarios]\nkeep_duplicates_together = false\n[inputs.whole]\nkind = "whole"\n[models.cnn]\n'
    )
    calls: list[str] = []
    read = cohorts.read_cohort
    monkeypatch.setattr(cohorts, "read_cohort", lambda *a, **k: calls.append(a[0]) or read(*a, **k))

    def made():
        return build_table(load_study(study, data=tmp_path), cache=tmp_path / "cache")

    first, second = made(), made()
    assert calls == ["busi"]
    pd.testing.assert_frame_equal(first.frame, second.frame)
    assert first.audit == second.audit
    mask = next((tmp_path / "BUSI").rglob("*_mask.png"))
    pixels = np.array(Image.open(mask).convert("L"))
    pixels[:3, :3] = 255
    Image.fromarray(pixels).save(mask)
    third = made()
    assert calls == ["busi", "busi"]
    assert not np.array_equal(third.cases.box, first.cases.box)
