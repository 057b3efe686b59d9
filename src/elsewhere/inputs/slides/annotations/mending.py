"""Turn annotations into valid polygons: simple shells and holes that do not cross, by the rule of `outlines`.

Other programs read a ring that crosses itself, or polygons that overlap, each in its own way. Before outlines are
written, the region they mean is computed exactly: coordinates are rounded to 1/256 pixel, edges are split wherever
they meet (whole-number arithmetic, so that no case is undecided), each piece is kept if the region lies on one side of
it alone, and the pieces are joined to rings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations.outlines import Annotations, Outline, Ring
from elsewhere.inputs.slides.annotations.scanning import RingTable, ring_table
from elsewhere.inputs.stain import kernels

PARTS = 256
"""Coordinates are rounded to one part in this many of a pixel."""
_MOST_PAIRS = 1 << 32
"""Comparisons of edges in all rounds together."""
_ROUNDS = 30
MOST_PIECES = 20_000_000
Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Region:
    """A region as polygons that do not cross.

    Attributes:
        polygons: Each a shell and its holes; shells turn one way and holes the other.
        counts: "rings that cross themselves", "rings that overlap" and "holes partly outside".
    """

    polygons: tuple[Outline, ...]
    counts: dict[str, int]

    @property
    def area_px(self) -> float:
        """The area in square pixels of level 0."""
        return sum(
            abs(ring_area(polygon.ring)) - sum(abs(ring_area(hole)) for hole in polygon.holes)
            for polygon in self.polygons
        )


def ring_area(ring: Ring) -> float:
    """Return the signed area of a ring.

    Args:
        ring: [points, 2].

    Returns:
        Square pixels; positive where x turns towards y.

    Example:
        >>> ring_area(np.array([[0.0, 0], [4, 0], [4, 3]]))
        6.0
    """
    x, y = (ring - ring[0]).T
    return float((x * np.roll(y, -1) - y * np.roll(x, -1)).sum() / 2)


def pairs_that_meet(edges: Any, order: Any, out: Any, most: int) -> Any:
    """Find the pairs of edges that meet elsewhere than at common ends.

    Args:
        edges: int64 [edges, 4].
        order: The edges by their least x.
        out: int64 [pairs, 2], filled as far as it reaches.
        most: The largest number of comparisons.

    Returns:
        The number of pairs that meet, and the number of comparisons; -1 pairs where there were too many.

    Example:
        >>> cross = np.array([[0, 0, 4, 4], [0, 4, 4, 0]])
        >>> pairs_that_meet(cross, np.array([0, 1]), np.zeros((4, 2), dtype=np.int64), 99).tolist()
        [1, 1]
    """
    n = 0
    looked = 0
    for a in range(order.shape[0]):
        i = order[a]
        ax, ay, bx, by = edges[i, 0], edges[i, 1], edges[i, 2], edges[i, 3]
        right = max(ax, bx)
        low, high = min(ay, by), max(ay, by)
        for b in range(a + 1, order.shape[0]):
            j = order[b]
            cx, cy, dx, dy = edges[j, 0], edges[j, 1], edges[j, 2], edges[j, 3]
            if min(cx, dx) > right:
                break
            looked += 1
            if max(cy, dy) < low or min(cy, dy) > high:
                continue
            o1 = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
            o2 = (bx - ax) * (dy - ay) - (by - ay) * (dx - ax)
            if (o1 > 0 and o2 > 0) or (o1 < 0 and o2 < 0):
                continue
            o3 = (dx - cx) * (ay - cy) - (dy - cy) * (ax - cx)
            o4 = (dx - cx) * (by - cy) - (dy - cy) * (bx - cx)
            if (o3 > 0 and o4 > 0) or (o3 < 0 and o4 < 0):
                continue
            proper = o1 != 0 and o2 != 0 and o3 != 0 and o4 != 0
            inside = False
            for k in range(4):
                if k < 2:
                    sx, sy, tx, ty = ax, ay, bx, by
                    px, py = (cx, cy) if k == 0 else (dx, dy)
                    turn = o1 if k == 0 else o2
                else:
                    sx, sy, tx, ty = cx, cy, dx, dy
                    px, py = (ax, ay) if k == 2 else (bx, by)
                    turn = o3 if k == 2 else o4
                if turn != 0 or (px == sx and py == sy) or (px == tx and py == ty):
                    continue
                if min(sx, tx) <= px <= max(sx, tx) and min(sy, ty) <= py <= max(sy, ty):
                    inside = True
            if proper or inside:
                if n < out.shape[0]:
                    out[n, 0] = i
                    out[n, 1] = j
                n += 1
        if looked > most:
            return np.array([-1, looked])
    return np.array([n, looked])


def sides(pieces: Any, start: Any, entries: Any, rings: Any, order: Any, asked: Any, out: Any) -> int:
    """Find for pieces of edges whether the region lies on either side of them.

    Args:
        pieces: int64 [pieces, 4], doubled coordinates; each place once, the end with more y last; none level.
        start: Where the entries of each piece begin, [pieces + 1].
        entries: The rings that run along a piece, and how often each does (positive towards more y), [2, entries].
        rings: Role and owner of each ring, [2, rings]; see `RingTable`.
        order: The pieces by their lower y.
        asked: Some pieces by the y of their middle.
        out: uint8 [pieces, 2]: receives whether the region lies on the side of less x, and of more x.

    Returns:
        The number of pieces asked about.

    Example:
        >>> piece, one, ring = np.array([[0, 0, 0, 8]]), np.zeros(1, dtype=np.int64), np.zeros((2, 1), dtype=np.int64)
        >>> out = np.zeros((1, 2), dtype=np.uint8)
        >>> sides(piece, np.array([0, 1]), np.array([[0], [1]]), ring, one, one, out), out.tolist()
        (1, [[0, 1]])
    """
    ring, turns, role, owner = entries[0], entries[1], rings[0], rings[1]
    n = pieces.shape[0]
    winding = np.zeros(role.shape[0], dtype=np.int64)
    outer = np.zeros(role.shape[0] + 1, dtype=np.int64)
    holes = np.zeros(role.shape[0] + 1, dtype=np.int64)
    touched = np.empty(role.shape[0], dtype=np.int64)
    active = np.empty(n, dtype=np.int64)
    n_active = 0
    upcoming = 0
    for a in range(asked.shape[0]):
        e = asked[a]
        mx, my = (pieces[e, 0] + pieces[e, 2]) // 2, (pieces[e, 1] + pieces[e, 3]) // 2
        while upcoming < n and pieces[order[upcoming], 1] <= my:
            active[n_active] = order[upcoming]
            n_active += 1
            upcoming += 1
        n_touched = 0
        k = 0
        while k < n_active:
            f = active[k]
            if pieces[f, 3] <= my:
                n_active -= 1
                active[k] = active[n_active]
                continue
            k += 1
            if f == e:
                continue
            fx, fy, gx, gy = pieces[f, 0], pieces[f, 1], pieces[f, 2], pieces[f, 3]
            if fx > mx and gx > mx:
                continue
            if not (fx < mx and gx < mx) and (gx - fx) * (my - fy) - (gy - fy) * (mx - fx) >= 0:
                continue
            for i in range(start[f], start[f + 1]):
                r = ring[i]
                if winding[r] == 0:
                    touched[n_touched] = r
                    n_touched += 1
                winding[r] += turns[i]
                if winding[r] == 0:
                    for t in range(n_touched):
                        if touched[t] == r:
                            n_touched -= 1
                            touched[t] = touched[n_touched]
                            break
        for side in range(2):
            if side == 1:
                for i in range(start[e], start[e + 1]):
                    r = ring[i]
                    if winding[r] == 0:
                        touched[n_touched] = r
                        n_touched += 1
                    winding[r] += turns[i]
            positive = False
            excluded = False
            for t in range(n_touched):
                r = touched[t]
                if winding[r] != 0:
                    if role[r] == 2:
                        excluded = True
                    elif role[r] == 0:
                        outer[owner[r]] += 1
                    else:
                        holes[owner[r]] += 1
            for t in range(n_touched):
                r = touched[t]
                o = owner[r]
                if winding[r] != 0 and role[r] == 0 and outer[o] > 0 and holes[o] == 0:
                    positive = True
            for t in range(n_touched):
                outer[owner[touched[t]]] = 0
                holes[owner[touched[t]]] = 0
            out[e, side] = 1 if positive and not excluded else 0
        for t in range(n_touched):
            winding[touched[t]] = 0
    return int(asked.shape[0])


def resolve(annotations: Annotations) -> Region:
    """Return the region that annotations mean, as polygons that do not cross.

    Args:
        annotations: The annotations.

    Returns:
        The polygons and what was resolved.

    Raises:
        UserError: The outlines cross too often to be resolved.

    Example:
        >>> bow = Outline(np.array([[0.0, 0], [4, 4], [4, 0], [0, 4]]))
        >>> made = resolve(Annotations((bow,)))
        >>> len(made.polygons), made.area_px, made.counts["rings that cross themselves"]
        (2, 8.0, 1)
    """
    table = ring_table(annotations)
    edges = np.rint(table.edges * PARTS).astype(np.int64)
    edges, ring, counts = _node(edges, table.ring, table, annotations.where)
    if not len(edges):
        return Region(polygons=(), counts=counts)
    rings = np.stack([table.role, table.owner])
    walks = _join(_boundary(edges, ring, rings))
    return Region(polygons=_polygons(walks), counts=counts)


def _node(edges: Whole, ring: Whole, table: RingTable, where: str) -> tuple[Whole, Whole, dict[str, int]]:
    """Split edges until they meet at common ends alone; count which rings met at first."""
    counts = {"rings that cross themselves": 0, "rings that overlap": 0, "holes partly outside": 0}
    function: Callable[..., Any] = kernels.compiled(pairs_that_meet) or pairs_that_meet
    left = _MOST_PAIRS
    for number in range(_ROUNDS):
        real = (edges[:, :2] != edges[:, 2:]).any(axis=1)
        edges, ring = np.ascontiguousarray(edges[real]), ring[real]
        order = np.argsort(np.minimum(edges[:, 0], edges[:, 2]), kind="stable")
        pairs = np.empty((max(1024, len(edges)), 2), dtype=np.int64)
        n, looked = function(edges, order, pairs, left).tolist()
        if n > len(pairs):
            pairs = np.empty((n, 2), dtype=np.int64)
            function(edges, order, pairs, left)
        left -= looked
        if n < 0 or len(edges) > MOST_PIECES:
            raise UserError(
                f"the outlines cross too often to be resolved ({_MOST_PAIRS - left:,} comparisons, {len(edges):,} pieces)",
                where=where or None,
                fix="Check that these are outlines of tissue.",
            )
        if n == 0:
            if number == 0:
                counts["rings that cross themselves"] = len(_visits_twice(edges, ring))
            return edges, ring, counts
        pairs = pairs[:n]
        if number == 0:
            first, second = ring[pairs[:, 0]], ring[pairs[:, 1]]
            again = _visits_twice(edges, ring)
            counts["rings that cross themselves"] = len(np.union1d(first[first == second], again))
            outer = (table.role[first] == 0) & (table.role[second] == 0) & (first != second)
            counts["rings that overlap"] = len(np.unique(np.concatenate([first[outer], second[outer]])))
            mixed = (table.role[first] == 0) != (table.role[second] == 0)
            hole = np.where(table.role[first] == 0, second, first)
            counts["holes partly outside"] = len(np.unique(hole[mixed]))
        edges, ring = _split(edges, ring, pairs)
    raise UserError(
        "the outlines cross too closely to be resolved",
        where=where or None,
        fix="Simplify the outlines, or write a mask in their place.",
    )


def _visits_twice(edges: Whole, ring: Whole) -> Whole:
    """The rings that pass through one of their points twice."""
    visits, times = np.unique(np.column_stack([ring, edges[:, :2]]), axis=0, return_counts=True)
    return np.unique(visits[times > 1, 0])


def _split(edges: Whole, ring: Whole, pairs: Whole) -> tuple[Whole, Whole]:
    """Split the edges of pairs where they meet."""
    one, two = edges[pairs[:, 0]], edges[pairs[:, 1]]
    a, b, c, d = one[:, :2], one[:, 2:], two[:, :2], two[:, 2:]

    def turn(p: Whole, q: Whole, r: Whole) -> Whole:
        return np.asarray(
            (q[:, 0] - p[:, 0]) * (r[:, 1] - p[:, 1]) - (q[:, 1] - p[:, 1]) * (r[:, 0] - p[:, 0])
        )

    of_c, of_d, of_a, of_b = turn(a, b, c), turn(a, b, d), turn(c, d, a), turn(c, d, b)
    proper = (of_c != 0) & (of_d != 0) & (of_a != 0) & (of_b != 0)
    part = np.where(proper, of_a, 0) / np.where(proper, (of_a - of_b).astype(np.float64), 1.0)
    point = np.rint(a + (b - a) * part[:, None]).astype(np.int64)
    which = [pairs[proper, 0], pairs[proper, 1]]
    where = [point[proper], point[proper]]
    for turned, end, low, high, side in (
        (of_c, c, a, b, 0), (of_d, d, a, b, 0), (of_a, a, c, d, 1), (of_b, b, c, d, 1),
    ):  # fmt: skip
        between = (np.minimum(low, high) <= end).all(axis=1) & (end <= np.maximum(low, high)).all(axis=1)
        on = (turned == 0) & between & (end != low).any(axis=1) & (end != high).any(axis=1)
        which.append(pairs[on, side])
        where.append(end[on])
    edge, cut = np.concatenate(which), np.concatenate(where)
    touched, index = np.unique(edge, return_inverse=True)
    begin, finish = edges[touched, :2], edges[touched, 2:]
    along = ((cut - begin[index]) * (finish - begin)[index]).sum(axis=1)
    every = np.concatenate([begin, cut, finish])
    owner = np.concatenate([np.arange(len(touched)), index, np.arange(len(touched))])
    least = np.iinfo(np.int64).min
    way = np.concatenate([np.full(len(touched), least), along, np.full(len(touched), -(least + 1))])
    order = np.lexsort((way, owner))
    every, owner = every[order], owner[order]
    same = owner[1:] == owner[:-1]
    made = np.concatenate([every[:-1], every[1:]], axis=1)[same]
    rest = np.ones(len(edges), dtype=bool)
    rest[touched] = False
    return np.concatenate([edges[rest], made]), np.concatenate([ring[rest], ring[touched][owner[:-1][same]]])


def _boundary(edges: Whole, ring: Whole, rings: Whole) -> Whole:
    """The pieces with the region on one side alone, directed so that it lies on their left (x right, y up)."""
    forward = (edges[:, 3] > edges[:, 1]) | ((edges[:, 3] == edges[:, 1]) & (edges[:, 2] > edges[:, 0]))
    ordered = np.where(forward[:, None], edges, edges[:, [2, 3, 0, 1]])
    pieces, index = np.unique(ordered, axis=0, return_inverse=True)
    keys, entry = np.unique(index.reshape(-1) * rings.shape[1] + ring, return_inverse=True)
    turns = np.zeros(len(keys), dtype=np.int64)
    np.add.at(turns, entry.reshape(-1), np.where(forward, 1, -1))
    keys, turns = keys[turns != 0], turns[turns != 0]
    of_piece, of_ring = keys // rings.shape[1], keys % rings.shape[1]
    level = pieces[:, 1] == pieces[:, 3]
    made = []
    for exchanged in (False, True):
        there = pieces[:, [1, 0, 3, 2]] if exchanged else pieces
        usable = there[:, 1] != there[:, 3]
        back = there[:, 3] < there[:, 1]
        there = np.where(back[:, None], there[:, [2, 3, 0, 1]], there)
        signs = np.where(back[of_piece], -turns, turns)
        keep = usable[of_piece]
        number = np.cumsum(usable) - 1
        start = np.zeros(int(usable.sum()) + 1, dtype=np.int64)
        np.add.at(start, number[of_piece[keep]] + 1, 1)
        found = _ask(
            there[usable] * 2,
            np.cumsum(start),
            np.stack([of_ring[keep], signs[keep]]),
            rings,
            level[usable] if exchanged else np.ones(int(usable.sum()), dtype=bool),
        )
        one_side = found[:, 0] != found[:, 1]
        chosen = there[usable][one_side]
        turn_back = found[one_side, 1 if not exchanged else 0] == 1
        chosen = np.where(turn_back[:, None], chosen[:, [2, 3, 0, 1]], chosen)
        made.append(chosen[:, [1, 0, 3, 2]] if exchanged else chosen)
    return np.concatenate(made)


def _ask(
    pieces: Whole, start: Whole, entries: Whole, rings: Whole, wanted: npt.NDArray[np.bool_]
) -> npt.NDArray[np.uint8]:
    out = np.zeros((len(pieces), 2), dtype=np.uint8)
    function: Callable[..., Any] = kernels.compiled(sides) or sides
    order = np.argsort(pieces[:, 1], kind="stable")
    middle = (pieces[:, 1] + pieces[:, 3]) // 2
    asked = np.argsort(middle, kind="stable")
    asked = asked[wanted[asked]]
    contiguous = [np.ascontiguousarray(one) for one in (pieces, start, entries, rings)]
    function(*contiguous, order, asked, out)
    return out


def _join(pieces: Whole) -> list[Whole]:
    """Join directed pieces to simple closed rings."""
    begins = [(x, y) for x, y in pieces[:, :2].tolist()]
    ends = [(x, y) for x, y in pieces[:, 2:].tolist()]
    leaving: dict[tuple[int, int], list[int]] = {}
    for number, point in enumerate(begins):
        leaving.setdefault(point, []).append(number)
    unused = np.ones(len(pieces), dtype=bool)
    walks: list[Whole] = []
    for first in range(len(pieces)):
        if not unused[first]:
            continue
        path: list[tuple[int, int]] = []
        seen: dict[tuple[int, int], int] = {}
        at = first
        while unused[at]:
            unused[at] = False
            point = begins[at]
            if point in seen:
                cut = seen[point]
                walks.append(np.array(path[cut:], dtype=np.int64))
                for old in path[cut:]:
                    seen.pop(old, None)
                del path[cut:]
            seen[point] = len(path)
            path.append(point)
            choices = [one for one in leaving[ends[at]] if unused[one]]
            if not choices:
                break
            at = choices[0] if len(choices) == 1 else _next(at, choices, begins, ends)
        if len(path) > 2:
            walks.append(np.array(path, dtype=np.int64))
    return [walk for walk in walks if len(walk) > 2]


def _next(at: int, choices: list[int], begins: list[tuple[int, int]], ends: list[tuple[int, int]]) -> int:
    """The next piece around the same part of the region: the first one clockwise from where the walk came from."""
    x, y = ends[at]
    back = np.arctan2(begins[at][1] - y, begins[at][0] - x)
    angles = [np.arctan2(ends[one][1] - y, ends[one][0] - x) for one in choices]
    return choices[int(np.argmin([(back - angle) % (2 * np.pi) for angle in angles]))]


def _polygons(walks: list[Whole]) -> tuple[Outline, ...]:
    rings = [walk / PARTS for walk in walks]
    areas = [ring_area(ring) for ring in rings]
    shells = [i for i, area in enumerate(areas) if area > 0]
    boxes = {i: (*walks[i].min(axis=0).tolist(), *walks[i].max(axis=0).tolist()) for i in range(len(walks))}
    holes: dict[int, list[Ring]] = {i: [] for i in shells}
    for i, area in enumerate(areas):
        if area >= 0:
            continue
        x, y = (walks[i][0] + walks[i][1]).tolist()
        around = [
            j
            for j in shells
            if 2 * boxes[j][0] <= x <= 2 * boxes[j][2]
            and 2 * boxes[j][1] <= y <= 2 * boxes[j][3]
            and _is_inside(2 * walks[j], x, y)
        ]
        if around:
            holes[min(around, key=lambda j: areas[j])].append(rings[i])
    return tuple(Outline(rings[i], tuple(holes[i]), name="", group="Tumor") for i in shells)


def _is_inside(ring: Whole, x: int, y: int) -> bool:
    after = np.roll(ring, -1, axis=0)
    crossing = (ring[:, 1] <= y) != (after[:, 1] <= y)
    a, b = ring[crossing], after[crossing]
    turn = (b[:, 0] - a[:, 0]) * (y - a[:, 1]) - (b[:, 1] - a[:, 1]) * (x - a[:, 0])
    return bool((np.where(b[:, 1] > a[:, 1], turn, -turn) > 0).sum() % 2)
