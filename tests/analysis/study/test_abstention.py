"""When models should not answer: scores of uncertainty, alone and of the seeds together (US-32)."""

from __future__ import annotations

import numpy as np
import pytest

from worlds.picture_results import make_results, tables_of, with_answers, with_settings


@pytest.fixture(scope="module")
def tables(half):
    return tables_of(half, "abstention")


def test_the_ensemble_is_known_only_where_seeds_share_their_cases(tables):
    found = {kind: set(part["score"]) for kind, part in tables["abstention"].groupby("kind")}
    assert "ensemble_entropy" in found["external"] and "ensemble_entropy" not in found["internal"]


def test_the_surest_cases_have_fewer_errors(tables):
    table = tables["abstention"]
    external = table[table["kind"] == "external"].set_index(["model", "input", "score"])
    best = external.loc[("cnn", "roi", "max_softmax")]
    assert best["error_detection"] > 0.6
    assert best["error_at_80"] < best["error_rate"] and best["aurc"] < best["error_rate"]


def test_at_full_coverage_the_risk_is_the_error_rate(tables):
    keys = ["model", "input", "score"]
    curves = tables["risk_coverage"]
    end = curves[(curves["coverage"] == 1.0) & (curves["kind"] == "external")].set_index(keys)
    scores = tables["abstention"]
    external = scores[scores["kind"] == "external"].set_index(keys)
    where = ("cnn", "roi", "max_softmax")
    assert end.loc[where, "risk"] == pytest.approx(external.loc[where, "error_rate"])


def test_the_seeds_as_one_model_average_independent_errors_out(tables):
    ensembles = tables["ensembles"]
    assert (ensembles["auroc"] > ensembles["mean_of_seeds"]).mean() > 0.9
    assert set(ensembles["kind"]) == {"external"}


def test_a_study_may_leave_the_ensemble_out(half):
    plain = tables_of(with_settings(half, analyses={"ensemble": False}), "abstention")
    assert "ensembles" not in plain
    assert not plain["abstention"]["score"].str.startswith("ensemble").any()


def test_what_a_recipe_does_not_give_is_left_out():
    """No distance, no Mahalanobis score; no logits, no energy. The probability alone gives max-softmax."""
    small = make_results(models=("cnn",), inputs=("roi",), seeds=(1,), kinds=("external",))
    lacking = with_answers(
        small, lambda held: {part: table.assign(distance=np.nan) for part, table in held.items()}
    )
    assert set(tables_of(lacking, "abstention")["abstention"]["score"]) == {"max_softmax", "energy"}
    columns = ["distance", "logit_negative", "logit_positive"]
    bare = with_answers(
        small, lambda held: {part: table.drop(columns=columns) for part, table in held.items()}
    )
    assert set(tables_of(bare, "abstention")["abstention"]["score"]) == {"max_softmax"}
