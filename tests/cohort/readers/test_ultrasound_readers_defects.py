"""Every defect that the ultrasound readers look for, planted one at a time in an otherwise sound set."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import worlds.ultrasound_sets as sets
from elsewhere.cohort import audit, read_cohort
from elsewhere.cohort.readers.pictures import natural_key, see_mask, see_picture, union
from elsewhere.errors import UserError


def named(cohort, count, *words, n=1):
    """The count, and a warning that has all the words."""
    assert cohort.counts[count] == n, {k: v for k, v in cohort.counts.items() if v}
    assert any(all(word in line for word in words) for line in cohort.warnings), cohort.warnings


def box_of(cohort, case):
    row = cohort.cases[cohort.cases["case_id"] == case].iloc[0]
    values = [row[name] for name in ("box_x0", "box_y0", "box_x1", "box_y1")]
    return None if np.isnan(values[0]) else tuple(int(v) for v in values)


@pytest.mark.parametrize("cut", [0, 20, 200])
def test_a_truncated_picture_is_named_with_what_to_do(cut, tmp_path):
    top = sets.busi(tmp_path)
    path = top / "malignant" / "malignant (1).png"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(UserError, match="the picture cannot be decoded") as told:
        read_cohort("busi", tmp_path)
    assert told.value.where == str(path)
    assert "Fetch the file again" in told.value.fix


def test_a_picture_that_claims_an_absurd_size(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    sets.busi(tmp_path)
    with pytest.raises(UserError, match="the picture cannot be decoded"):
        read_cohort("busi", tmp_path)


def test_all_truncated_files_are_named_at_once(tmp_path):
    top = sets.bus_bra(tmp_path)
    for name in ("mask_0001-l", "mask_0002-l"):
        path = top / "Masks" / f"{name}.png"
        path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match=r"the mask cannot be decoded .* and 1 more: mask_0002-l\.png"):
        read_cohort("bus-bra", tmp_path)


def test_a_truncated_picture_that_is_moved_away_is_counted(tmp_path):
    top = sets.bus_bra(tmp_path)
    (top / "Images" / "bus_0003-s.png").unlink()
    cohort = read_cohort("bus-bra", tmp_path)
    assert len(cohort.cases) == 4
    assert cohort.counts["rows_left_out"] == {"listed in the table, but the picture is not there": 1}
    named(cohort, "pictures_missing", "left out", "bus_0003-s")
    named(cohort, "masks_without_picture", "mask_0003-s.png")


def test_no_picture_at_all_is_an_error(tmp_path):
    top = sets.bus_bra(tmp_path)
    for path in (top / "Images").iterdir():
        path.unlink()
    with pytest.raises(UserError, match="none of the 5 pictures"):
        read_cohort("bus-bra", tmp_path)


def test_a_picture_that_the_table_does_not_list(tmp_path):
    top = sets.bus_uclm(tmp_path)
    sets.save_picture(top / "images" / "CCCC_000.png", 9)
    cohort = read_cohort("bus-uclm", tmp_path)
    assert len(cohort.cases) == 4
    named(cohort, "pictures_not_in_table", "CCCC_000.png")


@pytest.mark.parametrize(
    ("name", "mask"), [("busi", "benign/benign (2)_mask.png"), ("bus-uclm", "masks/AAAA_000.png")]
)
def test_a_missing_mask_keeps_the_row_without_a_box(name, mask, tmp_path):
    top = {"busi": sets.busi, "bus-uclm": sets.bus_uclm}[name](tmp_path)
    (top / mask).unlink()
    cohort = read_cohort(name, tmp_path)
    case = "benign (2)" if name == "busi" else "AAAA_000"
    named(cohort, "lesions_without_mask", case)
    assert box_of(cohort, case) is None
    assert cohort.cases.set_index("case_id")["mask"].isna()[case]
    boxes = next(finding for finding in audit(cohort) if finding.kind == "boxes")
    assert boxes.severity == "warning"


def test_a_missing_mask_is_not_said_to_cost_a_box_that_the_table_gives(tmp_path):
    top = sets.bus_bra(tmp_path)
    (top / "Masks" / "mask_0003-s.png").unlink()
    cohort = read_cohort("bus-bra", tmp_path)
    named(cohort, "lesions_without_mask", "with the table's box", "bus_0003-s")
    assert box_of(cohort, "bus_0003-s") is not None
    assert not any("without a box" in warning for warning in cohort.warnings)


def test_a_mask_without_a_picture(tmp_path):
    top = sets.busi(tmp_path)
    sets.save_mask(top / "benign" / "benign (77)_mask.png")
    named(read_cohort("busi", tmp_path), "masks_without_picture", "benign (77)_mask.png")


def test_a_mask_of_another_size_gives_no_box(tmp_path):
    top = sets.bus_uclm(tmp_path)
    sets.save_mask(top / "masks" / "BBBB_001.png", colour=sets.RED, size=(80, 60))
    sets.save_mask(top / "masks" / "AAAA_001.png", None, colour=sets.RED, size=(80, 60))
    cohort = read_cohort("bus-uclm", tmp_path)
    named(cohort, "masks_of_other_size", "BBBB_001", "(1 of them show a lesion)", n=2)
    assert box_of(cohort, "BBBB_001") is None


def test_one_mask_of_two_does_not_fit(tmp_path):
    top = sets.busi(tmp_path)
    sets.save_mask(top / "benign" / "benign (1)_mask_1.png", (20, 2, 30, 9), size=(41, 30))
    cohort = read_cohort("busi", tmp_path)
    assert box_of(cohort, "benign (1)") == (5, 6, 15, 16)
    assert cohort.counts["masks_of_other_size"] == 1


def test_an_empty_mask_of_a_lesion_and_a_full_one_of_a_normal(tmp_path):
    top = sets.busi(tmp_path)
    sets.save_mask(top / "benign" / "benign (2)_mask.png", None)
    sets.save_mask(top / "normal" / "normal (1)_mask.png", (0, 0, 40, 30))
    cohort = read_cohort("busi", tmp_path)
    named(cohort, "lesions_with_empty_mask", "benign (2)")
    named(cohort, "normals_with_lesion_mask", "normal (1)", "the label is used")
    named(cohort, "masks_that_fill_the_picture", "normal (1)_mask", "inverted")
    assert box_of(cohort, "normal (1)") is None


@pytest.mark.parametrize(
    ("colour", "count", "word"),
    [(sets.RED, "masks_against_label", "AAAA_000"), (sets.BLUE, "masks_of_unknown_colour", "AAAA_000: blue")],
)
def test_a_mask_in_another_colour_than_the_label(colour, count, word, tmp_path):
    top = sets.bus_uclm(tmp_path)
    sets.save_mask(top / "masks" / "AAAA_000.png", colour=colour)
    cohort = read_cohort("bus-uclm", tmp_path)
    named(cohort, count, word)
    assert cohort.cases.set_index("case_id")["label"]["AAAA_000"] == "benign"
    assert box_of(cohort, "AAAA_000") == (5, 6, 15, 16)


def test_a_white_mask_has_no_meaning_where_colours_have(tmp_path):
    top = sets.bus_uclm(tmp_path)
    sets.save_mask(top / "masks" / "AAAA_000.png")
    named(read_cohort("bus-uclm", tmp_path), "masks_of_unknown_colour", "AAAA_000: white")


def test_a_palette_mask_is_read_by_its_colours(tmp_path):
    top = sets.bus_uclm(tmp_path)
    path = top / "masks" / "BBBB_001.png"
    Image.open(path).convert("P", palette=Image.Palette.ADAPTIVE).save(path)
    cohort = read_cohort("bus-uclm", tmp_path)
    assert cohort.counts["masks_against_label"] == 0
    assert box_of(cohort, "BBBB_001") == (5, 6, 15, 16)


@pytest.mark.parametrize(
    ("name", "column", "table"),
    [
        ("bus-bra", "Pathology", sets.bra_table),
        ("bus-uclm", "Label", sets.uclm_table),
        ("breast", "Classification", sets.breast_table),
    ],
)
@pytest.mark.parametrize("word", ["suspicious", ""])
def test_a_label_outside_the_list_leaves_the_row_out(name, column, table, word, tmp_path):
    rows = table()
    rows[0][column] = word
    {"bus-bra": sets.bus_bra, "bus-uclm": sets.bus_uclm, "breast": sets.breast}[name](tmp_path, rows)
    cohort = read_cohort(name, tmp_path)
    assert len(cohort.cases) == len(rows) - 1
    why = "label 'suspicious' is none of benign, malignant, normal" if word else "no label"
    assert cohort.counts["rows_left_out"] == {why: 1}
    assert any(line.startswith(f"left out, {why}: 1") for line in cohort.warnings)


def test_a_fourth_folder_of_busi_is_left_out(tmp_path):
    top = sets.busi(tmp_path)
    sets.save_picture(top / "unclear" / "unclear (1).png", 8)
    sets.save_picture(top / "benign" / "malignant (9).png", 9)
    cohort = read_cohort("busi", tmp_path)
    assert cohort.counts["rows_left_out"] == {"label 'unclear' is none of benign, malignant, normal": 1}
    named(cohort, "names_against_folder", "malignant (9)")


def test_a_picture_that_is_named_twice_is_refused(tmp_path):
    rows = sets.bra_table()
    sets.bus_bra(tmp_path, [*rows, rows[1]])
    with pytest.raises(UserError, match=r"'bus_0001-r' \(row 2, row 6\)"):
        read_cohort("bus-bra", tmp_path)
    top = sets.busi(tmp_path / "busi")
    for label in ("benign", "malignant"):
        sets.save_picture(top / label / "scan.png")
    with pytest.raises(UserError, match=r"'scan' \(benign/scan.png, malignant/scan.png\)"):
        read_cohort("busi", top)


def test_boxes_of_the_table_are_compared_and_stand_in(tmp_path):
    rows = sets.bra_table()
    rows[0]["BBOX"] = "[2,3,20,20]"
    rows[1]["Height"] = "99"
    top = sets.bus_bra(tmp_path, rows)
    (top / "Masks" / "mask_0003-s.png").unlink()
    cohort = read_cohort("bus-bra", tmp_path)
    named(cohort, "boxes_differ_from_table", "bus_0001-l", "the mask's is used")
    named(cohort, "sizes_differ_from_table", "bus_0001-r")
    named(cohort, "boxes_from_table", "bus_0003-s")
    assert box_of(cohort, "bus_0001-l") == box_of(cohort, "bus_0003-s") == (5, 6, 15, 16)


@pytest.mark.parametrize("text", ["[5,6,10,10]", "[6,7,10,10]", "[5,6,9,9]"])
def test_the_tables_convention_is_the_one_the_masks_agree_with(text, tmp_path):
    sets.bus_bra(tmp_path, [row | {"BBOX": text} for row in sets.bra_table()])
    assert read_cohort("bus-bra", tmp_path).counts["boxes_differ_from_table"] == 0


def test_names_cases_and_folds_of_bus_bra_must_agree(tmp_path):
    rows = sets.bra_table()
    rows[1] |= {"BIRADS": "2"}
    rows[2] |= {"Side": "right"}
    top = sets.bus_bra(tmp_path, rows)
    folds = pd.DataFrame(
        {"ID": [r["ID"] for r in rows], "Pathology": ["benign"] * 5, "kFold": [1, 2, 3, 3, 4]}
    )
    folds.to_csv(top / "5-fold-cv.csv", index=False)
    cohort = read_cohort("bus-bra", tmp_path)
    named(cohort, "names_against_table", "bus_0002-l")
    named(cohort, "cases_with_two_birads", "(1)")
    named(cohort, "cases_in_two_of_5_folds", "(1)")
    named(cohort, "labels_differ_from_5_folds", "bus_0002-l, bus_0002-r", n=2)
    assert cohort.cases["fold_5"].tolist() == [1, 2, 3, 3, 4]


def test_masks_of_breast_that_the_table_and_the_folder_do_not_share(tmp_path):
    sets.breast(tmp_path)
    folder = tmp_path / "BrEaST-Lesions_USG-images_and_masks"
    (folder / "case002_other1.png").unlink()
    sets.save_mask(folder / "case001_other1.png")
    sets.save_mask(folder / "case099_tumor.png")
    cohort = read_cohort("breast", tmp_path)
    named(cohort, "masks_missing", "case002_other1.png")
    named(cohort, "masks_not_in_table", "case001_other1.png")
    named(cohort, "masks_without_picture", "case099_tumor.png")
    assert cohort.counts["other_masks"] == 1


def test_the_same_pixels_under_two_ids_lower_the_grade(tmp_path):
    top = sets.bus_uclm(tmp_path)
    assert read_cohort("bus-uclm", tmp_path).id_grades["BUS-UCLM"].grade == "A"
    Image.open(top / "images" / "AAAA_000.png").save(top / "images" / "BBBB_000.png")
    cohort = read_cohort("bus-uclm", tmp_path)
    grade = cohort.id_grades["BUS-UCLM"]
    assert grade.grade == "B"
    assert "AAAA and BBBB" in grade.why
    named(cohort, "identical_pictures", "AAAA_000 = BBBB_000")
    assert cohort.counts["identical_pictures_with_two_labels"] == 0


def test_the_same_pixels_with_two_labels_in_two_formats(tmp_path):
    top = sets.busi(tmp_path)
    same = Image.open(top / "benign" / "benign (2).png").convert("RGB")
    (top / "malignant" / "malignant (1).png").unlink()
    same.save(top / "malignant" / "malignant (1).bmp")
    cohort = read_cohort("busi", tmp_path)
    named(cohort, "identical_pictures_with_two_labels", "benign (2) = malignant (1)")


def test_flags_of_bus_uclm(tmp_path):
    rows = sets.uclm_table()
    rows[0]["Doppler"] = "Y"
    rows[3]["Doppler"] = "Yes"
    top = sets.bus_uclm(tmp_path, rows)
    cohort = read_cohort("bus-uclm", tmp_path)
    assert cohort.cases["doppler"].tolist() == ["yes", "no", "no", "yes"]
    assert cohort.counts["pictures_with_doppler"] == 2
    assert any("'Y' in 1 rows, read as yes" in line for line in cohort.warnings)
    assert any("none of the 2 pictures marked as Doppler is coloured" in line for line in cohort.warnings)
    grey = Image.open(top / "images" / "AAAA_000.png").convert("RGB")
    grey.paste((255, 0, 0), (0, 0, 10, 10))
    grey.save(top / "images" / "AAAA_000.png")
    cohort = read_cohort("bus-uclm", tmp_path)
    assert cohort.counts["coloured_pictures"] == 1
    assert not any("lost its colour" in line for line in cohort.warnings)


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        (
            (2, 16, 16),
            ["'marks' goes with the label (10% of benign, 80% of malignant; Fisher's exact p < 0.0001"],
        ),
        (
            (18, 18, 0),
            ["'marks' separates lesions from normals (90% of lesions, 0% of normals; Fisher's exact p < 0"],
        ),
        ((10, 12, 11), []),
        ((0, 3, 1), []),
    ],
)
def test_marks_that_go_with_the_label_are_said(tmp_path, marked, said):
    """Clearly: 15 points; and surely: 3 of 20 against none is p = 0.23."""
    rows, top = [], tmp_path / "BUS-UCLM"
    for label, few in zip(("Benign", "Malignant", "Normal"), marked, strict=True):
        for at in range(20):
            stem = f"{label[0]}{at:03d}_000"
            sets.save_picture(top / "images" / f"{stem}.png", at + 20 * ord(label[0]))
            box, colour = (None if label == "Normal" else (5, 6, 15, 16)), sets.GREEN
            sets.save_mask(top / "masks" / f"{stem}.png", box, colour=colour)
            rows.append({"Image": f"{stem}.png", "Label": label, "Marks": "Yes" if at < few else "No"})
    pd.DataFrame(rows).to_csv(top / "INFO.csv", sep=";", index=False)
    warned = [line for line in read_cohort("bus-uclm", tmp_path).warnings if "a network can read" in line]
    assert [line[: len(wanted)] for line, wanted in zip(warned, said, strict=True)] == said


def test_specks_soft_edges_and_parts(tmp_path):
    pixels = np.zeros((200, 300), dtype=np.uint8)
    pixels[50:120, 60:160] = 255
    pixels[10, 290] = 255
    Image.fromarray(pixels).save(tmp_path / "speck.png")
    seen = see_mask(tmp_path / "speck.png")
    assert (seen.parts, seen.specks) == (1, 1)
    assert seen.box == (60, 10, 291, 120)
    assert seen.core == (60, 50, 160, 120)
    pixels[10, 290] = 0
    pixels[150:180, 200:240] = 90
    Image.fromarray(pixels).save(tmp_path / "two.png")
    seen = see_mask(tmp_path / "two.png")
    assert (seen.parts, seen.specks, seen.greys) == (2, 0, 1)


def test_a_lossy_mask_has_no_box_of_noise(tmp_path):
    pixels = np.zeros((64, 64), dtype=np.uint8)
    pixels[16:32, 16:40] = 255
    Image.fromarray(pixels).save(tmp_path / "m.jpg", quality=60)
    assert see_mask(tmp_path / "m.jpg").box == (16, 16, 40, 32)
    Image.fromarray(np.full((64, 64), 3, dtype=np.uint8)).save(tmp_path / "e.jpg")
    assert see_mask(tmp_path / "e.jpg").box is None


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "I;16"])
@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 30),
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=6),
)
def test_the_box_is_that_of_the_pixels(mode, tmp_path_factory, height, width, points):
    plain = np.zeros((height, width), dtype=np.uint8)
    for y, x in points:
        if y < height and x < width:
            plain[y, x] = 255
    path = tmp_path_factory.mktemp("mask") / "m.png"
    image = Image.fromarray(plain)
    if mode == "I;16":
        image = Image.fromarray(plain.astype(np.uint16) * 257)
    elif mode != "L":
        image = image.convert(mode)
    image.save(path)
    seen = see_mask(path)
    ys, xs = np.nonzero(plain)
    expected = (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1) if len(ys) else None
    assert seen.box == expected
    assert seen.pixels == len(ys)
    assert seen.size == (width, height)


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(10, 20), st.integers(10, 20)), min_size=1
    )
)
def test_the_union_holds_every_box_and_touches_its_sides(boxes):
    x0, y0, x1, y1 = union(boxes)
    assert all(x0 <= b[0] and y0 <= b[1] and x1 >= b[2] and y1 >= b[3] for b in boxes)
    assert x0 in {b[0] for b in boxes}
    assert y1 in {b[3] for b in boxes}
    assert union([]) is None


def test_the_digest_is_of_pixels_not_of_files(tmp_path):
    path = sets.save_picture(tmp_path / "a.png", 3)
    Image.open(path).convert("RGB").save(tmp_path / "b.tiff")
    sets.save_picture(tmp_path / "c.png", 4)
    a, b, c = (see_picture(tmp_path / name) for name in ("a.png", "b.tiff", "c.png"))
    assert a.digest == b.digest != c.digest


def test_natural_order():
    assert sorted(["b (10)", "b (9)", "a (11)"], key=natural_key) == ["a (11)", "b (9)", "b (10)"]
