"""The page of a reader study: its tables for any number of treatments and readers, in crossed and nested studies."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.analysis.readers.inputs import Figure, ReaderInputs
from elsewhere.analysis.readers.summary import ReaderStudyOptions, analyse_inputs
from elsewhere.report.page.figures import save_figures
from elsewhere.report.result.prepare import prepare
from elsewhere.report.summary import build_sections, figure_specs, render_report
from elsewhere.statistics.mrmc import FigureMatrix, RandomFactors


def summary_of(treatments, readers, *, nested=False, model=False, **options):
    rng = np.random.default_rng(1)
    names = [f"method {i}" for i in range(treatments)]
    rows = [
        [f"{i}-{j}" for j in range(readers)] if nested else [f"R{j}" for j in range(readers)]
        for i in range(treatments)
    ]
    cases = rng.normal(size=(1, 1, 40)) + rng.normal(size=(treatments, readers, 40))
    values = 0.8 + 0.02 * rng.normal(size=(treatments, readers))
    matrix = FigureMatrix.from_left_out(
        values,
        values[:, :, None] + 0.002 * cases,
        treatments=names,
        readers=rows if nested else rows[0],
        nested=nested,
    )
    panels = ()
    if model:
        first = rng.normal(size=(1, readers + 1, 40))
        panels = (
            FigureMatrix.from_left_out(
                np.append(values[:1], [[0.83]], axis=1),
                0.8 + 0.002 * first,
                treatments=names[:1],
                readers=[*rows[0], "AI"],
            ),
        )
    inputs = ReaderInputs(
        figure=Figure(name="wafroc", title="wAFROC", about="lesions", bounds=(0.0, 1.0)),
        matrix=matrix,
        panels=panels,
        model="AI" if model else None,
        readers_are="trainings" if nested else "readers",
        counts={"cases": 40, "patients": 40, "positives": 15},
    )
    return analyse_inputs(inputs, ReaderStudyOptions(**options)).summary


def tables(summary):
    found = {}
    for section in build_sections(prepare(summary)):
        for block in section.blocks:
            for inner in getattr(block, "blocks", (block,)):
                if getattr(inner, "type", "") == "table":
                    found[inner.name] = inner
    return found


@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((2, 5), {}),
        ((3, 4), {}),
        ((1, 5), {}),
        ((2, 1), {}),
        ((2, 3), {"nested": True}),
        ((1, 4), {"model": True}),
        ((2, 5), {"margin": 0.05}),
        ((2, 60), {}),
    ],
    ids=str,
)
def test_every_kind_of_study_has_its_page(shape, settings):
    summary = summary_of(*shape, **settings)
    found = tables(summary)
    treatments, readers = shape
    rows = len(found["reader-values"].rows)
    assert rows == treatments * readers if settings.get("nested") else rows == readers
    assert ("reader-test-leading" in found) == (treatments > 1)
    assert len(found["reader-means-leading"].rows) == treatments
    assert ("reader-panel" in found) == bool(settings.get("model"))
    assert ("reader-values" in figure_specs(summary)) == (readers <= 40)
    page = render_report(summary)
    assert "None" not in page and "nan" not in page.split("<style")[0]
    assert summary["question"] in page
    for table in found.values():
        assert all(len(row) == len(table.columns) for row in table.rows)
    if treatments == 3:
        assert found["reader-differences-leading"].columns[-1] == "p, Holm"
        assert len(found["reader-differences-leading"].rows) == 3
    if settings.get("nested"):
        assert found["reader-values"].caption == "wAFROC of each training"


def test_the_leading_analysis_is_the_one_that_was_asked_for():
    summary = summary_of(2, 5, random=RandomFactors.CASES)
    found = tables(summary)
    assert found["reader-test-leading"].rows[0][1].text == "1 and infinite"
    assert {"reader-test-readers-cases", "reader-test-readers"} <= set(found)
    assert "these readers" in next(s.lead for s in build_sections(prepare(summary)) if s.id == "readers")


def test_identical_treatments_say_why_there_is_no_test():
    values = np.full((2, 3), 0.8)
    matrix = FigureMatrix.from_left_out(
        values, np.full((2, 3, 10), 0.8), treatments=["a", "b"], readers=["1", "2", "3"]
    )
    inputs = ReaderInputs(figure=Figure(name="auroc", title="AUROC"), matrix=matrix)
    summary = analyse_inputs(inputs, ReaderStudyOptions()).summary
    page = render_report(summary)
    assert "undefined" in page and "do not vary" in page


@pytest.mark.parametrize(("readers", "words"), [(2, "about 10 %"), (4, "up to 6 %"), (5, None)])
def test_few_readers_are_warned_about(readers, words):
    warnings = summary_of(2, readers)["warnings"]
    assert any(words in text for text in warnings) if words else not warnings


def test_the_figures_are_written_as_files(tmp_path):
    written = save_figures(figure_specs(summary_of(2, 5, model=True)), tmp_path, ("svg", "png"))
    assert {path.name for path in written} >= {"reader-values.svg", "reader-analyses.png"}
