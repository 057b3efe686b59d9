"""A missing patient id is never a patient, and a missing site is no hospital, however the table is given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import elsewhere
from elsewhere.errors import UserError

MISSING = [None, float("nan"), pd.NA, pd.NaT, "", "  ", "nan", "None", "<NA>", "NULL"]
N = 60


def arrays():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, N)
    return truth, rng.uniform(0, 1, N), [f"P{i // 2}" for i in range(N)]


def with_missing(values, missing):
    out = list(values)
    for at in (3, 10, 11):
        out[at] = missing
    return out


@pytest.mark.parametrize("missing", MISSING, ids=repr)
@pytest.mark.parametrize("shape", ["list", "array", "series", "frame", "mapping"])
def test_a_missing_patient_id_names_its_rows(missing, shape):
    truth, probability, ids = arrays()
    given = with_missing(ids, missing)
    with pytest.raises(UserError, match=r"patient_id.* in rows 4, 11, 12 \(3 of 60\)"):
        if shape in ("frame", "mapping"):
            cases = {"case_id": [f"c{i}" for i in range(N)], "patient_id": given, "label": truth}
            said = pd.DataFrame({"case_id": cases["case_id"], "probability": probability})
            elsewhere.score(
                "classification", pd.DataFrame(cases) if shape == "frame" else cases, said, resamples=0
            )
        else:
            made = {"list": list, "array": lambda v: np.array(v, dtype=object), "series": pd.Series}[shape](
                given
            )
            elsewhere.score_arrays(
                "classification", label=truth, probability=probability, patient_id=made, resamples=0
            )


def test_numbers_as_ids_may_be_missing_too():
    truth, probability, _ = arrays()
    ids = np.arange(N) // 2 * 1.0
    ids[4] = np.nan
    with pytest.raises(UserError, match="empty in row 5"):
        elsewhere.score_arrays(
            "classification", label=truth, probability=probability, patient_id=ids, resamples=0
        )


@pytest.mark.parametrize("missing", MISSING, ids=repr)
@pytest.mark.parametrize("shape", ["arrays", "frame", "csv"])
def test_missing_sites_are_unknown_and_no_hospital(missing, shape, tmp_path):
    truth, probability, ids = arrays()
    sites = with_missing(["A" if i % 2 else "B" for i in range(N)], missing)
    if shape == "arrays":
        made = elsewhere.score_arrays(
            "classification", label=truth, probability=probability, patient_id=ids, site=sites, resamples=0,
            reference_site="A", margin=0.3,
        )  # fmt: skip
    else:
        cases = pd.DataFrame(
            {"case_id": [f"c{i}" for i in range(N)], "patient_id": ids, "site": sites, "label": truth}
        )
        said = pd.DataFrame({"case_id": cases["case_id"], "probability": probability})
        cases.to_csv(tmp_path / "cohort.csv", index=False)
        made = elsewhere.score(
            "classification", cases if shape == "frame" else tmp_path / "cohort.csv", said, resamples=0,
            reference_site="A", margin=0.3,
        )  # fmt: skip
    assert {name: row["cases"] for name, row in made.summary["sites"].items()} == {
        "A": 28,
        "B": 29,
        "unknown": 3,
    }
    assert made.summary["counts"]["sites"] == 2
    assert [claim["group"] for claim in made.summary["verdict"]["claims"]] == ["site B"]


def test_an_unknown_option_of_score_arrays_offers_its_neighbours():
    truth, probability, _ = arrays()
    with pytest.raises(UserError, match=r"no option 'resampels'\nDid you mean resamples") as caught:
        elsewhere.score_arrays("classification", label=truth, probability=probability, resampels=0)
    assert isinstance(caught.value, TypeError)
    with pytest.raises(TypeError, match="Give the columns to group by in `groups`"):
        elsewhere.score_arrays("classification", label=truth, probability=probability, group_by=("a",))
    with pytest.raises(TypeError, match="Options: alpha, "):
        elsewhere.score_arrays("classification", label=truth, probability=probability, qqqqqqq=1)


@pytest.mark.parametrize(
    "command",
    [
        "score",
        "summarise",
        "accept",
        "compare",
        "rank",
        "equivalence",
        "demo",
        "phantom ultrasound",
        "phantom mri",
        "phantom tomosynthesis",
    ],
)
def test_a_seed_below_zero_is_refused(command, run, results, tmp_path):
    pair, folder, _ = results("classification")
    (tmp_path / "claim.toml").write_text("")
    given = {
        "score": ("score", "classification", pair.cohort, pair.predictions, "--out", tmp_path / "o"),
        "summarise": ("summarise", "classification", pair.cohort, folder, "--out", tmp_path / "o"),
        "accept": ("accept", pair.cohort, pair.predictions, "--claim", tmp_path / "claim.toml"),
        "compare": ("compare", folder, folder),
        "rank": ("rank", folder, folder),
        "equivalence": ("equivalence", folder, folder, "--margin", 0.1),
        "demo": ("demo", tmp_path / "o"),
        "phantom ultrasound": ("phantom", "ultrasound", tmp_path / "o"),
        "phantom mri": ("phantom", "mri", tmp_path / "o"),
        "phantom tomosynthesis": ("phantom", "tomosynthesis", tmp_path / "o"),
    }[command]
    done = run(*given, "--seed", -1)
    assert done.code == 64, done.said
    assert "--seed" in done.said
    assert not (tmp_path / "o").exists()


def test_a_seed_below_zero_is_refused_in_python():
    truth, probability, ids = arrays()
    for seed in (-1, 1.5, "a"):
        with pytest.raises(UserError, match="the seed is"):
            elsewhere.score_arrays(
                "classification", label=truth, probability=probability, patient_id=ids, seed=seed, resamples=0
            )
