"""Registered analyses: when each runs, in which order, and that those of other packages run too."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd
import pytest

from elsewhere.analysis.study.registry import Analysis, analyses, analysis, in_order
from elsewhere.analysis.study.summary import analyse
from elsewhere.errors import UserError
from elsewhere.study.methods import Method
from worlds.picture_results import TASK, make_results


@pytest.fixture
def own(monkeypatch):
    """What a test registers is forgotten after it."""
    analyses.names()
    monkeypatch.setattr(analyses, "_things", dict(analyses._things))
    monkeypatch.setattr(analyses, "_owners", dict(analyses._owners))


@dataclass
class FakeContext:
    """The parts of a context that conditions look at."""

    task: str = "classification"
    kinds: tuple[str, ...] = ("internal", "external")
    factors: tuple[str, ...] = ("model", "input")
    has_probabilities: bool = True
    is_first: bool = True
    runs: pd.DataFrame = field(init=False)
    methods: dict[str, Method] = field(init=False)

    def __post_init__(self):
        self.runs = pd.DataFrame({"kind": list(self.kinds)})
        self.methods = {"m": Method(name="m", recipe="r", factors=dict.fromkeys(self.factors, "x"))}


def serves(context, **conditions):
    return Analysis(name="one", function=lambda context: {}, **conditions).serves(context)


def test_without_conditions_an_analysis_serves_every_task():
    assert serves(FakeContext(task="anything", kinds=(), factors=(), has_probabilities=False))


@pytest.mark.parametrize(
    ("conditions", "yes", "no"),
    [
        ({"tasks": ("response", "classification")}, {}, {"task": "segmentation"}),
        ({"kinds": ("folds", "external")}, {}, {"kinds": ("internal",)}),
        ({"factors": ("model", "input")}, {}, {"factors": ("model",)}),
        ({"probabilities": True}, {}, {"has_probabilities": False}),
        ({"whole_study": True}, {}, {"is_first": False}),
    ],
)
def test_each_condition(conditions, yes, no):
    assert serves(FakeContext(**yes), **conditions)
    assert not serves(FakeContext(**no), **conditions)


def test_all_conditions_must_hold():
    conditions = {"tasks": ("classification",), "kinds": ("folds",)}
    assert not serves(FakeContext(), **conditions)
    assert serves(FakeContext(kinds=("folds",)), **conditions)


def test_every_built_in_analysis_comes_after_those_that_it_reads():
    order = [one.name for one in in_order()]
    assert sorted(order) == analyses.names()
    for one in in_order():
        assert all(order.index(other) < order.index(one.name) for other in one.after)


def test_order_by_what_is_read(own):
    for name, after in (("a last", ("b middle",)), ("b middle", ("c first",)), ("c first", ())):
        analysis(name, after=after)(lambda context: {})
    order = [one.name for one in in_order()]
    assert order.index("c first") < order.index("b middle") < order.index("a last")


def test_an_analysis_that_reads_one_that_is_not_there(own):
    analysis("lonely", after=("no such analysis",))(lambda context: {})
    with pytest.raises(UserError, match="lonely wait for"):
        in_order()


def test_two_that_read_each_other(own):
    analysis("hen", after=("egg",))(lambda context: {})
    analysis("egg", after=("hen",))(lambda context: {})
    with pytest.raises(UserError, match="egg, hen wait for each other"):
        in_order()


def test_one_name_has_one_owner(own):
    def averages(context):
        return {}

    with pytest.raises(UserError, match="called 'averages'"):
        analysis("averages")(averages)


def test_an_analysis_of_another_package_makes_a_table_of_the_study(own):
    """It reads an earlier table of the task by name, and its table gets the column `task`; an empty table is none."""

    @analysis("width of intervals", kinds=("internal",), after=("averages",))
    def widths(context):
        table = context.table("scenarios")
        width = (table["auroc_hi"] - table["auroc_lo"]).mean()
        return {"interval_width": pd.DataFrame({"width": [width]}), "nothing": pd.DataFrame()}

    @analysis("of folds", kinds=("folds",))
    def never(context):
        raise AssertionError("the study has no folds")

    sizes = {"Harbour": (40, 30, 0, 60), "Hill": (40, 30, 0, 60)}
    results = make_results(
        sizes=sizes, models=("cnn",), inputs=("roi",), seeds=(1,), kinds=("internal",), analyses={}
    )
    tables = analyse(results, resamples=0).tables
    assert list(tables["interval_width"].columns) == ["task", "width"]
    assert tables["interval_width"]["task"].tolist() == [TASK]
    assert "nothing" not in tables
