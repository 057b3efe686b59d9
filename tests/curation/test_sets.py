"""Sets: exact shares, even clusters, the same hashes everywhere, and shared patches between sets."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.curation.sets import SetSettings, canonical_order, draw_sets, patch_ranks
from elsewhere.errors import UserError
from worlds.patch_rows import patch_rows


def clusters_of(rows: pd.DataFrame, number: int = 3, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, number, len(rows))


def test_twenty_one_sets_of_one_size_with_exact_shares():
    rows = patch_rows()
    made = draw_sets(
        rows, {"a": clusters_of(rows), "b": clusters_of(rows, 4, 2), "single": np.zeros(len(rows), np.int64)}
    )
    assert len(made) == 21 and len({one.name for one in made}) == 21
    # Half of a set are at most 150 partly tumour patches.
    assert {one.quotas.size for one in made} == {300} and {len(one.rows) for one in made} == {300}
    for one in made:
        types = one.rows["type"].value_counts()
        assert types.get("PT", 0) == one.quotas.partial
        if one.share != "natural":
            assert one.quotas.partial == 3 * int(one.share)
        groups = one.rows["group"].value_counts()
        assert {name: int(groups[name]) for name in ("NN", "NT", "TT")} == one.quotas.groups()
        assert not one.rows.duplicated(["case_id", "i", "j"]).any()
        assert one.remarks[0].startswith("300 patches, not 35,000")
    by_name = {one.name: one for one in made}
    assert by_name["single-40"].quotas.groups() == {"NN": 90, "NT": 90, "TT": 120}
    assert "not balanced: NN 30.0%, NT 30.0%, TT 40.0%" in " ".join(by_name["single-40"].remarks)
    assert by_name["single-natural"].partial_of_tumour == pytest.approx(0.375, abs=0.01)
    assert [by_name[f"a-{share}"].clusters["NN"] for share in ("0", "30")] == [(34, 33, 33)] * 2


def test_each_as_large_as_it_can_be_and_shares_of_tumour():
    rows = patch_rows()
    single = {"single": np.zeros(len(rows), np.int64)}
    largest = draw_sets(rows, single, SetSettings(same_size=False, shares=("0", "50")))
    assert [one.quotas.size for one in largest] == [850, 300]
    of_tumour = draw_sets(rows, single, SetSettings(size=300, shares=("50",), of="tumour"))[0]
    assert of_tumour.partial_of_tumour == 0.5 and of_tumour.quotas.groups() == {
        "NN": 100,
        "NT": 100,
        "TT": 100,
    }


def test_a_cluster_without_partly_tumour_patches_is_said():
    rows = patch_rows()
    tumour = (rows["group"] == "TT").to_numpy()
    labels = np.where(tumour & (rows["type"] == "FT").to_numpy(), 1, 0)
    made = draw_sets(rows, {"a": labels}, SetSettings(size=300, shares=("50",)))[0]
    assert made.clusters["TT"] == (150, 0)
    assert "Cluster 2 of TT has no partly tumour patch." in made.remarks
    assert "The clusters of TT are not even: 0 to 150 patches." in made.remarks


def test_the_sets_are_those_that_were_drawn_when_this_test_was_written():
    """The draw is hashes and whole numbers: every machine gives these."""
    rows = patch_rows()
    made = draw_sets(rows, {"a": clusters_of(rows)}, SetSettings(size=120, seed=7))
    assert [one.hash[:16] for one in made] == HASHES
    assert (
        len(
            {one.hash for one in draw_sets(rows, {"a": clusters_of(rows)}, SetSettings(size=120, seed=8))}
            & {one.hash for one in made}
        )
        == 0
    )


def test_the_order_of_rows_and_other_patches_do_not_matter():
    rows = patch_rows()
    shuffled = rows.sample(frac=1, random_state=3)
    ranks = patch_ranks(rows, 1)
    assert np.array_equal(patch_ranks(shuffled, 1), pd.Series(ranks).loc[shuffled.index].to_numpy())
    one = draw_sets(rows, {"single": np.zeros(len(rows), np.int64)}, SetSettings(size=90))
    two = draw_sets(
        canonical_order(shuffled), {"single": np.zeros(len(rows), np.int64)}, SetSettings(size=90)
    )
    assert [a.hash for a in one] == [b.hash for b in two]
    # A patch that is gone and was in no set changes none.
    spare = ~rows.index.isin(
        np.concatenate(
            [
                rows.merge(a.rows, on=["case_id", "i", "j"], how="left", indicator=True)
                .query("_merge == 'both'")
                .index
                for a in one
            ]
        )
    )
    fewer = rows.drop(rows.index[np.flatnonzero(spare & (rows["group"] == "NN"))[:5]]).reset_index(drop=True)
    three = draw_sets(
        fewer, {"single": np.zeros(len(fewer), np.int64)}, SetSettings(size=90, shares=("0", "30"))
    )
    assert [a.hash for a in three] == [a.hash for a in one if a.share in ("0", "30")]


def test_a_larger_share_keeps_the_patches_of_a_smaller_one():
    rows = patch_rows()
    made = {
        a.share: a.rows
        for a in draw_sets(rows, {"single": np.zeros(len(rows), np.int64)}, SetSettings(size=300))
    }
    keys = {
        share: set(zip(part["case_id"], part["i"], part["j"], strict=True)) for share, part in made.items()
    }
    partial = {
        share: set(zip(*(part[part["type"] == "PT"][name] for name in ("case_id", "i", "j")), strict=True))
        for share, part in made.items()
    }
    assert partial["10"] < partial["20"] < partial["50"]
    assert len(keys["10"] & keys["20"]) >= 270


def test_no_tumour_no_normal_and_a_patch_twice_are_refused():
    rows = patch_rows(pt=0, ft=0)
    with pytest.raises(UserError, match="no tumour patch"):
        draw_sets(rows, {"single": np.zeros(len(rows), np.int64)})
    rows = patch_rows(nn=0, nt=0)
    with pytest.raises(UserError, match="no normal patch"):
        draw_sets(rows, {"single": np.zeros(len(rows), np.int64)})
    with pytest.raises(UserError, match="in the table twice"):
        canonical_order(pd.concat([rows, rows[:1]]))
    with pytest.raises(UserError, match="given twice"):
        SetSettings(shares=("10", "10.0"))


HASHES = [
    "464e193bbf58c210",
    "d4a6cabab63c8adf",
    "66793075449c02b5",
    "59e96be7714686a8",
    "6e604302318e498e",
    "15fb249288ef2695",
    "bca2f379fbf1a89e",
]
