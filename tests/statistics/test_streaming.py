"""Group means in one stream against pandas on the same rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.errors import UserError
from elsewhere.statistics.means import clustered_ratio, t_interval
from elsewhere.statistics.streaming import summarise_stream


@pytest.fixture
def table(tmp_path) -> tuple[pd.DataFrame, str]:
    rng = np.random.default_rng(3)
    n = 5000
    frame = pd.DataFrame(
        {
            "model": rng.choice(["a", "b", "c"], n),
            "fold": rng.integers(0, 5, n),
            "stage": rng.choice(["macro", None], n),
            "patient_id": rng.choice([f"p{i:02d}" for i in range(40)], n),
            "dice": rng.random(n) + 1000.0,
            "fpr": rng.random(n),
        }
    )
    frame.loc[rng.random(n) < 0.1, "dice"] = np.nan
    path = tmp_path / "scores.parquet"
    frame.to_parquet(path)
    return frame, str(path)


def test_means_spreads_and_counts_equal_pandas(table):
    frame, path = table
    out = summarise_stream(path, by=["model", "fold", "stage"], values=["dice", "fpr"], batch_rows=700)
    assert len(out) == 3 * 5 * 2 * 2
    grouped = frame.groupby(["model", "fold", "stage"], dropna=False)
    for name in ("dice", "fpr"):
        ours = out[out["value"] == name]
        for row in ours.itertuples():
            rows = grouped.get_group(
                (row.model, row.fold, row.stage if isinstance(row.stage, str) else np.nan)
            )
            assert row.n == rows[name].count()
            assert row.undefined == rows[name].isna().sum()
            assert row.mean == pytest.approx(rows[name].mean(), rel=1e-12)
            assert row.sd == pytest.approx(rows[name].std(), rel=1e-9)


def test_clustered_interval_equals_the_one_in_memory(table):
    frame, path = table
    out = summarise_stream(path, by=["model"], values=["dice"], cluster="patient_id", batch_rows=999)
    for row in out.itertuples():
        rows = frame[(frame["model"] == row.model) & frame["dice"].notna()]
        codes, patients = pd.factorize(rows["patient_id"])
        ratio = clustered_ratio(rows["dice"], np.ones(len(rows)), codes, n_clusters=len(patients))
        assert ratio is not None
        lo, hi = t_interval(ratio)
        assert (row.patients, row.df) == (len(patients), len(patients) - 1)
        assert (row.lo, row.hi) == pytest.approx((lo, hi), rel=1e-12)
        assert row.patient_mean == pytest.approx(rows.groupby("patient_id")["dice"].mean().mean())


def test_batches_do_not_change_the_result(table):
    _, path = table
    small = summarise_stream(path, by=["fold", "model"], values=["fpr"], cluster="patient_id", batch_rows=64)
    large = summarise_stream(path, by=["fold", "model"], values=["fpr"], cluster="patient_id")
    pd.testing.assert_frame_equal(small, large, rtol=1e-12)


def test_a_folder_of_files_is_one_table(table, tmp_path):
    frame, path = table
    folder = tmp_path / "parts"
    folder.mkdir()
    frame.iloc[:2000].to_parquet(folder / "1.parquet")
    frame.iloc[2000:].to_parquet(folder / "2.parquet")
    one = summarise_stream(path, by=["model"], values=["fpr"])
    parts = summarise_stream(folder, by=["model"], values=["fpr"])
    pd.testing.assert_frame_equal(one, parts, rtol=1e-12)


def test_a_group_of_one_patient_has_no_interval(tmp_path):
    path = tmp_path / "one.parquet"
    pd.DataFrame({"model": ["a", "a"], "patient_id": ["x", "x"], "dice": [0.5, 0.7]}).to_parquet(path)
    row = summarise_stream(path, by=["model"], values=["dice"], cluster="patient_id").iloc[0]
    assert row["mean"] == pytest.approx(0.6)
    assert np.isnan(row["lo"]) and np.isnan(row["se"])


def test_user_errors_name_the_trouble(table, tmp_path):
    _, path = table
    with pytest.raises(UserError, match="model"):
        summarise_stream(path, by=["modle"], values=["dice"])
    with pytest.raises(UserError, match="not numeric"):
        summarise_stream(path, by=["model"], values=["patient_id"])
    with pytest.raises(UserError, match="no such file"):
        summarise_stream(tmp_path / "none.parquet", by=["model"], values=["dice"])
    (tmp_path / "text.parquet").write_text("not parquet")
    with pytest.raises(UserError, match="parquet"):
        summarise_stream(tmp_path / "text.parquet", by=["model"], values=["dice"])
