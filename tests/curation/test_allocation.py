"""How many patches of each kind: the share is kept, groups and clusters are as even as can be, nothing is lost."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.curation.allocation import (
    SHARES,
    fill_evenly,
    in_proportion,
    plan_quotas,
    read_share,
    spread_over_clusters,
)
from elsewhere.errors import UserError

counts = st.lists(st.integers(0, 60), min_size=1, max_size=6)


@given(counts, st.data())
def test_even_as_the_room_allows(room, data):
    filled = data.draw(st.lists(st.integers(0, 40), min_size=len(room), max_size=len(room)))
    total = data.draw(st.integers(0, sum(room)))
    made = fill_evenly(total, room, filled)
    assert sum(made) == total and all(0 <= one <= most for one, most in zip(made, room, strict=True))
    levels = [had + one for had, one in zip(filled, made, strict=True)]
    for at, one in enumerate(made):
        for other, most in enumerate(room):
            # Nobody got a patch that would have raised somebody lower, who had room.
            if one and made[other] < most:
                assert levels[at] <= levels[other] + 1


@given(counts, st.data())
def test_in_proportion_within_one(amounts, data):
    total = data.draw(st.integers(0, sum(amounts)))
    made = in_proportion(total, amounts)
    assert sum(made) == (total if sum(amounts) else 0)
    for one, amount in zip(made, amounts, strict=True):
        assert 0 <= one <= amount
        assert abs(Fraction(one) - Fraction(total * amount, max(sum(amounts), 1))) < 1


@given(
    st.integers(1, 300), st.sampled_from(SHARES), st.sampled_from(["set", "tumour"]),
    st.tuples(*[st.integers(0, 120)] * 4),
)  # fmt: skip
def test_the_share_is_kept_and_no_larger_set_would(size, share, of, amounts):
    available = dict(zip(("PT", "FT", "NT", "NN"), amounts, strict=True))
    try:
        found = plan_quotas(size, read_share(share), available, of=of)
    except UserError:
        return
    assert found.size <= size
    assert found.partial <= available["PT"] and found.full <= available["FT"]
    assert found.normal <= available["NN"] and found.normal_of_tumour <= available["NT"]
    wanted = read_share(share)
    if wanted is not None:
        whole = found.size if of == "set" else found.tumour
        assert abs(found.partial - wanted * whole) <= Fraction(1, 2)
    if found.size < size and wanted is not None and of == "set":
        larger = found.size + 1
        partial = int((wanted * larger * 2 + 1) // 2)
        assert partial > available["PT"] or larger - partial > sum(amounts[1:])


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=5), st.data())
def test_the_types_of_a_set_come_before_even_clusters(rooms, data):
    partial = data.draw(st.integers(0, sum(one for one, _ in rooms)))
    full = data.draw(st.integers(0, sum(other for _, other in rooms)))
    made = spread_over_clusters(partial, full, rooms)
    assert (sum(one for one, _ in made), sum(other for _, other in made)) == (partial, full)
    assert all(
        0 <= one[0] <= room[0] and 0 <= one[1] <= room[1] for one, room in zip(made, rooms, strict=True)
    )


def test_the_study_s_seven_shares():
    """35,000 of a pool that is large enough: a third each until partly tumour patches alone are more (LN-07)."""
    available = {"PT": 20_000, "FT": 56_000, "NT": 76_000, "NN": 100_000}
    found = {share: plan_quotas(35_000, read_share(share), available) for share in SHARES}
    assert [found[share].partial for share in SHARES[:6]] == [0, 3_500, 7_000, 10_500, 14_000, 17_500]
    assert all(
        sorted(found[share].groups().values()) == [11_666, 11_667, 11_667]
        for share in ("0", "10", "20", "30")
    )
    assert found["40"].groups() == {"NN": 10_500, "NT": 10_500, "TT": 14_000}
    assert found["50"].groups() == {"NN": 8_750, "NT": 8_750, "TT": 17_500}
    tumour = plan_quotas(35_000, Fraction(1, 2), available, of="tumour")
    assert (tumour.partial, tumour.full) == (5_834, 5_833) and tumour.normal == 11_666


def test_what_cannot_be_reached():
    # 100 partly tumour patches are half of 200.
    found = plan_quotas(35_000, Fraction(1, 2), {"PT": 100, "FT": 500, "NT": 500, "NN": 500})
    assert (found.size, found.partial, found.full) == (200, 100, 0)
    # A group that has no more is filled by the others.
    found = plan_quotas(300, Fraction(0), {"PT": 0, "FT": 20, "NT": 500, "NN": 500})
    assert found.groups() == {"NN": 140, "NT": 140, "TT": 20}
    with pytest.raises(UserError, match="50 % partly tumour patches: there are 0 partly"):
        plan_quotas(300, Fraction(1, 2), {"PT": 0, "FT": 20, "NT": 5, "NN": 5})
    # A cluster without partly tumour patches when the set has no others gets none.
    assert spread_over_clusters(10, 0, [(0, 50), (20, 0)]) == [(0, 0), (10, 0)]


@pytest.mark.parametrize("text", ["a", "", "101", "-1", "1/3", "1e1", "nan", "٣", "1.2.3"])
def test_what_is_no_share(text):
    with pytest.raises(UserError):
        read_share(text)
