"""Figures and tables as files, the methods paragraph, the checklist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from elsewhere.errors import UserError
from elsewhere.report.result.checklist import NOT_ANSWERABLE, checklist_rows
from elsewhere.report.result.methods import methods_paragraph
from elsewhere.report.result.tables import escape_latex, summary_tables, to_latex, write_tables
from elsewhere.report.summary import figure_specs, write_figures

sys.path.insert(0, str(Path(__file__).parent))
from sample import TASKS, make_summary


def test_every_figure_as_a_file_and_the_same_bytes_twice(tmp_path):
    keep = ("task", "metrics", "curves", "flow", "verdict", "difficulty")
    summary = {k: v for k, v in make_summary("detection").items() if k in keep}
    first = write_figures(summary, tmp_path / "a")
    second = write_figures(summary, tmp_path / "b")
    assert {p.stem for p in first} == set(figure_specs(summary))
    assert {p.suffix for p in first} == {".svg", ".pdf", ".png"}
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
        assert one.stat().st_size > 500
    with pytest.raises(UserError):
        write_figures(summary, tmp_path, formats=("bmp",))


@pytest.mark.parametrize("task", TASKS)
def test_figures_of_every_task_can_be_drawn(tmp_path, task):
    names = {p.stem for p in write_figures(make_summary(task), tmp_path, formats=("svg",))}
    expected = {
        "classification": {
            "curve-roc",
            "curve-pr",
            "reliability",
            "ranks",
            "rank-frequencies",
            "fairness-weight",
            "net-benefit",
        },
        "detection": {"curve-froc", "difficulty"},
        "segmentation": {"forest-size"},
        "response": {"curve-roc", "reliability"},
        "slides": {"curve-froc", "confusion-stage"},
    }[task]
    assert expected | {"verdict", "flow", "forest-age", "forest-sites"} <= names


def test_tables_keep_full_precision_and_suppress_small_cells(tmp_path):
    summary = make_summary("classification")
    summary["metrics"]["auroc"]["value"] = 0.8421234567890123
    write_tables(summary, tmp_path)
    metrics = pd.read_csv(tmp_path / "metrics.csv")
    assert metrics.set_index("metric").loc["auroc", "value"] == 0.8421234567890123
    groups = pd.read_csv(tmp_path / "groups.csv", dtype=str)
    assert groups.set_index("group").loc["not recorded", "cases"] == "<5"
    tables = summary_tables(summary)
    assert {"metrics", "claims", "groups", "fairness", "sites", "ranking", "calibration", "checklist"} <= set(
        tables
    )
    assert "rows" not in tables["audit"].columns


def test_latex_is_escaped_and_has_booktabs():
    table = pd.DataFrame({"name_1": ["50 % & more_#", "<5"], "value": [0.99964, None]})
    text = to_latex(table, caption="A & B")
    assert r"\toprule" in text
    assert r"\bottomrule" in text
    assert r"50 \% \& more\_\# & 0.9996 \\" in text
    assert r"\textless{}5 & --- \\" in text
    assert r"\caption{A \& B}" in text
    assert escape_latex("a\\b{}~^$") == r"a\textbackslash{}b\{\}\textasciitilde{}\textasciicircum{}\$"


def test_methods_say_what_the_run_says():
    text = methods_paragraph(make_summary("classification"))
    for expected in (
        "protocol plain 1.0",
        "1\u202f000 times",
        "seed 42",
        "margin of 0.030",
        "declared in the claim",
        "90 %",
    ):
        assert expected in text, expected
    assert "8 cases without a prediction" in text
    assert "elsewhere 0.1.0" in text
    bare = methods_paragraph(make_summary("slides", word=None, rich=False))
    assert "No claim was tested" in bare
    none = make_summary("slides", word=None)
    none["provenance"]["resamples"] = 0
    assert "No resampling was done" in methods_paragraph(none)
    assert methods_paragraph({"methods": "As given."}) == "As given."
    assert methods_paragraph({}) == ""


def test_the_checklist_fills_from_the_run_or_says_so():
    rich = {
        (r["guideline"], r["question"]): r["answer"] for r in checklist_rows(make_summary("classification"))
    }
    empty = checklist_rows({})
    assert {g for g, _ in rich} == {"TRIPOD+AI", "CLAIM", "FUTURE-AI"}
    assert all(r["answer"] == NOT_ANSWERABLE for r in empty)
    assert rich["TRIPOD+AI", "Ethical approval"] == NOT_ANSWERABLE
    assert "8 missing predictions" in rich["TRIPOD+AI", "Missing data, and how it was handled"]
    assert "Biopsy for 143" in rich["TRIPOD+AI", "Outcome, and how it was established"]


def test_importing_the_report_loads_no_matplotlib_and_no_pandas():
    heavy = ("matplotlib", "pandas", "jinja2")
    code = f"import sys, elsewhere.report; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_figures_touch_no_global_state(tmp_path):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    write_figures(make_summary("segmentation"), tmp_path, formats=("svg",))
    assert dict(mpl.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
