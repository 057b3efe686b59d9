"""How many patches of each group, type and cluster a set has: whole numbers alone, so that every machine gives the same (LN-07).

The share of partly tumour patches is kept exactly; what remains is given out so that tumour patches, normal patches of tumour
slides and normal patches of normal slides are as many as can be. Of the set, 40 or 50 % of partly tumour patches are more
than a third: the groups are then not balanced, and how far they are is stated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from elsewhere.errors import UserError

NATURAL = "natural"
SHARES = ("0", "10", "20", "30", "40", "50", NATURAL)
OF = ("set", "tumour")
PARTIAL, FULL = "PT", "FT"
NORMAL = ("NT", "NN")


@dataclass(frozen=True, kw_only=True)
class Quotas:
    """How many patches a set has.

    Attributes:
        partial: Partly tumour patches.
        full: Patches that are all tumour.
        normal_of_tumour: Normal patches of tumour slides.
        normal: Normal patches of normal slides.
    """

    partial: int
    full: int
    normal_of_tumour: int
    normal: int

    @property
    def tumour(self) -> int:
        """Tumour patches."""
        return self.partial + self.full

    @property
    def size(self) -> int:
        """All patches."""
        return self.tumour + self.normal_of_tumour + self.normal

    def groups(self) -> dict[str, int]:
        """Count the patches by group.

        Returns:
            The counts of NN, NT and TT.
        """
        return {"NN": self.normal, "NT": self.normal_of_tumour, "TT": self.tumour}


def read_share(text: str) -> Fraction | None:
    """Read a share of partly tumour patches.

    Args:
        text: Per cent, such as "20" or "12.5", or "natural".

    Returns:
        The share, exact; None for "natural".

    Raises:
        UserError: It is neither, or not from 0 to 100.

    Example:
        >>> read_share("12.5"), read_share("natural")
        (Fraction(1, 8), None)
    """
    plain = text.strip()
    if plain == NATURAL:
        return None
    try:
        if len(plain) > 12 or not set(plain) <= set("0123456789."):
            raise ValueError(plain)
        share = Fraction(plain) / 100
    except (ValueError, ZeroDivisionError) as error:
        raise UserError(
            f"'{plain[:40]}' is no share of partly tumour patches",
            fix=f"Give per cent from 0 to 100, or {NATURAL}.",
        ) from error
    if not 0 <= share <= 1:
        raise UserError(
            f"a share of {plain} % was asked for", fix=f"Give per cent from 0 to 100, or {NATURAL}."
        )
    return share


def fill_evenly(total: int, room: Sequence[int], filled: Sequence[int] | None = None) -> list[int]:
    """Give out a number so that the levels become as even as the room allows, the lowest first.

    Args:
        total: What is given out; at most the sum of the room.
        room: The most that each can get.
        filled: What each has before; None for nothing.

    Returns:
        What each gets. Of equal ones the first gets what is left over.

    Raises:
        UserError: There is less room than is given out.

    Example:
        >>> fill_evenly(10, [1, 9, 9]), fill_evenly(5, [9, 9], [4, 0])
        ([1, 5, 4], [1, 4])
    """
    if total > sum(room):
        raise UserError(f"{total:,} patches were asked for, and there are {sum(room):,}")
    before = list(filled) if filled is not None else [0] * len(room)

    def given(level: int) -> list[int]:
        return [min(most, max(0, level - had)) for most, had in zip(room, before, strict=True)]

    low, high = 0, max((had + most for had, most in zip(before, room, strict=True)), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(given(middle)) <= total:
            low = middle
        else:
            high = middle - 1
    made = given(low)
    left = total - sum(made)
    for at in range(len(made)):
        if left and made[at] < room[at] and before[at] + made[at] <= low:
            made[at] += 1
            left -= 1
    return made


def in_proportion(total: int, amounts: Sequence[int]) -> list[int]:
    """Give out a number in proportion to amounts, by the largest remainders.

    Args:
        total: What is given out; at most the sum of the amounts.
        amounts: The amounts.

    Returns:
        What each gets, at most its amount.

    Example:
        >>> in_proportion(10, [30, 10]), in_proportion(0, [0, 0])
        ([8, 2], [0, 0])
    """
    whole = sum(amounts)
    if not whole:
        return [0] * len(amounts)
    made = [total * one // whole for one in amounts]
    order = sorted(range(len(amounts)), key=lambda at: (-(total * amounts[at] % whole), at))
    for at in order[: total - sum(made)]:
        made[at] += 1
    return made


def plan_quotas(
    size: int, share: Fraction | None, available: Mapping[str, int], *, of: str = "set"
) -> Quotas:
    """Plan the patches of a set of at most `size` patches.

    Args:
        size: The most patches.
        share: The share of partly tumour patches; None for the natural one.
        available: Patches that there are: PT, FT, NT and NN.
        of: "set": the share is one of the set; "tumour": of its tumour patches.

    Returns:
        The largest set that keeps the share.

    Raises:
        UserError: `of` is unknown, or there are no patches that give this share.

    Example:
        >>> plan_quotas(90, Fraction(1, 10), {"PT": 50, "FT": 50, "NT": 50, "NN": 50})
        Quotas(partial=9, full=21, normal_of_tumour=30, normal=30)
    """
    if of not in OF:
        raise UserError(f"a share of '{of}' is not known", fix="Choose set or tumour.")
    if size < 1:
        raise UserError(f"sets of {size} patches were asked for", fix="Give 1 or more.")
    partial, full = available.get(PARTIAL, 0), available.get(FULL, 0)
    rooms = [available.get(name, 0) for name in NORMAL]
    low, high = 0, min(size, partial + full + sum(rooms))
    while low < high:
        middle = (low + high + 1) // 2
        if _quotas(middle, share, (partial, full, rooms), of) is not None:
            low = middle
        else:
            high = middle - 1
    found = _quotas(low, share, (partial, full, rooms), of) if low else None
    if found is None:
        wanted = "the natural share of" if share is None else f"{float(share * 100):g} %"
        raise UserError(
            f"no set can be drawn with {wanted} partly tumour patches: there are {partial:,} partly and {full:,} wholly "
            f"tumour patches, and {sum(rooms):,} normal ones",
            fix="Ask for a share that the patches can give, or add slides.",
        )
    return found


def _quotas(
    size: int, share: Fraction | None, available: tuple[int, int, Sequence[int]], of: str
) -> Quotas | None:
    """The patches of a set of this size; None where the share cannot be kept."""
    partial, full, rooms = available
    if share is None:
        if partial + full + sum(rooms) < size:
            return None
        tumour, mixed, normal = fill_evenly(size, [partial + full, *rooms])
        part = in_proportion(tumour, [partial, full])[0]
        return Quotas(partial=part, full=tumour - part, normal_of_tumour=mixed, normal=normal)
    if of == "tumour":
        room = _tumour_room(partial, full, share)
        if room + sum(rooms) < size:
            return None
        tumour, mixed, normal = fill_evenly(size, [room, *rooms])
        part = _nearest(share * tumour)
        return Quotas(partial=part, full=tumour - part, normal_of_tumour=mixed, normal=normal)
    part = _nearest(share * size)
    if part > partial or size - part > full + sum(rooms):
        return None
    whole, mixed, normal = fill_evenly(size - part, [full, *rooms], [part, 0, 0])
    return Quotas(partial=part, full=whole, normal_of_tumour=mixed, normal=normal)


def _tumour_room(partial: int, full: int, share: Fraction) -> int:
    """The most tumour patches of which a share is partly tumour."""
    low, high = 0, partial + full
    while low < high:
        middle = (low + high + 1) // 2
        part = _nearest(share * middle)
        if part <= partial and middle - part <= full:
            low = middle
        else:
            high = middle - 1
    return low


def _nearest(value: Fraction) -> int:
    """The nearest whole number; halves are rounded up."""
    return int((value * 2 + 1) // 2)


def spread_over_clusters(
    partial: int, full: int, rooms: Sequence[tuple[int, int]], *, natural: bool = False
) -> list[tuple[int, int]]:
    """Spread the tumour patches of a set over clusters, so that the clusters are as even as the types allow.

    Args:
        partial: Partly tumour patches of the set.
        full: Wholly tumour patches of the set.
        rooms: Partly and wholly tumour patches of each cluster.
        natural: Whether the types of each cluster keep their proportion, in place of the numbers of the set.

    Returns:
        Partly and wholly tumour patches of each cluster. The numbers of the set come first: a cluster without partly
        tumour patches gets none, and fewer in all where the set has no others.

    Example:
        >>> spread_over_clusters(4, 4, [(0, 9), (9, 9)])
        [(0, 4), (4, 0)]
    """
    both = [one + other for one, other in rooms]
    totals = fill_evenly(partial + full, both)
    if natural:
        parts = [in_proportion(total, room)[0] for total, room in zip(totals, rooms, strict=True)]
        return [(part, total - part) for part, total in zip(parts, totals, strict=True)]
    least = [max(0, total - room[1]) for total, room in zip(totals, rooms, strict=True)]
    most = [min(total, room[0]) for total, room in zip(totals, rooms, strict=True)]
    if sum(least) <= partial <= sum(most):
        more = fill_evenly(
            partial - sum(least), [high - low for low, high in zip(least, most, strict=True)], least
        )
        parts = [low + one for low, one in zip(least, more, strict=True)]
        return [(part, total - part) for part, total in zip(parts, totals, strict=True)]
    if partial > sum(most):
        parts = fill_evenly(partial, [room[0] for room in rooms])
        others = fill_evenly(full, [room[1] for room in rooms], parts)
    else:
        others = fill_evenly(full, [room[1] for room in rooms])
        parts = fill_evenly(partial, [room[0] for room in rooms], others)
    return list(zip(parts, others, strict=True))
