"""Share and clustering of models: from names and tables, and means by them."""

from __future__ import annotations

import pandas as pd
import pytest

from elsewhere.analysis.generalise.kinds import ModelKinds, kinds_of_names, means_by_kind, read_kinds
from elsewhere.errors import UserError

COLUMNS = {"share": None, "clustering": None}


def test_the_names_of_the_study():
    kinds = kinds_of_names(["Histopathology-40%", "Single-Natural%", "imagenet_0", "unet"])
    assert kinds.values["share"] == {
        "Histopathology-40%": "40 %",
        "Single-Natural%": "natural",
        "imagenet_0": "0 %",
    }
    assert kinds.values["clustering"]["Single-Natural%"] == "Single"
    assert kinds.ordered("share") == ["natural", "0 %", "40 %"]


def test_shares_are_ordered_as_numbers():
    kinds = ModelKinds(
        values={"share": dict(zip("abcde", ["100", "20", "5", "none", "Natural"], strict=True))}
    )
    assert kinds.ordered("share") == ["Natural", "5", "20", "100", "none"]


def test_a_table_names_its_columns(tmp_path):
    file = tmp_path / "models.csv"
    file.write_text("model,pt,set\na,10,x\nb,20,\nc,20,y\nother,1,z\n")
    kinds = read_kinds(file, ["a", "b", "c"], columns={"share": "pt", "clustering": "set"})
    assert kinds.values == {"share": {"a": "10", "b": "20", "c": "20"}, "clustering": {"a": "x", "c": "y"}}


@pytest.mark.parametrize(
    ("rows", "columns", "words"),
    [
        ({"name": ["a"], "share": [1]}, COLUMNS, "model"),
        ({"model": ["a", "a", "b"], "share": [1, 1, 1]}, COLUMNS, "twice"),
        ({"model": ["a"], "share": [1]}, COLUMNS, "1 of 2 models have no row: b"),
        ({"model": ["a", "b"], "share": [1, 1]}, {"share": "shares", "clustering": None}, "shares"),
        ({"model": ["a", "b"], "size": [1, 1]}, COLUMNS, "neither a share nor a clustering"),
    ],
)
def test_a_table_that_does_not_fit(rows, columns, words):
    with pytest.raises(UserError, match=words):
        read_kinds(pd.DataFrame(rows), ["a", "b"], columns=columns)


def test_means_over_the_models_of_a_kind():
    rows = [
        {
            "model": name, "metric": "dice", "internal": inside, "external": outside, "verdict": verdict,
            "difference": None if outside is None else outside - inside, "non_inferior": fine,
        }
        for name, inside, outside, verdict, fine in (
            ("x-0", 0.8, 0.6, "BELOW", False),
            ("y-0", 0.6, 0.6, "EQUIVALENT", True),
            ("x-10", 0.7, 0.9, "ABOVE", True),
            ("y-10", 0.7, None, "NOT ASSESSED", None),
        )
    ]  # fmt: skip
    made = means_by_kind(rows, kinds_of_names([row["model"] for row in rows]))
    share = [row for row in made if row["by"] == "share"]
    assert [(row["value"], row["models"]) for row in share] == [("0 %", 2), ("10 %", 2)]
    assert share[0]["internal"] == pytest.approx(0.7) and share[0]["difference"] == pytest.approx(-0.1)
    assert share[1]["external"] == 0.9 and share[1]["equivalent"] == 1 and share[1]["non_inferior"] == 1
    assert means_by_kind(rows[:1], kinds_of_names(["x-0"])) == []
