"""The compiled part of `objects`: rows of a mask in, finished objects out (LN-14).

A row becomes runs of pixels. Each run joins the objects of the row above that it touches, also at a corner; an object
that no run of the row touches is finished. An open object is its sums and the convex hull of its pixels' corners, kept
as two chains of points from top to bottom: the left ends and the right ends. Two objects that meet add their sums and
merge their chains, so that neither the mask nor the pixels of an object are ever held.

Second moments are sums that outgrow 64 bits on the largest slides: each is two numbers, low + 2**32 high.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

AREA, SUM_R, SUM_C, RR, CC, RC = 0, 1, 2, 3, 5, 7
TOP, BOTTOM, LEFT, RIGHT, FIRST_R, FIRST_C, MARKED = 9, 10, 11, 12, 13, 14, 15
FERET = 16
COLUMNS = 17
"""Columns of a finished object; a second moment takes two, low and high."""
_HEAD_L, _HEAD_R, _PARENT, _ROW, _MIN, _MAX = 16, 17, 18, 19, 20, 21
SLOT_COLUMNS = 22
"""Columns of an open object: those of a finished one but the Feret diameter, its chains, and notes on the row."""
PREVIOUS, FREE_SLOTS, FREE_NODES, FINISHED, NEXT_ROW = 0, 1, 2, 3, 4
STATE = 5
_LOW = (1 << 32) - 1
_EMPTY = np.uint64(0)
_FULL = np.uint64(0x0101010101010101)


@numba.njit(cache=True, nogil=True)
def _add(slots: npt.NDArray[np.int64], slot: int, column: int, value: int) -> None:
    low = slots[slot, column] + (value & _LOW)
    slots[slot, column] = low & _LOW
    slots[slot, column + 1] += (value >> 32) + (low >> 32)


@numba.njit(cache=True, nogil=True)
def _find(slots: npt.NDArray[np.int64], slot: int) -> int:
    while slots[slot, _PARENT] != slot:
        slots[slot, _PARENT] = slots[slots[slot, _PARENT], _PARENT]
        slot = slots[slot, _PARENT]
    return slot


@numba.njit(cache=True, nogil=True)
def _push(
    nodes: npt.NDArray[np.int64],
    free: npt.NDArray[np.int64],
    state: npt.NDArray[np.int64],
    head: int,
    row: int,
    column: int,
    side: int,
) -> int:
    """Add a point below all others of a chain; `side` is 1 for left ends and -1 for right ends. Returns the head."""
    if head >= 0 and nodes[head, 0] == row:
        if side * column >= side * nodes[head, 1]:
            return head
        free[state[FREE_NODES]] = head
        state[FREE_NODES] += 1
        head = nodes[head, 2]
    while head >= 0 and nodes[head, 2] >= 0:
        before = nodes[head, 2]
        turn = (nodes[head, 0] - nodes[before, 0]) * (column - nodes[before, 1]) - (
            nodes[head, 1] - nodes[before, 1]
        ) * (row - nodes[before, 0])
        if side * turn > 0:
            break
        free[state[FREE_NODES]] = head
        state[FREE_NODES] += 1
        head = before
    state[FREE_NODES] -= 1
    node = free[state[FREE_NODES]]
    nodes[node, 0], nodes[node, 1], nodes[node, 2] = row, column, head
    return node


@numba.njit(cache=True, nogil=True)
def _merge_chains(
    nodes: npt.NDArray[np.int64],
    free: npt.NDArray[np.int64],
    state: npt.NDArray[np.int64],
    heads: tuple[int, int],
    side: int,
    scratch: npt.NDArray[np.int64],
) -> int:
    a, b = heads
    count = 0
    while a >= 0 or b >= 0:
        if b < 0 or (a >= 0 and nodes[a, 0] >= nodes[b, 0]):
            taken = a
            a = nodes[a, 2]
        else:
            taken = b
            b = nodes[b, 2]
        row, column = nodes[taken, 0], nodes[taken, 1]
        free[state[FREE_NODES]] = taken
        state[FREE_NODES] += 1
        if count and scratch[count - 1, 0] == row:
            if side * column < side * scratch[count - 1, 1]:
                scratch[count - 1, 1] = column
        else:
            scratch[count, 0], scratch[count, 1] = row, column
            count += 1
    head = -1
    for k in range(count - 1, -1, -1):
        head = _push(nodes, free, state, head, scratch[k, 0], scratch[k, 1], side)
    return head


@numba.njit(cache=True, nogil=True)
def _union(
    slots: npt.NDArray[np.int64],
    nodes: npt.NDArray[np.int64],
    free_nodes: npt.NDArray[np.int64],
    state: npt.NDArray[np.int64],
    scratch: npt.NDArray[np.int64],
    kept: int,
    lost: int,
) -> None:
    for column in (AREA, SUM_R, SUM_C, MARKED):
        slots[kept, column] += slots[lost, column]
    for column in (RR, CC, RC):
        low = slots[kept, column] + slots[lost, column]
        slots[kept, column] = low & _LOW
        slots[kept, column + 1] += slots[lost, column + 1] + (low >> 32)
    slots[kept, TOP] = min(slots[kept, TOP], slots[lost, TOP])
    slots[kept, BOTTOM] = max(slots[kept, BOTTOM], slots[lost, BOTTOM])
    slots[kept, LEFT] = min(slots[kept, LEFT], slots[lost, LEFT])
    slots[kept, RIGHT] = max(slots[kept, RIGHT], slots[lost, RIGHT])
    a = (slots[kept, FIRST_R], slots[kept, FIRST_C])
    b = (slots[lost, FIRST_R], slots[lost, FIRST_C])
    if b < a:
        slots[kept, FIRST_R], slots[kept, FIRST_C] = b
    slots[kept, _HEAD_L] = _merge_chains(
        nodes, free_nodes, state, (slots[kept, _HEAD_L], slots[lost, _HEAD_L]), 1, scratch
    )
    slots[kept, _HEAD_R] = _merge_chains(
        nodes, free_nodes, state, (slots[kept, _HEAD_R], slots[lost, _HEAD_R]), -1, scratch
    )
    slots[lost, _PARENT] = kept


@numba.njit(cache=True, nogil=True)
def _finish(
    slots: npt.NDArray[np.int64],
    nodes: npt.NDArray[np.int64],
    free_nodes: npt.NDArray[np.int64],
    state: npt.NDArray[np.int64],
    scratch: npt.NDArray[np.int64],
    slot: int,
    out: npt.NDArray[np.int64],
) -> None:
    count = 0
    for column in (_HEAD_L, _HEAD_R):
        node = slots[slot, column]
        while node >= 0:
            scratch[count, 0], scratch[count, 1] = nodes[node, 0], nodes[node, 1]
            count += 1
            free_nodes[state[FREE_NODES]] = node
            state[FREE_NODES] += 1
            node = nodes[node, 2]
    longest = 0
    for i in range(count):
        for j in range(i + 1, count):
            dr, dc = scratch[i, 0] - scratch[j, 0], scratch[i, 1] - scratch[j, 1]
            longest = max(longest, dr * dr + dc * dc)
    number = state[FINISHED]
    for column in range(FERET):
        out[number, column] = slots[slot, column]
    out[number, FERET] = longest
    state[FINISHED] = number + 1


@numba.njit(cache=True, nogil=True)
def _runs(
    row: npt.NDArray[np.uint8],
    words: npt.NDArray[np.uint64],
    runs: npt.NDArray[np.int64],
) -> int:
    """Write begin and end of each run of ones; eight pixels at a time where nothing changes."""
    count, inside = 0, False
    for word in range(words.size):
        content = words[word]
        if (not inside and content == _EMPTY) or (inside and content == _FULL):
            continue
        for column in range(8 * word, 8 * word + 8):
            if (row[column] != 0) != inside:
                if inside:
                    runs[count, 1] = column
                    count += 1
                else:
                    runs[count, 0] = column
                inside = not inside
    if inside:
        runs[count, 1] = row.size
        count += 1
    return count


@numba.njit(cache=True, nogil=True)
def take_rows(
    strip: npt.NDArray[np.uint8],
    words: npt.NDArray[np.uint64],
    marks: npt.NDArray[np.uint8],
    slots: npt.NDArray[np.int64],
    nodes: npt.NDArray[np.int64],
    free_slots: npt.NDArray[np.int64],
    free_nodes: npt.NDArray[np.int64],
    previous: npt.NDArray[np.int64],
    runs: npt.NDArray[np.int64],
    scratch: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
    state: npt.NDArray[np.int64],
    first: int,
) -> int:
    """Take the rows of a strip from `first` on; stops before a row for which an array is too small.

    Args:
        strip: 0 and 1, (rows, columns), columns a multiple of 8.
        words: The same bytes, eight at a time.
        marks: Pixels of another mask, counted per object, of the strip's shape; of size 0 for none.
        slots: Open objects.
        nodes: Points of chains: row, column, the point above.
        free_slots: Unused rows of `slots`.
        free_nodes: Unused rows of `nodes`.
        previous: Runs of the row above: begin, end, object.
        runs: Receives the runs of a row.
        scratch: As long as `nodes`.
        out: Finished objects.
        state: How many entries of these arrays are used, and the next row of the mask.
        first: The first row of the strip to take.

    Returns:
        How many rows of the strip were taken in all.
    """
    for k in range(first, strip.shape[0]):
        n_previous = state[PREVIOUS]
        n = _runs(strip[k], words[k], runs)
        if state[FREE_SLOTS] < n or state[FREE_NODES] < 4 * n or state[FINISHED] + n_previous > out.shape[0]:
            return k
        row = state[NEXT_ROW]
        begin = 0
        for i in range(n):
            a, b = runs[i, 0], runs[i, 1]
            while begin < n_previous and previous[begin, 1] < a:
                begin += 1
            j = begin
            slot = -1
            while j < n_previous and previous[j, 0] <= b:
                other = _find(slots, previous[j, 2])
                if slot < 0:
                    slot = other
                elif slot != other:
                    kept, gone = slot, other
                    if slots[kept, AREA] < slots[gone, AREA]:
                        kept, gone = gone, kept
                    _union(slots, nodes, free_nodes, state, scratch, kept, gone)
                    slot = kept
                j += 1
            if slot < 0:
                state[FREE_SLOTS] -= 1
                slot = free_slots[state[FREE_SLOTS]]
                for column in range(_HEAD_L):
                    slots[slot, column] = 0
                slots[slot, TOP], slots[slot, LEFT], slots[slot, RIGHT] = row, a, b
                slots[slot, FIRST_R], slots[slot, FIRST_C] = row, a
                slots[slot, _HEAD_L], slots[slot, _HEAD_R] = -1, -1
                slots[slot, _PARENT], slots[slot, _ROW] = slot, -1
            runs[i, 2] = slot
        for i in range(n):
            a, b = runs[i, 0], runs[i, 1]
            slot = _find(slots, runs[i, 2])
            runs[i, 2] = slot
            length = b - a
            columns = length * (a + b - 1) // 2
            slots[slot, AREA] += length
            slots[slot, SUM_R] += length * row
            slots[slot, SUM_C] += columns
            _add(slots, slot, RR, length * row * row)
            _add(slots, slot, CC, ((b - 1) * b * (2 * b - 1) - (a - 1) * a * (2 * a - 1)) // 6)
            _add(slots, slot, RC, row * columns)
            if marks.size:
                marked = 0
                for column in range(a, b):
                    marked += marks[k, column] != 0
                slots[slot, MARKED] += marked
            if slots[slot, _ROW] == row:
                slots[slot, _MAX] = b
            else:
                slots[slot, _ROW], slots[slot, _MIN], slots[slot, _MAX] = row, a, b
        for i in range(n):
            slot = runs[i, 2]
            if slots[slot, _MIN] != runs[i, 0]:
                continue
            a, b = slots[slot, _MIN], slots[slot, _MAX]
            slots[slot, BOTTOM] = row + 1
            slots[slot, LEFT], slots[slot, RIGHT] = min(slots[slot, LEFT], a), max(slots[slot, RIGHT], b)
            for edge in (row, row + 1):
                slots[slot, _HEAD_L] = _push(nodes, free_nodes, state, slots[slot, _HEAD_L], edge, a, 1)
                slots[slot, _HEAD_R] = _push(nodes, free_nodes, state, slots[slot, _HEAD_R], edge, b, -1)
        for j in range(n_previous):
            slot = previous[j, 2]
            if slots[slot, _ROW] == row and slots[slot, _PARENT] == slot:
                continue
            if slots[slot, _PARENT] == slot:
                _finish(slots, nodes, free_nodes, state, scratch, slot, out)
                slots[slot, _PARENT] = -1
        for j in range(n_previous):
            slot = previous[j, 2]
            if slots[slot, _PARENT] != slot and slots[slot, _ROW] != -2:
                slots[slot, _ROW] = -2
                free_slots[state[FREE_SLOTS]] = slot
                state[FREE_SLOTS] += 1
        for i in range(n):
            previous[i, 0], previous[i, 1], previous[i, 2] = runs[i, 0], runs[i, 1], runs[i, 2]
        state[PREVIOUS] = n
        state[NEXT_ROW] = row + 1
    return strip.shape[0]
