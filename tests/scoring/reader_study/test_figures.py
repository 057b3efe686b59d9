"""Figures of merit of a reader study against plain loops, with cases and patients left out by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.phantom.reader_study import ReaderWorld, draw_reader_study
from elsewhere.scoring.reader_study import FIGURES_OF_MERIT, figure_matrix, find_figure, panel_matrices
from elsewhere.scoring.reader_study.figures import value_without_each
from elsewhere.statistics.localisation import LesionTruth
from elsewhere.statistics.mrmc import jackknife_covariance


def plain(name, study, marks, kept):
    """The figure of merit over some of the cases, from its definition."""
    truth, low = study.truth, -np.inf
    lesions = [at for at in range(truth.case.size) if truth.case[at] in kept]
    normal = [case for case in kept if truth.n_lesions[case] == 0]
    if name in ("sensitivity", "specificity"):
        ill = name == "sensitivity"
        part = [case for case in kept if (truth.n_lesions[case] > 0) == ill]
        return np.mean([(max(marks.score[marks.case == case], default=low) >= 60) == ill for case in part])
    if name == "max_llf":
        return np.mean([any(marks.lesion == at) for at in lesions])
    if name == "max_nlf":
        return sum(case in kept for case in marks.case[marks.lesion < 0]) / len(kept)

    def highest(rows):
        return max(marks.score[rows], default=low)

    false = {case: highest((marks.case == case) & (marks.lesion < 0)) for case in kept}
    if name in ("auroc", "inferred_roc"):
        ill = [case for case in kept if truth.n_lesions[case] > 0]
        above = [(highest(marks.case == case), 1.0) for case in ill]
    else:
        weighted = name.startswith("w")
        above = [(highest(marks.lesion == at), truth.weights[at] if weighted else 1.0) for at in lesions]
    below = [false[case] for case in (kept if name.endswith("1") else normal)]
    pairs = [(w, (a > b) + 0.5 * (a == b)) for a, w in above for b in below]
    return sum(w * psi for w, psi in pairs) / sum(w for w, _ in pairs)


@pytest.mark.parametrize("figure", FIGURES_OF_MERIT, ids=lambda f: f.name)
def test_each_figure_and_its_values_without_each_patient(figure):
    world = ReaderWorld(
        paradigm=figure.paradigm or "FROC",
        readers=2,
        normal=9,
        diseased=8,
        cases_per_patient=2,
        threshold=0.8,
    )
    study = draw_reader_study(world, np.random.default_rng(5))
    figure = dataclasses.replace(figure, threshold=60.0 if figure.at_threshold else None)
    everyone = list(range(study.truth.n_cases))
    for leave_out, cluster in (("case", np.arange(17)), ("patient", study.patient_of_case)):
        expected = []
        for pair in study.pairs():
            marks = study.marks[pair]
            value, without = value_without_each(figure, study.truth, marks, cluster)
            assert value == pytest.approx(plain(figure.name, study, marks, everyone), abs=1e-12)
            rows = []
            for one in range(cluster.max() + 1):
                kept = [case for case in everyone if cluster[case] != one]
                gone = study.truth.n_lesions[cluster == one] > 0
                needs = {"max_llf": gone.any(), "sensitivity": gone.any(), "specificity": (~gone).any()}
                if needs.get(figure.name, True):
                    rows.append(plain(figure.name, study, marks, kept))
            np.testing.assert_allclose(without, rows, atol=1e-12)
            expected.append(rows)
        matrix = figure_matrix(study, figure, leave_out=leave_out)
        np.testing.assert_allclose(matrix.covariance, jackknife_covariance(expected), atol=1e-14)


def test_a_figure_is_found_by_any_of_its_names():
    assert find_figure("HR-AUC", "FROC").name == find_figure("inferred_roc", "ROC").name == "inferred_roc"
    assert find_figure("Max-NLF", "FROC").higher_is_better is False
    assert find_figure(None, "FROC").name == "wafroc" and find_figure(None, "ROC").name == "auroc"
    with pytest.raises(UserError, match="unknown figure of merit 'wafrok'") as found:
        find_figure("wafrok", "FROC")
    assert "wafroc" in found.value.fix
    with pytest.raises(UserError, match="Sensitivity needs the rating from which"):
        find_figure("sensitivity", "ROC")
    with pytest.raises(UserError, match="wAFROC has no threshold"):
        find_figure("wafroc", "FROC", threshold=3)
    assert find_figure("specificity", "FROC", threshold=3).threshold == 3
    with pytest.raises(UserError, match="needs a study of the paradigm ROC"):
        find_figure("auc", "FROC")
    with pytest.raises(UserError, match="needs a study of the paradigm FROC"):
        find_figure("wafroc", "ROC")


def test_cases_that_a_figure_needs():
    study = draw_reader_study(ReaderWorld(readers=2, normal=4, diseased=4), np.random.default_rng(6))
    every = np.repeat(np.arange(8), 2)
    all_ill = dataclasses.replace(study, truth=LesionTruth(n_cases=8, case=every))
    with pytest.raises(UserError, match="0 cases have no lesion; wAFROC needs at least two"):
        figure_matrix(all_ill, find_figure("wafroc", "FROC"))
    healthy = dataclasses.replace(study, truth=LesionTruth(n_cases=8, case=np.array([], dtype=int)))
    with pytest.raises(UserError, match="0 cases have a lesion"):
        figure_matrix(healthy, find_figure("wafroc", "FROC"))
    one = dataclasses.replace(study, patient_of_case=np.array([0, 0, 0, 0, 1, 1, 1, 1]))
    with pytest.raises(UserError, match="undefined without one of the patients"):
        figure_matrix(one, find_figure("wafroc", "FROC"))
    assert figure_matrix(one, find_figure("wafroc", "FROC"), leave_out="case").shape == (2, 2)


def test_the_model_is_the_last_reader_of_each_panel():
    world = ReaderWorld(readers=3, normal=10, diseased=8, model=True)
    study = draw_reader_study(world, np.random.default_rng(7))
    figure = find_figure("wafroc", "FROC")
    panels, matrix = panel_matrices(study, figure), figure_matrix(study, figure)
    assert [panel.treatments for panel in panels] == [("unaided",), ("aided",)]
    assert panels[0].readers == (("1", "2", "3", "AI"),)
    np.testing.assert_array_equal(panels[1].values[0, :3], matrix.values[1])
    assert panels[0].values[0, 3] == panels[1].values[0, 3]
