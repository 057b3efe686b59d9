"""Annotation files of every layout, and what is wrong with real ones: an error, or counted."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations import check_inside, moved, read_annotations, resolve
from elsewhere.inputs.slides.annotations.reading import json_annotations
from worlds.outline_files import asap_xml, square, write

RING = [[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]


def test_asap_groups_of_both_challenges(tmp_path):
    for groups in (("Tumor", "Exclusion"), ("_0", "_2"), ("_1", "_2"), ("metastases", "normal")):
        shapes = [(square(10, 10, 40), groups[0]), (square(20, 20, 10), groups[1])]
        read = read_annotations(write(tmp_path / "a.xml", asap_xml(shapes)))
        assert (len(read.outlines), len(read.exclusions)) == (1, 1)
        assert resolve(read).area_px == 1500
        assert read.sentences() == ["1 outlines of tumour", "1 holes, of one outline or of all"]


def test_points_are_taken_in_their_order(tmp_path):
    text = asap_xml([(square(0, 0, 8), "Tumor")])
    lines = text.split("\n")
    first = next(k for k, line in enumerate(lines) if 'Order="1"' in line)
    lines[first], lines[first + 1] = lines[first + 1], lines[first]
    read = read_annotations(write(tmp_path / "a.xml", "\n".join(lines)))
    assert (read.outlines[0].ring == square(0, 0, 8)).all()


def test_what_is_wrong_with_rings_is_counted(tmp_path):
    bad = [
        (np.array([[0.0, 0], [5, 5]]), "Tumor"),
        (np.array([[0.0, 0], [5, 5], [9, 9]]), "Tumor"),
        (square(0, 0, 8), "Tumor"),
        (square(0, 0, 8), "Tumor"),
        (np.array([[0.0, 0], [8, 0], [8, np.nan]]), "Tumor"),
        (np.array([[0.0, 0], [8, 0], [8, np.inf]]), "Tumor"),
        (square(0, 0, 8), "Necrosis"),
        (np.empty((0, 2)), "Tumor"),
    ]
    read = read_annotations(write(tmp_path / "a.xml", asap_xml(bad)))
    counts = {name: n for name, n in read.counts.items() if n}
    assert counts == {
        "outlines": 1,
        "rings of under three points": 2,
        "rings without area": 1,
        "duplicate rings": 1,
        "points that are not numbers": 2,
        "unknown groups": 1,
    }


def test_dots_are_counted_and_decimal_commas_read(tmp_path):
    dots = read_annotations(write(tmp_path / "d.xml", asap_xml([(square(0, 0, 8), "Tumor")], kind="Dot")))
    assert dots.counts["shapes without area"] == 1 and not dots.outlines
    text = asap_xml([(square(0.5, 0, 8), "Tumor")]).replace('X="0.5"', 'X="0,5"')
    read = read_annotations(write(tmp_path / "c.xml", text))
    assert read.counts["decimal commas"] == 2 and read.outlines[0].ring[0, 0] == 0.5


def test_a_file_of_unknown_groups_asks_for_their_meaning(tmp_path):
    path = write(tmp_path / "a.xml", asap_xml([(square(0, 0, 8), "Lesion A")]))
    with pytest.raises(UserError, match="known meaning: 'Lesion A'"):
        read_annotations(path)
    assert len(read_annotations(path, groups={"lesion a": "tumour"}).outlines) == 1
    with pytest.raises(UserError, match="one of these words"):
        read_annotations(path, groups={"lesion a": "cancer"})


def test_geojson_with_holes_of_qupath():
    hole = [[2, 2], [4, 2], [4, 4], [2, 4], [2, 2]]
    inner = {"type": "Polygon", "coordinates": [RING, hole]}
    named = {"type": "Feature", "geometry": inner, "properties": {"classification": {"name": "Tumor"}}}
    multi = {"type": "MultiPolygon", "coordinates": [[RING], [[[20, 0], [24, 0], [24, 4]]]]}
    point = {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}, "properties": None}
    for tree, area in (
        ({"type": "FeatureCollection", "features": [named, point]}, 60),
        ([named], 60),
        (named, 60),
        (inner, 60),
        (multi, 72),
        ({"type": "GeometryCollection", "geometries": [inner, multi]}, 72),
    ):
        assert resolve(json_annotations(tree)).area_px == area
    ignored = json.loads(json.dumps(named).replace("Tumor", "Ignore*"))
    assert not json_annotations([ignored]).outlines
    assert json_annotations([inner]).counts["without a group"] == 1


def test_a_hole_of_one_polygon_leaves_the_other():
    """A hole of GeoJSON belongs to its polygon; an exclusion of ASAP to all."""
    hole = [[2, 2], [4, 2], [4, 4], [2, 4], [2, 2]]
    tree = {"type": "MultiPolygon", "coordinates": [[RING, hole], [hole]]}
    assert resolve(json_annotations(tree)).area_px == 64


def test_ncrf_json():
    tree = {
        "positive": [{"name": "a", "vertices": RING[:-1]}],
        "negative": [{"name": "b", "vertices": [[0, 0], [2, 0], [2, 8], [0, 8]]}],
    }
    assert resolve(json_annotations(tree)).area_px == 48
    assert not json_annotations({"positive": [], "negative": []}).outlines


@pytest.mark.parametrize(
    "tree",
    [
        3,
        "text",
        None,
        [3],
        {"type": 5},
        {"type": "Feature"},
        {"type": "Nothing"},
        {"type": "FeatureCollection"},
        {"type": "FeatureCollection", "features": 4},
        {"type": "Polygon", "coordinates": 3},
        {"type": "Polygon", "coordinates": [3]},
        {"type": "Polygon", "coordinates": [[3]]},
        {"type": "Polygon", "coordinates": [["ab", "cd", "ef"]]},
        {"type": "Polygon", "coordinates": [[["a", 1], [2, 3], [4, 5]]]},
        {"type": "Polygon", "coordinates": [[[1], [2, 3], [4, 5]]]},
        {"type": "Polygon", "coordinates": [[[1, [2]], [2, 3], [4, 5]]]},
        {"type": "Polygon", "coordinates": [[[1, 2], [2, 3], [4e30, 5]]]},
        {"type": "MultiPolygon", "coordinates": [3]},
        {"positive": 3},
        {"positive": [3]},
        {"positive": [{"vertices": 3}]},
        {"negative": [{}]},
    ],
)
def test_json_that_is_no_annotation(tree):
    with contextlib.suppress(UserError):
        assert json_annotations(tree).outlines == ()


def test_xml_entities_and_document_types_are_refused(tmp_path):
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    outside = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    remote = '<!DOCTYPE ASAP_Annotations SYSTEM "http://example.org/a.dtd">'
    text = asap_xml([(square(0, 0, 8), "Tumor")]).split("\n", 1)[1]
    for declared in (bomb, outside, remote):
        with pytest.raises(UserError, match="document type or an entity"):
            read_annotations(write(tmp_path / "a.xml", declared + text.replace("Tumor", "&b;")))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"II*\0rest", "a TIFF"),
        (b"words", "neither XML nor JSON"),
        (b"<svg></svg>", "begins with <svg>"),
        (b"<ASAP_Annotations><Annotations>", "damaged or cut off"),
        (b"<ASAP_Annotations>\xff\xfe</ASAP_Annotations>", "damaged or cut off"),
        (b"<?xml version='1.0' encoding='nonsense'?><a/>", "damaged or cut off"),
        (b"<a>" * 100, "nested too deeply"),
        (b"[" * 5000, "nested"),
        (b'{"type": "Polygon", "coordinates": [[[NaN, 1]]]}', "cannot be understood"),
        (b'{"type": "Polygon"', "cannot be understood"),
        (b"{\xff}", "UTF-8"),
    ],
)
def test_files_that_are_no_annotations(tmp_path, content, message):
    path = tmp_path / "file.xml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_annotations(path)


def test_files_that_are_not_there(tmp_path):
    for path in (tmp_path, tmp_path / "none.xml"):
        with pytest.raises(UserError):
            read_annotations(path)


def test_utf16_is_read(tmp_path):
    text = asap_xml([(square(0, 0, 8), "Tumor")]).replace('"1.0"', '"1.0" encoding="UTF-16"')
    (tmp_path / "a.xml").write_bytes(text.encode("utf-16"))
    assert len(read_annotations(tmp_path / "a.xml").outlines) == 1


def test_annotations_of_another_slide_are_refused(tmp_path):
    read = read_annotations(write(tmp_path / "a.xml", asap_xml([(square(100, 900, 50), "Tumor")])))
    assert check_inside(read, (1000, 1000)).counts["points outside the slide"] == 0
    with pytest.raises(UserError, match="lie outside of the slide"):
        check_inside(read, (500, 500))
    with pytest.raises(UserError, match="x and y are exchanged"):
        check_inside(read, (1000, 500))
    assert check_inside(moved(read, scale=0.5), (500, 500)).counts["points outside the slide"] == 0
    with pytest.raises(UserError, match="finite"):
        moved(read, scale=float("nan"))


@pytest.mark.real_data
def test_the_real_xml(data_dir):
    file = data_dir / "lymph-nodes/CAMELYON17/patient_004_node_4.xml"
    read = read_annotations(file)
    assert len(read.outlines) == 3
    assert resolve(read).area_px == pytest.approx(252_947, abs=1)
