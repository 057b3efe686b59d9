"""The order of the cohort's rows changes no number (ST-01b): score, rank and compare on shuffled rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import elsewhere
from elsewhere.cohort import Cohort
from elsewhere.phantom.hospitals import World, make

WORLD = World(patients_per_site=34, leaked_patients=0, file_name_ids=0, respelt_site_rows=0)
NOT_NUMBERS = ("created", "provenance", "audit", "worst_cases")
GROUPS = {"classification": ("breast_density", "scanner"), "detection": ("view",)}
RESAMPLES = 70


def shuffled(cohort, seed):
    """The same cohort with the rows of every table in another order."""
    rng = np.random.default_rng(seed)

    def mixed(table):
        return None if table is None else table.iloc[rng.permutation(len(table))].reset_index(drop=True)

    return Cohort.from_frame(mixed(cohort.cases), lesions=mixed(cohort.lesions))


def tables_of(task, seed):
    made = make(task, np.random.default_rng(3), WORLD)
    other = make(task, np.random.default_rng(seed), WORLD).predictions
    # A column that differs within patients: groups that cut across them take another road.
    cases = made.cases.assign(scanner=np.random.default_rng(1).choice(["s", "t"], len(made.cases)))
    return Cohort.from_frame(cases, lesions=made.lesions), made.predictions, other


def scored(task, cohort, predictions, folder, name):
    options = {"resamples": RESAMPLES, "group_by": GROUPS.get(task, ()), "threads": 1}
    if task == "segmentation":
        return elsewhere.summarise(task, cohort, predictions, **options)
    path = folder / f"{name}.csv"
    predictions.to_csv(path, index=False)
    return elsewhere.score(task, cohort, path, **options)


def assert_same(one, other, path="summary"):
    """Equal throughout; floats to 1e-12, since sums in another order may differ in the last digit."""
    if isinstance(one, dict):
        assert set(one) == set(other), path
        for key in one:
            assert_same(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{path}[{i}]")
    elif isinstance(one, float) and isinstance(other, float):
        assert other == pytest.approx(one, rel=1e-12, abs=1e-12, nan_ok=True), path
    else:
        assert one == other, path


def numbers(summary):
    return {name: part for name, part in summary.items() if name not in NOT_NUMBERS}


@pytest.mark.parametrize("task", ["classification", "response", "segmentation", "detection", "slides"])
def test_shuffled_rows_give_the_same_result(task, tmp_path):
    """Every interval, p, group, curve and table of a result; the cohort's hash does not change either."""
    cohort, predictions, _ = tables_of(task, 4)
    first = scored(task, cohort, predictions, tmp_path, "a")
    mixed = shuffled(cohort, 1)
    assert mixed.cases["case_id"].tolist() != cohort.cases["case_id"].tolist()
    assert mixed.hash == cohort.hash and cohort.hash
    again = scored(task, mixed, predictions, tmp_path, "a")
    assert_same(numbers(first.summary), numbers(again.summary))
    if "worst_cases" in first.summary:
        cases = [
            result.case_key.set_index("case").loc[[row["case"] for row in result.summary["worst_cases"]]]
            for result in (first, again)
        ]
        assert cases[0]["case_id"].tolist() == cases[1]["case_id"].tolist()


@pytest.mark.parametrize("task", ["classification", "detection"])
def test_shuffled_rows_give_the_same_ranking_and_comparison(task, tmp_path):
    """Also the permutation tests, which give patients to models by their number."""
    cohort, one, other = tables_of(task, 4)
    other = with_ids_of(one, other)
    found = []
    for rows in (cohort, shuffled(cohort, 3)):
        place = tmp_path / f"rows{len(found)}"
        paths = [
            scored(task, rows, table, tmp_path, name).save(place / name).path
            for name, table in (("a", one), ("b", other))
        ]
        compared = elsewhere.compare(*paths, resamples=RESAMPLES).to_dict()
        found.append((compared, numbers(elsewhere.rank(paths, resamples=RESAMPLES).summary)))
    (compared, ranked), (compared_again, ranked_again) = found
    assert_same(named(compared), named(compared_again))
    assert_same(named(ranked), named(ranked_again))


def with_ids_of(one, other):
    """The second model answers the same cases: its scores, in the first one's rows."""
    column = "Score" if "Score" in one.columns else "probability"
    values = np.resize(pd.to_numeric(other[column], errors="coerce").fillna(0.5).to_numpy(), len(one))
    return one.assign(**{column: values})


def named(part):
    """Without the number of the folder in the results' paths."""
    if isinstance(part, dict):
        return {key: named(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [named(value) for value in part]
    return part.replace("rows0", "rows").replace("rows1", "rows") if isinstance(part, str) else part
