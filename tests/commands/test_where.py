"""Part of a cohort by its columns: who was left out is in the flow, and the audit still sees everybody."""

from __future__ import annotations

import numpy as np
import pytest

import elsewhere
from elsewhere.analysis.result.claim import read_claim
from elsewhere.errors import UserError
from elsewhere.phantom.hospitals import World, make

WORLD = World(patients_per_site=40, leaked_patients=5, file_name_ids=2, respelt_site_rows=2)


@pytest.fixture(scope="module")
def tables():
    return make("classification", np.random.default_rng(4), WORLD)


def test_only_the_test_part_is_scored_and_the_leak_is_still_found(tables):
    whole = elsewhere.score("classification", tables.cases, tables.predictions, resamples=0)
    part = elsewhere.score(
        "classification", tables.cases, tables.predictions, where={"split": "test"}, resamples=0
    )
    assert part.summary["counts"]["cases"] == whole.summary["counts"]["cases"] - 5
    assert part.summary["counts"]["extra"] == 0 and part.summary["counts"]["missing"] == 0
    whole_cohort, step = [s for s in part.summary["flow"] if s["of"] == "cohort"][:2]
    assert step["lost"] == 5 and "split = test" in step["step"]
    assert whole_cohort["n"] == step["n"] + step["lost"] == whole.summary["counts"]["cases"]
    assert "leak" in {finding["kind"] for finding in part.summary["audit"]}
    assert part.summary["provenance"]["settings"]["where"] == {"split": "test"}
    assert part.summary["provenance"]["cohort_hash"] != whole.summary["provenance"]["cohort_hash"]


def test_boxes_of_volumes_left_out_are_no_false_positives():
    made = make("detection", np.random.default_rng(4), World(patients_per_site=15))
    cohort = elsewhere.Cohort.from_frame(made.cases, lesions=made.lesions)
    settings = {"protocol": "dbtex-paper", "resamples": 0}
    part = elsewhere.score("detection", cohort, made.predictions, where={"site": "Cedar"}, **settings)
    cedar = cohort.subset(made.cases["site"] == "Cedar")
    studies = set(cedar.cases["exam_id"])
    alone = elsewhere.score(
        "detection", cedar, made.predictions[made.predictions["StudyUID"].isin(studies)], **settings
    )
    assert part.summary["counts"]["extra"] == 0
    assert {k: v["value"] for k, v in part.metrics.items()} == {
        k: v["value"] for k, v in alone.metrics.items()
    }


def test_summarise_takes_the_same_part(tables, tmp_path):
    elsewhere.score("classification", tables.cases, tables.predictions, resamples=0, out=tmp_path / "whole")
    part = elsewhere.score(
        "classification", tables.cases, tables.predictions, where={"site": "Cedar"}, resamples=0
    )
    again = elsewhere.summarise(
        "classification", tables.cases, tmp_path / "whole", where={"site": "Cedar"}, resamples=0
    )
    assert again.metrics["auroc"]["value"] == part.metrics["auroc"]["value"]


@pytest.mark.parametrize(("where", "hint"), [({"splt": "test"}, "split"), ({"split": "tset"}, "test, train")])
def test_a_wrong_column_or_value_offers_what_there_is(tables, where, hint):
    with pytest.raises(UserError) as refused:
        elsewhere.score("classification", tables.cases, tables.predictions, where=where)
    assert hint in str(refused.value)


def test_a_claim_may_be_about_part_of_the_cases_and_its_digest_says_so(tmp_path, tables):
    tables.cases.to_csv(tmp_path / "cohort.csv", index=False)
    tables.predictions.to_csv(tmp_path / "said.csv", index=False)
    claim = tmp_path / "claim.toml"
    line = '[[primary]]\nmetric = "auroc"\nvalue = 0.9\nmargin = 0.1\n'
    claim.write_text(f'where = {{ site = "Cedar" }}\n{line}')
    about_cedar = read_claim(claim)
    result = elsewhere.accept(tmp_path / "cohort.csv", tmp_path / "said.csv", claim=claim, resamples=50)
    assert set(result.scores.cases["site"]) == {"Cedar"}
    claim.write_text(line)
    assert read_claim(claim).digest != about_cedar.digest
    claim.write_text(f'where = "Cedar"\n{line}')
    with pytest.raises(UserError, match="where must name columns"):
        read_claim(claim)
