"""Read annotations in ASAP and CAMELYON XML, GeoJSON (QuPath) and NCRF json; the content decides which it is (LN-01).

A file is hostile until read: documents that declare a type or an entity are refused, sizes, depths and numbers of
points are bounded, and a ring that cannot be used is counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations.outlines import (
    MOST_POINTS,
    Annotations,
    Counter,
    Outline,
    clean_ring,
    collect,
)
from elsewhere.untrusted import check_plain_file, parse_json, printable, read_plain_file

TUMOUR, HOLE, IGNORE = "tumour", "hole", "ignore"
GROUPS: Mapping[str, str] = {
    "tumor": TUMOUR,
    "tumour": TUMOUR,
    "metastases": TUMOUR,
    "metastasis": TUMOUR,
    "_0": TUMOUR,
    "_1": TUMOUR,
    "positive": TUMOUR,
    "exclusion": HOLE,
    "_2": HOLE,
    "normal": HOLE,
    "negative": HOLE,
    "hole": HOLE,
    "ignore": IGNORE,
    "ignore*": IGNORE,
    "region*": IGNORE,
    "tissue": IGNORE,
}
"""What the group names of public datasets and of QuPath mean; upper and lower case count as equal."""
MOST_XML_BYTES = 1 << 30
MOST_JSON_BYTES = 256 << 20
_MOST_DEPTH = 64
_CHUNK = 1 << 20
_SHAPES = {"polygon", "rectangle", "spline", ""}
_GEOMETRY_FIX = "Export a GeoJSON FeatureCollection of polygons, as QuPath does."


def read_annotations(path: str | Path, *, groups: Mapping[str, str] | None = None) -> Annotations:
    """Read the annotations of a slide.

    Args:
        path: An XML of ASAP or CAMELYON, a GeoJSON, or a json of NCRF.
        groups: What groups mean that are not known: name to "tumour", "hole" or "ignore". Given meanings replace
            those of `GROUPS`.

    Returns:
        Outlines, exclusions, and what was counted.

    Raises:
        UserError: The file does not exist, is of another format, is damaged or too large, declares XML entities,
            or all its groups are unknown.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".json") as file:
        ...     _ = file.write(b'{"positive": [{"name": "a", "vertices": [[0, 0], [8, 0], [8, 8]]}], "negative": []}')
        ...     file.flush()
        ...     len(read_annotations(file.name).outlines)
        1
    """
    path = Path(path)
    meanings = _meanings(groups or {})
    check_plain_file(path, what="annotation file")
    with path.open("rb") as file:
        head = file.read(4096)
    where = str(path)
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start == b"<" or head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return _read_asap(path, meanings)
    if start in (b"{", b"["):
        content = read_plain_file(path, most=MOST_JSON_BYTES, what="annotation file")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UserError(f"the annotation file is not text in UTF-8 ({error})", where=where) from error
        tree = parse_json(text, where=where, what="annotation file", most_depth=_MOST_DEPTH, any_name=True)
        return json_annotations(tree, groups=meanings, where=where)
    raise UserError(_other_format(head), where=where, fix="Give an ASAP XML, a GeoJSON, or a json of NCRF.")


def _other_format(head: bytes) -> str:
    if not head:
        return "the annotation file is empty"
    if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return "this is a TIFF: masks are opened by `open_mask`"
    if head[:2] == b"PK":
        return "this is a zip archive: unpack it first"
    return "this is neither XML nor JSON"


def _meanings(groups: Mapping[str, str]) -> dict[str, str]:
    made = dict(GROUPS)
    for name, meaning in groups.items():
        if meaning not in (TUMOUR, HOLE, IGNORE):
            raise UserError(
                f"the group '{printable(name)}' is given the meaning '{printable(meaning)}'",
                fix=f"Give one of these words: {TUMOUR}, {HOLE}, {IGNORE}.",
            )
        made[name.strip().casefold()] = meaning
    return made


class _Collector:
    """Sorts shapes by the meaning of their groups."""

    def __init__(self, meanings: Mapping[str, str], where: str) -> None:
        self.meanings, self.where = meanings, where
        self.counter = Counter()
        self.outlines: list[Outline] = []
        self.exclusions: list[Outline] = []
        self.unknown: dict[str, int] = {}
        self.known = 0

    def take(self, rings: Sequence[Any], *, name: str, group: str) -> None:
        """Add a polygon: its outer ring and its holes."""
        key = group.strip().casefold()
        if key in ("", "none"):
            self.counter.add("without a group")
            meaning: str | None = TUMOUR
        else:
            meaning = self.meanings.get(key)
        if meaning is None:
            self.counter.add("unknown groups")
            self.unknown[group] = self.unknown.get(group, 0) + 1
            return
        self.known += 1
        if meaning == IGNORE:
            return
        ring = clean_ring(rings[0], self.counter)
        holes = [
            hole for hole in (clean_ring(given, self.counter) for given in rings[1:]) if hole is not None
        ]
        if ring is None:
            return
        outline = Outline(ring, tuple(holes), name, group)
        (self.outlines if meaning == TUMOUR else self.exclusions).append(outline)

    def finish(self) -> Annotations:
        """Return the annotations; refuse a file of which no group is known."""
        if self.unknown and not self.known:
            names = ", ".join(f"'{printable(name)[:60]}'" for name in list(self.unknown)[:5])
            raise UserError(
                f"no group of these annotations has a known meaning: {names}",
                where=self.where,
                fix=f"Give their meanings, such as groups={{{names.split(', ')[0]}: 'tumour'}}.",
            )
        return collect(self.outlines, self.exclusions, self.counter, where=self.where)


class _AsapParser:
    """Follows the elements of an ASAP file; points are kept as numbers, not as elements."""

    def __init__(self, collector: _Collector) -> None:
        self.collector = collector
        self.depth = self.points = 0
        self.root = ""
        self.shape: Mapping[str, str] | None = None
        self.order: list[float] = []
        self.xy: list[float] = []

    def start(self, name: str, given: Mapping[str, str]) -> None:
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            raise UserError("the annotation file is nested too deeply", where=self.collector.where)
        self.root = self.root or name
        if name == "Annotation":
            self.shape, self.order, self.xy = given, [], []
        elif name == "Coordinate" and self.shape is not None:
            self.points += 1
            if self.points > MOST_POINTS:
                raise UserError(
                    f"the annotation file has more than {MOST_POINTS:,} points", where=self.collector.where
                )
            self.order.append(self.number(given.get("Order", "")))
            self.xy += [self.number(given.get("X", "")), self.number(given.get("Y", ""))]

    def number(self, text: str) -> float:
        if "," in text and "." not in text:
            self.collector.counter.add("decimal commas")
            text = text.replace(",", ".")
        try:
            return float(text) if len(text) < 64 and "_" not in text else float("nan")
        except ValueError:
            return float("nan")

    def end(self, name: str) -> None:
        self.depth -= 1
        if name != "Annotation" or self.shape is None:
            return
        shape, self.shape = self.shape, None
        if shape.get("Type", "").strip().casefold() not in _SHAPES:
            self.collector.counter.add("shapes without area")
            return
        points, order = np.array(self.xy).reshape(-1, 2), np.array(self.order)
        if len(order) and np.isfinite(order).all():
            points = points[np.argsort(order, kind="stable")]
        self.collector.take([points], name=shape.get("Name", ""), group=shape.get("PartOfGroup", ""))


def _read_asap(path: Path, meanings: Mapping[str, str]) -> Annotations:
    where = str(path)
    if path.stat().st_size > MOST_XML_BYTES:
        raise UserError(
            f"the annotation file has more than {MOST_XML_BYTES:,} bytes",
            where=where,
            fix="Check that this is the file you mean.",
        )
    collector = _Collector(meanings, where)
    parsing = _AsapParser(collector)
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def refuse(*_: Any) -> int:
        raise UserError(
            "the XML declares a document type or an entity, which annotations do not need",
            where=where,
            fix="Remove the DOCTYPE, or export the annotations again.",
        )

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    parser.StartElementHandler = parsing.start
    parser.EndElementHandler = parsing.end
    with path.open("rb") as file, _as_user_error(where):
        while chunk := file.read(_CHUNK):
            parser.Parse(chunk, False)
        parser.Parse(b"", True)
    if parsing.root != "ASAP_Annotations":
        raise UserError(
            f"the XML begins with <{printable(parsing.root)[:60]}> and not with <ASAP_Annotations>",
            where=where,
            fix="Give an annotation file of ASAP or CAMELYON.",
        )
    return collector.finish()


@contextlib.contextmanager
def _as_user_error(where: str) -> Iterator[None]:
    try:
        yield
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise UserError(
            f"the XML is damaged or cut off ({printable(str(error))})",
            where=where,
            fix="Export the annotations again, or copy the file again.",
        ) from error


def json_annotations(
    tree: Any, *, groups: Mapping[str, str] | None = None, where: str = "json"
) -> Annotations:
    """Read annotations from parsed JSON: GeoJSON, or NCRF's `positive` and `negative`.

    Args:
        tree: The parsed JSON.
        groups: Meanings of groups by name; None for the known ones.
        where: The file, for messages.

    Returns:
        The annotations.

    Raises:
        UserError: It is neither of the two, or a part of it is not what it must be.

    Example:
        >>> ring = [[0, 0], [8, 0], [8, 8], [0, 0]]
        >>> json_annotations({"type": "Polygon", "coordinates": [ring]}).counts["outlines"]
        1
    """
    collector = _Collector(GROUPS if groups is None else groups, where)
    if isinstance(tree, Mapping) and ("positive" in tree or "negative" in tree):
        for key, group in (("positive", "Tumor"), ("negative", "Exclusion")):
            for number, one in enumerate(_list(tree.get(key, []), f"'{key}'", where)):
                place = f"'{key}', entry {number + 1}"
                if not isinstance(one, Mapping) or "vertices" not in one:
                    raise UserError(f"{place} has no 'vertices'", where=where)
                collector.take(
                    [_points(one["vertices"], place, where)], name=str(one.get("name", "")), group=group
                )
        return collector.finish()
    if isinstance(tree, Mapping) and tree.get("type") == "FeatureCollection":
        features = _list(tree.get("features"), "'features'", where)
    else:
        features = tree if isinstance(tree, list) else [tree]
    for number, feature in enumerate(features):
        _take_feature(feature, f"feature {number + 1}", collector)
    return collector.finish()


def _take_feature(feature: Any, place: str, collector: _Collector) -> None:
    where = collector.where
    if not isinstance(feature, Mapping) or not isinstance(feature.get("type"), str):
        raise UserError(f"{place} is not GeoJSON: it has no 'type'", where=where, fix=_GEOMETRY_FIX)
    given = feature.get("properties")
    properties: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    classification = properties.get("classification")
    named = classification.get("name") if isinstance(classification, Mapping) else classification
    group = named if isinstance(named, str) else ""
    name = properties.get("name") if isinstance(properties.get("name"), str) else ""
    geometry = feature.get("geometry") if feature["type"] == "Feature" else feature
    waiting = [geometry]
    while waiting:
        one = waiting.pop()
        if one is None:
            collector.counter.add("shapes without area")
            continue
        kind = one.get("type") if isinstance(one, Mapping) else None
        if kind == "GeometryCollection":
            waiting += _list(one.get("geometries"), f"{place}, 'geometries'", where)
            continue
        if kind not in ("Polygon", "MultiPolygon"):
            if kind not in ("Point", "MultiPoint", "LineString", "MultiLineString"):
                raise UserError(
                    f"{place} has a geometry of type '{printable(str(kind))[:60]}'",
                    where=where,
                    fix=_GEOMETRY_FIX,
                )
            collector.counter.add("shapes without area")
            continue
        coordinates = _list(one.get("coordinates"), f"{place}, 'coordinates'", where)
        for polygon in [coordinates] if kind == "Polygon" else coordinates:
            rings = [_points(ring, place, where) for ring in _list(polygon, place, where)]
            if rings:
                collector.take(rings, name=str(name), group=group)
            else:
                collector.counter.add("rings of under three points")


def _list(value: Any, place: str, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise UserError(f"{place} is not a list", where=where, fix=_GEOMETRY_FIX)
    return value


def _points(value: Any, place: str, where: str) -> Any:
    points = _list(value, place, where)
    try:
        made = np.array([(p[0], p[1]) for p in points if not isinstance(p, str)], dtype=np.float64)
    except (TypeError, ValueError, IndexError, KeyError, OverflowError) as error:
        raise UserError(f"{place} has a point that is not a pair of numbers", where=where) from error
    if len(made) != len(points):
        raise UserError(f"{place} has a point that is not a pair of numbers", where=where)
    return made.reshape(-1, 2)
