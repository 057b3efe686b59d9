"""Which scenarios a study has, and their names."""

from __future__ import annotations

import pytest

from elsewhere.errors import UserError
from elsewhere.scenarios import Scenario, nested_scenarios, scenarios_of

FOUR = ["BUSI", "BUS-BRA", "BrEaST", "BUS-UCLM"]


def test_four_datasets_give_the_studys_sixteen_scenarios():
    found = scenarios_of(FOUR)
    assert [s.kind for s in found] == ["internal"] * 4 + ["external"] * 12
    assert [s.name for s in found[:4]] == FOUR
    assert len({s.name for s in found}) == 16
    external = {(s.sources, s.target) for s in found[4:]}
    assert external == {((a,), b) for a in FOUR for b in FOUR if a != b}
    assert found[4].name == "BUSI>BUS-BRA" and found[4].source == "BUSI"


def test_leave_one_out_trains_on_all_others():
    found = scenarios_of(FOUR, ["leave-one-dataset-out"])
    assert [s.name for s in found] == [f"rest>{name}" for name in FOUR]
    assert found[0].sources == ("BUS-BRA", "BrEaST", "BUS-UCLM")
    assert found[0].source == "BUS-BRA+BrEaST+BUS-UCLM"


def test_folds_are_named_from_one():
    found = scenarios_of(["BUSI"], ["folds"], folds=3)
    assert [s.name for s in found] == ["BUSI fold 1 of 3", "BUSI fold 2 of 3", "BUSI fold 3 of 3"]
    assert [(s.fold, s.folds) for s in found] == [(1, 3), (2, 3), (3, 3)]


def test_only_takes_names_and_patterns():
    assert [s.name for s in scenarios_of(FOUR, only=["BrEaST>BUSI", "BUSI"])] == ["BUSI", "BrEaST>BUSI"]
    assert len(scenarios_of(FOUR, only=["BUSI>*"])) == 3
    with pytest.raises(UserError, match="Did you mean BUSI>BrEaST"):
        scenarios_of(FOUR, only=["BUSI>breast"])


def test_nested_scenarios_never_touch_the_target():
    found = nested_scenarios(FOUR, "BUSI")
    assert [(s.sources, s.target) for s in found] == [
        (("BrEaST", "BUS-UCLM"), "BUS-BRA"),
        (("BUS-BRA", "BUS-UCLM"), "BrEaST"),
        (("BUS-BRA", "BrEaST"), "BUS-UCLM"),
    ]
    everything = nested_scenarios(FOUR)
    assert len(everything) == 12 and len({s.name for s in everything}) == 12
    assert {s.kind for s in everything} == {"nested"}
    assert {s.sources for s in everything} == {
        tuple(n for n in FOUR if n not in (a, b)) for a in FOUR for b in FOUR if a != b
    }
    assert len(nested_scenarios(FOUR[:3])) == 6
    with pytest.raises(UserError, match="BUSI"):
        nested_scenarios(FOUR, "busi")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: scenarios_of(FOUR, ["externl"]), "Did you mean external"),
        (lambda: scenarios_of(["a"], ["external"]), "need 2 datasets"),
        (lambda: scenarios_of(["a", "b"], ["leave-one-dataset-out"]), "need 3 datasets"),
        (lambda: nested_scenarios(["a", "b"]), "need 3 datasets"),
        (lambda: scenarios_of(["a", "a"]), "is listed twice"),
        (lambda: scenarios_of(["a>b", "c"]), "rename the dataset"),
        (lambda: scenarios_of([]), "no datasets"),
        (lambda: scenarios_of("BUSI"), "list of datasets"),
        (lambda: scenarios_of(["a"], ["folds"], folds=1), "2 or more"),
        (lambda: Scenario(name="x", kind="external", sources=("a",), target="a"), "may not be a source"),
        (lambda: Scenario(name="x", kind="internal", sources=("a",), target="b"), "one dataset"),
        (
            lambda: Scenario(name="x", kind="folds", sources=("a",), target="a", fold=4, folds=3),
            "fold 4 of 3",
        ),
    ],
)
def test_a_mistake_is_named(call, says):
    with pytest.raises(UserError, match=says):
        call()


def test_a_scenario_survives_json():
    for scenario in [*scenarios_of(FOUR, ["internal", "external", "leave-one-dataset-out", "folds"])]:
        assert Scenario.from_dict(scenario.to_dict()) == scenario
