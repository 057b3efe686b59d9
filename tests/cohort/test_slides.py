"""Looking into slides: facts, annotations that contradict the table, near-duplicates; one bad slide ends nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("tifffile", reason="needs the extra 'slides'")
pytest.importorskip("imagecodecs", reason="needs the extra 'slides'")

from elsewhere.cli import main
from elsewhere.cohort import Cohort, load_cohort
from elsewhere.cohort.duplicates import find_duplicates
from elsewhere.cohort.slides import audit_slides
from elsewhere.errors import UserError
from worlds.hospital_slides import (
    asap_xml,
    box,
    compressed_again,
    piece_of_tissue,
    scanned_again,
    write_slide,
)
from worlds.slide_files import APERIO_SECRETS, aperio_description

MACRO = box(200, 200, 400, 300)
"""About 0.9 mm of ellipse axis at 2 um: the axis of a 400 x 300 px rectangle is 462 px."""


@pytest.fixture(scope="session")
def hospital(made_once):
    """Five slides of four patients with one fault each, a copy and a second scan."""

    def make(folder):
        nodes = {name: piece_of_tissue(seed) for seed, name in enumerate(("n1", "n2", "n3", "n4"))}
        nodes["copy of n1"] = compressed_again(nodes["n1"])
        nodes["n2 again"] = scanned_again(nodes["n2"])
        for name, picture in nodes.items():
            write_slide(folder / "slides" / f"{name}.tif", picture)
        write_slide(folder / "slides" / "no scale.tif", piece_of_tissue(7), mpp=None)
        (folder / "slides" / "broken.tif").write_bytes((folder / "slides" / "n4.tif").read_bytes()[:900])
        for name, rings in {
            "n1": [MACRO],
            "n2": [],
            "n3": [box(100, 100, 60, 40), [(0, 0), (80, 80), (80, 0), (0, 80)]],
            "n4": [[(x + 30_000, y) for x, y in MACRO]],
            "no scale": [[(900, 700), (1005, 700), (990, 740), (900, 740), (880, 720)]],
        }.items():
            (folder / "slides" / f"{name}.xml").write_text(asap_xml(rings))
        (folder / "slides" / "broken.xml").write_text("<ASAP_Annotations>")
        (folder / "table.csv").write_text(
            "case_id,patient_id,stage,mpp,split\nn1,p1,macro,,train\nn2,p2,micro,,train\nn3,p3,negative,,test\n"
            "n4,p4,macro,,test\ncopy of n1,p5,negative,,test\nn2 again,p2,micro,,train\nno scale,p6,,0.5,test\n"
            "broken,p7,,,test\nmissing,p8,itc,,test\n"
        )

    return made_once("hospital_slides", make)


@pytest.fixture(scope="session")
def read(hospital, tmp_path_factory):
    out = tmp_path_factory.mktemp("read") / "cohort"
    command = ["cohort", "read", "slides", str(hospital), "--slides", "--out", str(out), "--json"]
    return run(command), load_cohort(out)


def run(command):
    with pytest.raises(SystemExit) as ended:
        main(command)
    return ended.value.code


def findings_of(hospital):
    from elsewhere.cohort import read_cohort

    return {f.kind: f for f in audit_slides(read_cohort("slides", hospital)).findings}


def test_what_is_known_of_each_slide_is_in_the_cohort(read):
    code, cohort = read
    assert code == 0
    cases = cohort.cases.set_index("case_id")
    assert cases.loc["n1", ["width_px", "height_px", "levels", "slide_vendor"]].tolist() == [
        1000,
        760,
        2,
        "generic-tiff",
    ]
    assert cases.loc["n1", "microns_per_pixel"] == pytest.approx(2.0)
    assert cases.loc["no scale", "microns_per_pixel"] == pytest.approx(0.5)
    assert cases.loc[["broken", "missing"], "width_px"].isna().all()
    assert cases.loc["n1", "annotated_axis_mm"] == pytest.approx(400 / 3**0.5 * 2 * 2e-3, rel=1e-6)
    assert cases.loc[["n1", "n2", "n3"], "annotated_stage"].tolist() == ["micro", "negative", "itc"]
    assert cases["annotated_stage"].isna()["n4"]


def test_each_fault_is_found_once_with_its_row(hospital):
    found = findings_of(hospital)
    rows = {kind: finding.rows for kind, finding in found.items()}
    assert rows == {
        "slide-unreadable": (8,),
        "annotation-unreadable": (8,),
        "annotation-of-another-slide": (4,),
        "near-duplicate-slides-two-patients": (1, 5),
        "near-duplicate-slides": (2, 6),
        "outlines-on-negative-slide": (3,),
        "no-outline-on-tumour-slide": (2,),
        "stage-unlike-annotation": (1,),
        "points-outside-slide": (7,),
        "outlines-mended": (3,),
        "microns-unlike-site": (7,),
        "tumour-without-annotation": (6,),
        "slides": (),
    }
    assert {kind for kind, one in found.items() if one.severity == "error"} == {
        "slide-unreadable",
        "annotation-unreadable",
        "annotation-of-another-slide",
        "near-duplicate-slides-two-patients",
    }
    assert "0.5, most have 2" in found["microns-unlike-site"].message
    assert "macro in the table, 0.924 mm is micro" in found["stage-unlike-annotation"].message
    assert "1 with different stages" in found["near-duplicate-slides-two-patients"].message
    assert "8 of 9 cases have a slide, 7 can be read" in found["slides"].message


def test_honest_slides_have_no_fault(tmp_path):
    for seed in range(3):
        write_slide(tmp_path / f"{seed}.tif", piece_of_tissue(20 + seed))
    (tmp_path / "0.xml").write_text(asap_xml([box(100, 100, 600, 400)]))
    table = pd.DataFrame(
        {
            "case_id": list("012"),
            "patient_id": list("abc"),
            "slide": ["0.tif", "1.tif", "2.tif"],
            "annotation": ["0.xml", None, None],
            "stage": ["micro", "negative", None],
        }
    )
    found = audit_slides(Cohort.from_frame(table, root=tmp_path)).findings
    assert [finding.kind for finding in found] == ["slides"]


@pytest.mark.parametrize(
    ("stage", "size", "tumour", "kind"),
    [
        ("micro", (1000, 760), True, None),
        ("macro", (1000, 760), True, "stage-unlike-annotation"),
        ("negative", (1000, 760), True, "outlines-on-negative-slide"),
        ("itc", (1000, 760), False, "no-outline-on-tumour-slide"),
        ("micro", (1000, 400), True, "annotation-of-another-slide"),
    ],
)
def test_masks_are_held_against_the_table(tmp_path, stage, size, tumour, kind):
    from elsewhere.inputs.slides.annotations import write_mask
    from elsewhere.inputs.slides.annotations.outlines import Annotations, Outline

    write_slide(tmp_path / "s.tif", piece_of_tissue(1))
    square = Outline(np.array(box(100, 100, 300, 200), dtype=float))
    write_mask(
        tmp_path / "s_mask.tif", Annotations((square,) if tumour else ()), size_px=size, mpp=2.0, downsample=2
    )
    table = {
        "case_id": ["s"],
        "patient_id": ["p"],
        "slide": ["s.tif"],
        "mask": ["s_mask.tif"],
        "stage": [stage],
    }
    found = audit_slides(Cohort.from_frame(pd.DataFrame(table), root=tmp_path))
    assert {finding.kind for finding in found.findings} == {"slides", *([kind] if kind else [])}
    if kind in (None, "stage-unlike-annotation"):
        axis = found.cohort.cases["annotated_axis_mm"].iloc[0]
        assert axis == pytest.approx(300 / 3**0.5 * 2 * 2e-3, rel=0.01)


def test_the_search_compares_tissue_and_not_glass(hospital):
    """The slide saved again and the second scan are found; different nodes are not, whatever glass they show."""
    from elsewhere.cohort import read_cohort

    cohort = read_cohort("slides", hospital)
    readable = cohort.cases["case_id"].isin(["n1", "n2", "n3", "n4", "copy of n1", "n2 again"])
    found = find_duplicates([cohort.subset(readable)], threads=1)
    pairs = {frozenset(pair) for pair in zip(found.pairs["case_a"], found.pairs["case_b"], strict=True)}
    assert pairs == {frozenset({"n1", "copy of n1"}), frozenset({"n2", "n2 again"})}
    assert (found.pairs["distance"] < found.pairs["threshold"]).all()


def test_pictures_and_slides_are_not_compared_with_each_other(hospital):
    one = pd.DataFrame({"case_id": ["a"], "patient_id": ["p"], "dataset": ["A"], "image": ["a.png"]})
    two = pd.DataFrame({"case_id": ["b"], "patient_id": ["q"], "dataset": ["B"], "slide": ["b.tif"]})
    with pytest.raises(UserError, match="some of the cohorts have pictures and some whole slides"):
        find_duplicates([Cohort.from_frame(one), Cohort.from_frame(two)])


def test_a_cohort_without_slides_is_refused(tmp_path):
    table = pd.DataFrame({"case_id": ["a"], "patient_id": ["p"]})
    with pytest.raises(UserError, match="names no slides and no annotations"):
        audit_slides(Cohort.from_frame(table, root=tmp_path))


def everything_below(folder) -> bytes:
    """The bytes of every file, and of every parquet table also the values, as packing may hide words."""
    parts = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            parts.append(path.read_bytes())
            if path.suffix == ".parquet":
                parts.append(pd.read_parquet(path).to_csv().encode())
    return b"\n".join(parts)


def test_user_date_and_original_name_inside_of_a_slide_reach_no_output(tmp_path, capfd):
    source = tmp_path / "slides"
    for name, seed in (("a", 1), ("b", 2)):
        write_slide(
            source / f"{name}.svs",
            piece_of_tissue(seed),
            mpp=None,
            colour="RGB",
            description=aperio_description(2.0),
        )
    write_slide(
        source / "c.svs", piece_of_tissue(1), mpp=None, colour="RGB", description=aperio_description(2.0)
    )
    for secret in APERIO_SECRETS:
        assert secret.encode() in (source / "a.svs").read_bytes(), secret
    out = tmp_path / "out"
    for command in (
        ["cohort", "read", "slides", str(source), "--slides", "--out", str(out / "cohort")],
        ["cohort", "read", "slides", str(source), "--slides", "--out", str(out / "again"), "--json"],
        ["cohort", "describe", str(out / "cohort")],
        ["cohort", "duplicates", str(out / "cohort"), "--out", str(out / "pairs")],
        ["slides", "show", str(source / "a.svs"), "--json", "--no-tissue"],
    ):
        assert run(command) == 0
    printed = capfd.readouterr()
    written = everything_below(out) + printed.out.encode() + printed.err.encode()
    assert b"aperio" in written and len(pd.read_csv(out / "pairs" / "pairs.csv")) == 1
    for secret in APERIO_SECRETS:
        assert secret.encode() not in written, secret
