"""`summarise`: the same numbers from a scores table, or from a result folder."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from worlds.task_files import MAKERS, options_of_task

SHARED = ("metrics", "groups", "fairness", "sites")


@pytest.mark.parametrize("task", sorted(MAKERS))
def test_the_same_numbers_from_csv_parquet_and_folder(task, results, run, tmp_path):
    files, out, done = results(task)
    first = done.json
    table = pd.read_parquet(out / "scores.parquet")
    folder = tmp_path / "tables"
    folder.mkdir()
    table.to_csv(folder / "scores.csv", index=False)
    table.to_parquet(folder / "scores.parquet")
    if (out / "events.parquet").exists():
        (folder / "events.parquet").write_bytes((out / "events.parquet").read_bytes())
    for source in (folder / "scores.csv", folder / "scores.parquet", out):
        again = run(
            "summarise",
            task,
            files.cohort,
            source,
            "--protocol",
            first["protocol"],
            *options_of_task(task),
            "--resamples",
            50,
            "--out",
            tmp_path / "again",
            "--replace",
            "--json",
        )
        assert again.code == 0, again.said
        found = again.json
        for part in SHARED:
            assert same(found.get(part), first.get(part)), (source, part)
        for count in ("cases", "patients", "scored", "missing", "undefined", "without_boxes", "extra"):
            assert found["counts"][count] == first["counts"][count], (source, count)


def same(a, b):
    """Equal up to the last digits, however deep; csv keeps every digit, so this is rounding alone."""
    if isinstance(a, dict) and isinstance(b, dict):
        assert set(a) == set(b)
        return all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float | int):
        return a == pytest.approx(b, abs=1e-9)
    return a == b


def test_a_large_table_by_its_keys(run, tmp_path, pair):
    rng = np.random.default_rng(3)
    table = pd.DataFrame(
        {
            "model": np.repeat(["a", "b"], 100),
            "fold": np.tile(np.repeat([0, 1], 50), 2),
            "patient_id": np.tile(np.arange(50).astype(str), 4),
            "dice": rng.random(200),
        }
    )
    table.to_parquet(tmp_path / "patches.parquet")
    out = tmp_path / "out"
    done = run(
        "summarise",
        "segmentation",
        pair.cohort,
        tmp_path / "patches.parquet",
        "--by",
        "model,fold",
        "--out",
        out,
        "--json",
    )
    assert done.code == 0, done.said
    assert len(done.json["rows"]) == 4
    groups = pd.read_csv(out / "groups.csv")
    wanted = table.groupby(["model", "fold"])["dice"].mean().to_numpy()
    column = next(c for c in groups.columns if c in ("dice_mean", "mean", "dice"))
    assert groups[column].to_numpy() == pytest.approx(wanted, abs=1e-12)
    wrong = run(
        "summarise",
        "segmentation",
        pair.cohort,
        tmp_path / "patches.parquet",
        "--by",
        "modl",
        "--out",
        out,
        "--replace",
    )
    assert wrong.code == 64
    assert "modl" in wrong.err


def test_mistakes_are_named(run, pair, results, tmp_path):
    _, out, _ = results("classification")
    done = run("summarise", "response", pair.cohort, out, "--out", tmp_path / "o")
    assert done.code == 64
    assert "classification" in done.err
    pd.DataFrame({"id": ["a"], "dice": [1.0]}).to_csv(tmp_path / "s.csv", index=False)
    done = run("summarise", "segmentation", pair.cohort, tmp_path / "s.csv", "--out", tmp_path / "o")
    assert done.code == 64
    assert "--map case_id" in done.err
    done = run(
        "summarise",
        "segmentation",
        pair.cohort,
        tmp_path / "s.csv",
        "--map",
        "case_id=idd",
        "--out",
        tmp_path / "o",
    )
    assert done.code == 64
    assert "the columns are: id" in done.err
    assert not (tmp_path / "o").exists()
