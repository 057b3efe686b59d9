"""`report`: the page again, and every table and figure as files."""

from __future__ import annotations

import pandas as pd
import pytest

from worlds.task_files import MAKERS

IN_QUICK = ("classification", "detection")


@pytest.mark.parametrize(
    "task",
    [pytest.param(task, marks=[] if task in IN_QUICK else pytest.mark.slow) for task in sorted(MAKERS)],
)
def test_tables_and_figures_as_files(task, results, run, tmp_path):
    _, result, _ = results(task)
    page = tmp_path / "page.html"
    done = run(
        "report",
        result,
        "--out",
        page,
        "--tables",
        tmp_path / "tables",
        "--figures",
        tmp_path / "figures",
        "--json",
    )
    assert done.code == 0, done.said
    files = done.json["files"]
    assert str(page) in files
    endings = {file.rsplit(".", 1)[-1] for file in files}
    assert {"html", "csv", "tex"} <= endings
    assert {"svg", "pdf", "png"} <= endings
    for file in (tmp_path / "figures").iterdir():
        head = file.read_bytes()[:200]
        assert head.startswith({".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}[file.suffix]) or (
            file.suffix == ".svg" and b"<svg" in head
        )
    for file in (tmp_path / "tables").glob("*.csv"):
        assert len(pd.read_csv(file)) > 0, file
        tex = file.with_suffix(".tex").read_text()
        assert "tabular" in tex or "longtable" in tex
    text = page.read_text()
    for case in pd.read_parquet(result / "scores.parquet")["case_id"].astype(str):
        assert f">{case}<" not in text


def test_the_page_in_its_folder(results, run, tmp_path):
    import shutil

    _, result, _ = results("classification")
    copy = tmp_path / "copy"
    shutil.copytree(result, copy)
    (copy / "report.html").unlink()
    done = run("report", copy)
    assert done.code == 0
    assert (copy / "report.html").exists()
    assert "report.html" in done.out


def test_no_result_folder(run, tmp_path):
    done = run("report", tmp_path)
    assert done.code == 64
    assert "summary.json" in done.err
    (tmp_path / "summary.json").write_text("{}")
    assert run("report", tmp_path).code == 64
    (tmp_path / "summary.json").write_text("not json")
    assert run("report", tmp_path).code == 64
