"""What a study compares, read from its file and its runs."""

from __future__ import annotations

import pandas as pd

from elsewhere.analysis.study.design import configuration, read_design
from elsewhere.study.file import parse_study
from worlds.picture_results import TASK, World, context_of, make_results, runs_of, study_of

TABLE = pd.DataFrame({"dataset": ["B", "A", "B"]})


def design_of(world, **changes):
    study = parse_study(study_of(world).to_dict() | changes, where="a made-up study")
    return read_design(study, TASK, TABLE, runs_of(world))


def test_the_order_is_that_of_the_study_file():
    design = design_of(World(models=("vit", "cnn"), inputs=("roi", "whole")))
    assert design.models == ("vit", "cnn") and design.inputs == ("roi", "whole")
    assert design.datasets == ("B", "A") and design.kinds == ("internal", "external")
    rows = pd.DataFrame({"kind": "external", "model": ["cnn", "vit"], "input": ["whole", "roi"]})
    assert design.order(rows)["model"].tolist() == ["vit", "cnn"]


def test_the_averages_are_over_plain_training_annotated_boxes_and_the_reference_margin():
    world = World(
        models=("cnn", "dro"),
        methods={"dro": "group-dro"},
        inputs=("whole", "roi", "wide", "found"),
        margins={"roi": 0.12, "wide": 0.3, "found": 0.12},
        found=("found",),
        analyses={"margin_reference": 0.12},
    )
    design = design_of(world)
    assert design.main == (("cnn", "whole"), ("cnn", "roi"))
    assert design.found == {"found"} and design.whole == {"whole"}
    assert design.method == {"cnn": "plain", "dro": "group-dro"}


def test_an_input_that_shows_the_outline_stays_out_of_the_averages():
    inputs = {"roi": {"kind": "roi"}, "whole": {"kind": "roi", "outline": True}}
    assert design_of(World(models=("cnn",), inputs=("roi", "whole")), inputs=inputs).main == (("cnn", "roi"),)


def test_where_no_training_is_plain_the_others_make_up_the_averages():
    world = World(models=("dro",), methods={"dro": "group-dro"}, inputs=("roi",))
    assert design_of(world).main == (("dro", "roi"),)


def test_what_did_not_run_is_not_in_the_design():
    world = World(models=("cnn", "vit"), seeds=(2, 5))
    study = study_of(world)
    runs = runs_of(world)
    design = read_design(study, TASK, TABLE, runs[(runs["model"] == "cnn") & (runs["kind"] == "internal")])
    assert design.models == ("cnn",) and design.kinds == ("internal",) and design.seeds == (2, 5)


def test_methods_of_recipes_have_no_input_and_no_average():
    """Different published methods are not averaged."""
    runs = runs_of(World(models=("one", "two"), inputs=("x",))).assign(input="", method=lambda t: t["model"])
    content = {
        "study": {"name": "s"},
        "cohort": [{"source": "made-up.csv"}],
        "tasks": {"response": {"verdict_margin": 0.05}},
        "recipes": {"one": {}, "two": {}},
    }
    design = read_design(parse_study(content, where="a study"), "response", TABLE, runs)
    assert design.main == () and design.configurations == (("one", ""), ("two", ""))
    assert design.verdict_margin == 0.05


def test_the_margin_of_the_task_wins_over_that_of_the_analyses():
    assert design_of(World(analyses={"verdict_margin": 0.1})).verdict_margin == 0.1
    changed = design_of(World(analyses={"verdict_margin": 0.1}), tasks={TASK: {"verdict_margin": 0.02}})
    assert changed.verdict_margin == 0.02
    assert design_of(World(analyses={"verdict_margin": 0.0})).verdict_margin is None


def test_names_for_readers():
    assert configuration("cnn", "whole") == "CNN, whole image"
    assert configuration("clinical", "") == "clinical"


def test_a_context_makes_the_design_once():
    context = context_of(make_results(models=("cnn",), inputs=("roi",), seeds=(1,)))
    assert context.design is context.design and context.margin is None
