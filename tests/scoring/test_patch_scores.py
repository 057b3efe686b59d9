"""The table of patch scores: what is missing counts as worst, impossible numbers are refused (LN-10, ST-14)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.errors import UserError
from elsewhere.phantom.patch_scores import PatchWorld, draw_patch_scores
from elsewhere.scoring.patch_rows import sum_patches
from elsewhere.scoring.patch_scores import DICE, FPR, read_patch_scores


@pytest.fixture
def table():
    world = PatchWorld(internal=8, external=6, models=2, folds=3)
    return draw_patch_scores(world, np.random.default_rng(1))


def everything(scores):
    return np.ones(len(scores.parts), dtype=bool)


def test_fold_means_and_their_average_are_plain_means_over_patches(table):
    scores = read_patch_scores(table)
    by_fold = table.groupby(["model", "fold"], sort=False)[
        ["sum_dice", "n_tumour", "sum_fpr", "n_normal"]
    ].sum()
    means = (by_fold["sum_dice"] / by_fold["n_tumour"]).to_numpy().reshape(2, 3)
    assert scores.fold_means(DICE, everything(scores)) == pytest.approx(means)
    average = scores.fold_average(FPR).sum(axis=1) / scores.count["fpr"].sum()
    expected = (by_fold["sum_fpr"] / by_fold["n_normal"]).to_numpy().reshape(2, 3).mean(axis=1)
    assert average == pytest.approx(expected)
    assert scores.warnings == () and not any(one.patches for one in scores.coverage)


def test_the_order_of_rows_changes_nothing(table):
    a, b = read_patch_scores(table), read_patch_scores(table.sample(frac=1.0, random_state=2))
    assert a.patients == b.patients
    for one, other in ((a, b),):
        order = [list(other.variants["model"]).index(name) for name in one.variants["model"]]
        assert other.fold_means(DICE, everything(other))[order] == pytest.approx(
            one.fold_means(DICE, everything(one))
        )


def test_a_missing_slide_counts_as_worst_and_is_named(table):
    drop = (table["model"] == "histopathology-0") & (table["case_id"] == "slide-000") & (table["fold"] == "2")
    scores = read_patch_scores(table[~drop])
    lost = table[drop].iloc[0]
    got = next(one for one in scores.coverage if one.model == "histopathology-0")
    assert (got.rows, got.slides, got.patches) == (1, 1, int(lost["n_tumour"] + lost["n_normal"]))
    full = read_patch_scores(table)
    at = list(scores.variants["model"]).index("histopathology-0")
    gain = full.total["dice"].sum() - scores.total["dice"].sum()
    assert gain == pytest.approx(lost["sum_dice"])
    assert scores.total["fpr"][at, 1, 0] == pytest.approx(lost["n_normal"])
    assert "1 of 2 models have no score for some patches" in scores.warnings[0]


def test_predictions_for_half_of_the_patches_are_completed_with_the_worst_value(table):
    half = table["model"] == "histopathology-natural"
    whole = table.copy()
    for name in ("n_tumour", "n_normal"):
        whole[name] = 2 * (whole[name] // 2) + 2 * (whole[name] % 2)
    for total, count in (("sum_dice", "n_tumour"), ("sum_fpr", "n_normal")):
        whole[total] = table[total] / table[count].clip(lower=1) * whole[count]
    whole = whole.drop(columns=["sum_dice2", "sum_fpr2"])
    cut = whole.copy()
    for name in ("sum_dice", "sum_fpr", "n_tumour", "n_normal"):
        cut.loc[half, name] /= 2
    scores, full = read_patch_scores(cut), read_patch_scores(whole)
    dice = [s.fold_means(DICE, everything(s))[0, 0] for s in (scores, full)]
    fpr = scores.fold_means(FPR, everything(scores))[0, 0]
    assert dice[0] == pytest.approx(dice[1] / 2) and fpr > 0.49
    lost = scores.coverage[0]
    assert lost.patches == pytest.approx(lost.expected / 2, rel=0.01)


def test_a_model_with_fewer_folds_is_averaged_over_its_own(table):
    short = table[~((table["model"] == "histopathology-0") & (table["fold"] == "3"))]
    scores = read_patch_scores(short)
    means = scores.fold_means(DICE, everything(scores))
    assert np.isnan(means[1, 2]) and np.isfinite(means[1, :2]).all()
    assert any("1 models have fewer folds" in text for text in scores.warnings)
    assert scores.fold_average(DICE)[1].sum() / scores.count["dice"].sum() == pytest.approx(
        means[1, :2].mean()
    )


def test_folds_with_slides_of_their_own_have_to_be_declared(table):
    number = table["case_id"].str[-3:].astype(int) % 3 + 1
    crossed = table[table["fold"].astype(int) == number]
    with pytest.raises(UserError, match="--folds own"):
        read_patch_scores(crossed)
    scores = read_patch_scores(crossed, folds="own")
    first = crossed[crossed["model"] == "histopathology-natural"]
    pooled = scores.fold_average(DICE)[0].sum() / scores.count["dice"].sum()
    assert pooled == pytest.approx(first["sum_dice"].sum() / first["n_tumour"].sum())
    assert not any(one.patches for one in scores.coverage)


def test_a_fold_without_tumour_slides_is_named(table):
    bare = table.copy()
    at = (bare["model"] == "histopathology-0") & (bare["fold"] == "2")
    bare.loc[at, ["n_tumour", "sum_dice", "sum_dice2"]] = 0.0
    scores = read_patch_scores(bare)
    assert any(
        "no tumour slide and counts with Dice 0: histopathology-0, fold 2" in text for text in scores.warnings
    )
    assert scores.fold_means(DICE, everything(scores))[1, 1] == 0.0


def test_patch_sd_comes_from_the_sums_of_squares():
    values = np.array([0.1, 0.4, 0.9, 1.0])
    row = {
        "case_id": "a",
        "model": "m",
        "n_tumour": 4,
        "sum_dice": values.sum(),
        "sum_dice2": (values**2).sum(),
    }
    scores = read_patch_scores(pd.DataFrame([row | {"n_normal": 1, "sum_fpr": 0.0}]))
    assert scores.patch_sd(DICE, np.array([True]))[0] == pytest.approx(values.std(ddof=1))
    assert np.isnan(scores.patch_sd(FPR, np.array([True]))[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sum_dice": 1e6}, "sum_dice is below 0 or above n_tumour"),
        ({"sum_fpr": -1.0}, "sum_fpr is below 0 or above n_normal"),
        ({"n_tumour": 1.5}, "n_tumour is no whole number"),
        ({"n_normal": 1e300}, "n_normal is no whole number from 0 to a trillion"),
        ({"sum_dice2": 1e6}, "sum_dice2 does not fit sum_dice"),
        ({"model": ""}, "column 'model' is empty in 1 rows"),
        ({"patient_id": "another"}, "1 slides have two values of patient_id"),
        ({"domain": "OOD"}, "1 slides have two values of domain"),
        ({"sum_dice": np.nan}, "column 'sum_dice' is empty"),
        ({"sum_dice": np.inf}, "column 'sum_dice' is infinite"),
    ],
)
def test_impossible_numbers_name_their_row(table, change, words):
    bad = table.copy()
    for name, value in change.items():
        bad[name] = bad[name].astype(object)
        bad.loc[0, name] = value
    with pytest.raises(UserError, match=words.replace("(", r"\(")):
        read_patch_scores(bad)


def test_a_row_twice_and_a_missing_column_are_refused(table):
    with pytest.raises(UserError, match="2 rows are of the same case_id, model, fold"):
        read_patch_scores(pd.concat([table, table.head(1)]))
    with pytest.raises(UserError, match="no column sum_fpr"):
        read_patch_scores(table.drop(columns="sum_fpr"))


def patch_rows(rng, n=400):
    tumour = rng.random(n) < 0.3
    return pd.DataFrame(
        {
            "case_id": rng.choice(["a", "b", "c"], n),
            "model": rng.choice(["m1", "m2"], n),
            "fold": rng.choice(["1", "2"], n),
            "dice": np.where(tumour, rng.random(n), np.nan),
            "fpr": np.where(tumour, np.nan, rng.random(n)),
        }
    )


def test_a_stream_of_parquet_rows_gives_the_sums_of_the_rows(tmp_path):
    rows = patch_rows(np.random.default_rng(3))
    rows.to_parquet(tmp_path / "rows.parquet", index=False)
    slides = pd.DataFrame({"case_id": ["a", "b", "c"], "patient_id": ["p", "p", "q"], "stage": ["macro"] * 3})
    streamed = sum_patches(tmp_path / "rows.parquet", slides=slides)
    whole = sum_patches(rows)
    assert streamed.patches == whole.patches == 400 and streamed.table["patient_id"].tolist()[:1] == ["p"]
    keys = ["case_id", "model", "fold"]
    a, b = (t.sort_values(keys, ignore_index=True) for t in (streamed.table, whole.table))
    for name in ("n_tumour", "sum_dice", "sum_dice2", "n_normal", "sum_fpr", "sum_fpr2"):
        assert a[name].to_numpy() == pytest.approx(b[name].to_numpy())
    first = rows[(rows["case_id"] == "a") & (rows["model"] == "m1") & (rows["fold"] == "1")]
    assert b.loc[0, "sum_dice2"] == pytest.approx((first["dice"] ** 2).sum())
    read_patch_scores(streamed.table)


def test_patches_without_a_value_are_refused_or_worst_where_their_kind_is_known(tmp_path):
    rows = patch_rows(np.random.default_rng(4))
    kind = rows["dice"].notna().astype(int)
    rows.loc[rows.index[:10], ["dice", "fpr"]] = np.nan
    with pytest.raises(UserError, match="neither dice nor fpr, or both"):
        sum_patches(rows)
    with_kind = rows.assign(tumour=kind)
    with_kind.to_parquet(tmp_path / "rows.parquet", index=False)
    made, streamed = sum_patches(with_kind), sum_patches(tmp_path / "rows.parquet")
    assert made.unscored == streamed.unscored == 10
    assert made.table["sum_fpr"].sum() == pytest.approx(rows["fpr"].sum() + (kind[:10] == 0).sum())
    assert made.table["n_tumour"].sum() == streamed.table["n_tumour"].sum() == kind.sum()


def test_pixel_counts_become_dice_and_false_positive_rates():
    rows = {"case_id": ["a", "a"], "model": "m", "tp": [3, 0], "fp": [1, 2], "fn": [0, 0], "tn": [4, 6]}
    made = sum_patches(pd.DataFrame(rows)).table.iloc[0]
    assert (made["sum_dice"], made["sum_fpr"]) == pytest.approx((6 / 7, 0.25))
    assert [made[name] for name in ("n_tumour", "n_normal", "tp", "fp", "tn")] == [1, 1, 3, 3, 10]


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"case_id": ["a"], "model": ["m"], "dice": [1.2], "fpr": [None]}, "dice is below 0 or above 1"),
        ({"case_id": ["a"], "model": ["m"], "dice": [0.2]}, "no columns dice and fpr, and no pixel counts"),
        ({"case_id": ["a"], "dice": [0.2], "fpr": [None]}, "no column model"),
        ({"case_id": ["a"], "model": ["m"], "tp": [-1], "fp": [0], "fn": [0], "tn": [0]}, "no whole numbers"),
    ],
)
def test_bad_rows_are_named(frame, words):
    with pytest.raises(UserError, match=words):
        sum_patches(pd.DataFrame(frame))


def test_slides_that_the_table_of_slides_lacks_are_named():
    rows = patch_rows(np.random.default_rng(5))
    with pytest.raises(UserError, match="1 slides of the patches are not in the table of slides"):
        sum_patches(rows, slides=pd.DataFrame({"case_id": ["a", "b"]}))
