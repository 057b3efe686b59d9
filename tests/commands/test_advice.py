"""Every option and command that a message recommends is there, in the command that shows the message, and works."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer

import elsewhere
from elsewhere.cli.apps import app
from elsewhere.commands.advice import INSTEAD, fit_advice
from worlds.task_files import binary_tables

ROOT = Path(elsewhere.__file__).parent
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_COMMAND = re.compile(r"elsewhere ([a-z][a-z-]*(?: [a-z]+)?)([^`\n]*?)(?=`|(?<!\.)\. |\.$|;|$)")
_STUDIES = ("plan", "run", "models", "predict", "explain", "check-bundle")
_TABLES = (
    "score",
    "summarise",
    "check",
    "accept",
    "rank",
    "merge",
    "equivalence",
    "cohort read",
    "cohort check",
)
SHOWN_BY = {
    "tables/writing": (),
    "tables/": _TABLES,
    "predictions/scales": ("score", "check", "accept", "rank", "merge"),
    "predictions/dbtex_zip": ("rank",),
    "predictions/rendered_patches": ("slides shift", "slides rerender"),
    "predictions/": ("score", "check", "accept", "rank", "merge"),
    "scoring/check": ("check",),
    "scoring/reader_study/": ("readers",),
    "scoring/patch_scores": ("generalise",),
    "scoring/patch_rows": ("slides patch-scores",),
    "scoring/": ("score", "summarise", "accept", "rank", "merge"),
    "cohort/loading": ("score", "check", "accept", "rank", "merge", "cohort check", "cohort describe"),
    "cohort/duplicates": ("cohort duplicates",),
    "cohort/patch_table": ("slides patches",),
    "cohort/": ("cohort read",),
    "analysis/result/site_verdicts": ("score", "summarise"),
    "analysis/result/part": ("score", "summarise"),
    "analysis/result/claim": ("accept",),
    "analysis/result/acceptance": ("accept",),
    "analysis/result/scoring": ("summarise",),
    "analysis/result/inputs": ("score", "rank", "merge"),
    "analysis/result/comparison": ("compare", "rank"),
    "analysis/result/equivalence": ("equivalence",),
    "analysis/result/storage": ("compare", "rank", "report", "diff", "equivalence", "summarise"),
    "analysis/result/": ("score",),
    "analysis/ranking/": ("rank",),
    "analysis/merging/": ("merge",),
    "analysis/readers/": ("readers",),
    "analysis/generalise/shift": ("slides shift",),
    "analysis/generalise/": ("generalise",),
    "analysis/slide_ensembles/": ("slides ensemble",),
    "ensembles/cell_votes": ("slides ensemble",),
    "analysis/": ("run",),
    "commands/score": ("score", "rank"),
    "commands/plan_sample": ("plan-sample",),
    "commands/cohort": ("cohort read",),
    "commands/duplicates": ("cohort duplicates",),
    "commands/demo": ("demo",),
    "commands/generalise": ("generalise",),
    "commands/phantom_patch_scores": ("phantom patch-scores",),
    "commands/phantom_detections": ("phantom detections",),
    "commands/phantom_slides": ("phantom slides",),
    "commands/phantom": ("phantom mri", "phantom ultrasound", "phantom tomosynthesis"),
    "commands/slide_ensembles": ("slides ensemble",),
    "commands/slide_masks": ("slides stage", "slides recompose"),
    "commands/slide_outlines": ("slides outline",),
    "commands/study_report": ("run",),
    "commands/listing": ("protocols", "metrics", "readers", "recipes"),
    "files/": ("score", "summarise", "accept", "rank", "merge", "compare", "cohort read", "equivalence"),
    "errors": ("score", "summarise", "accept", "rank", "merge", "compare", "equivalence"),
    "report/study/": ("run",),
    "report/": ("score", "accept"),
    "commands/slide_patches/": ("slides patches",),
    "commands/slide_store": ("slides pack",),
    "commands/curate/": ("curate",),
    "curation/": ("curate",),
    "networks/encoders": ("curate",),
    "commands/slide_stain": ("slides stain",),
    "commands/slide_rerender": ("slides rerender",),
    "commands/slide_shift": ("slides shift",),
    "commands/slide_training/whole_slides": ("slides segment",),
    "commands/slide_training/": ("slides train",),
    "commands/": "its own",
    "results": ("compare", "rank", "report", "diff", "equivalence", "summarise"),
    "study/kept_models": ("models", "predict"),
    "engine/trained_on": ("predict",),
    "study/predicting": ("predict",),
    "study/analysis_ids": ("run",),
    "study/": ("run",),
    "engine/": ("run",),
    "training/patches/": ("slides train",),
    "networks/segmenters/": ("slides train",),
    "training/": ("run",),
    "explain/": ("explain",),
    "inputs/patches/": ("slides pack",),
    "inputs/rendering/": ("slides rerender", "slides shift"),
    "inputs/slides/annotations/": ("annotations",),
    "inputs/slides/grid/": ("slides patches",),
    "inputs/slides/": ("slides show", "slides patches"),
    "inputs/stain/": (),
}
"""Which commands show the messages of a module; the first prefix that fits counts."""
ONLY_WITH = {
    ("predictions/rendered_patches", "--per-slide"),  # of `slides rerender`, which writes them
    (
        "scoring/classification",
        "--calibrate-on",
    ),  # raised where --calibrate-on was given, which score alone has
    ("scoring/prepared", "--resample"),  # the same for --resample
    ("predictions/units", "--unit"),  # the same for --unit
    ("analysis/result/inputs", "--matching"),  # the same for --matching
    ("commands/slide_masks", "--downsample"),  # of `slides stage`
    ("commands/slide_masks", "--patch"),  # of `slides recompose`
    ("commands/predict", "--export"),  # raised by `models --export`
    ("commands/slide_store", "--set-aside"),  # of `slides verify`, in the same file
    ("commands/plan", "--import"),  # of the `run` that the line prints
    ("commands/plan", "--zip"),  # of `python -m elsewhere.engine`, which the line prints
}
NO_MESSAGES = (
    "cli/",
    "simulation/",
    "study/bundle",
    "study/recipe_bundle",
    "study/estimate",
    "commands/advice",
)


@cache
def options_of() -> dict[str, frozenset[str]]:
    """Every command with its options."""
    found: dict[str, frozenset[str]] = {}

    def walk(command, name):
        inner = getattr(command, "commands", None)
        if inner:
            for key, one in inner.items():
                walk(one, f"{name} {key}".strip())
        names = (o for p in command.params for o in (*p.opts, *p.secondary_opts))
        found[name] = frozenset(o for o in names if o.startswith("--"))

    walk(typer.main.get_command(app), "")
    return found


@cache
def texts_in(path):
    """String literals that are no docstrings, f-strings with X for what is filled in: of each its line and its text."""
    return tuple(_texts_in(path))


def _texts_in(path):
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    joined = [n for n in nodes if isinstance(n, ast.JoinedStr)]
    inside = {id(v) for n in joined for v in ast.walk(n)} - {id(n) for n in joined}
    docs = {
        id(n.body[0].value)
        for n in nodes
        if getattr(n, "body", None) and isinstance(n.body, list) and isinstance(n.body[0], ast.Expr)
    }
    for node in nodes:
        if id(node) in inside or id(node) in docs:
            continue
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(v.value) if isinstance(v, ast.Constant) else "X" for v in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def recommendations():
    for path in sorted(ROOT.rglob("*.py")):
        module = path.relative_to(ROOT).with_suffix("").as_posix()
        if module.startswith(NO_MESSAGES):
            continue
        for line, text in texts_in(path):
            if _OPTION.search(text) and " " in text.strip() and not text.startswith("\n"):
                yield module, line, text


def shown_by(module):
    named = next((commands for prefix, commands in SHOWN_BY.items() if module.startswith(prefix)), None)
    assert named is not None, f"say in SHOWN_BY which commands show the messages of {module}"
    return (module.removeprefix("commands/").replace("_", "-"),) if named == "its own" else named


def test_every_recommended_option_is_one_of_the_command_that_shows_it():
    known = options_of()
    every = frozenset().union(*known.values())
    wrong = []
    seen = 0
    for module, line, text in recommendations():
        for command in shown_by(module):
            outside = _COMMAND.sub("", fit_advice(text, command))
            for option in _OPTION.findall(outside):
                seen += 1
                if (module, option) in ONLY_WITH:
                    assert option in every or option == "--zip"
                elif option not in known[command]:
                    wrong.append(f"{module}:{line} tells {command} to use {option}: {text!r}")
    assert seen > 50
    assert not wrong, "\n".join(wrong)


def test_every_recommended_command_is_there_with_its_options():
    known = options_of()
    wrong = []
    seen = 0
    for path in sorted(ROOT.rglob("*.py")):
        for line, text in texts_in(path):
            for match in re.finditer(r"`elsewhere ([^`]+)`|: elsewhere ([a-z][^.;`\n]*)", text):
                words = (match.group(1) or match.group(2)).split()
                command = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
                seen += 1
                options = [word for word in words if word.startswith("--")]
                missing = [o for o in options if o not in known.get(command, ()) and o != "--help"]
                if command not in known or missing:
                    wrong.append(f"{path.name}:{line}: {text!r}")
    assert seen > 15
    assert not wrong, "\n".join(wrong)


def test_what_is_translated_is_not_an_option_of_that_command():
    for command, instead in INSTEAD.items():
        assert command in options_of()
        assert not set(instead) & options_of()[command], command


@pytest.mark.parametrize(
    ("text", "command", "shown"),
    [
        ("Keep one. Where views, say `--unit exam --combine max`.", "rank", "Keep one."),
        (
            "Keep one. Where views, say `--unit exam`.",
            "accept",
            'Keep one. Where views, say `unit = "exam" under [predictions] in the claim`.',
        ),
        ("Positive is --threshold 0.02.", "accept", "Positive is threshold = 0.02 in the claim."),
        ("Positive is --threshold 0.02.", "score", "Positive is --threshold 0.02."),
        (
            "Read it: `elsewhere score a b --threshold 0.5`.",
            "rank",
            "Read it: `elsewhere score a b --threshold 0.5`.",
        ),
    ],
)
def test_translation(text, command, shown):
    assert fit_advice(text, command) == shown


def followed(message, folder):
    """The command that the message gives, with its words."""
    command = re.search(r"`elsewhere ([^`]+)`", message).group(1)
    return [
        word if word != "cohort" or i == 0 else str(folder) for i, word in enumerate(shlex.split(command))
    ]


@pytest.fixture
def tables(tmp_path):
    cases, said = binary_tables(patients=40)
    cases["doctor"] = "Müller"
    said.to_csv(tmp_path / "said.csv", index=False)
    return cases, tmp_path / "said.csv", tmp_path


WRITTEN = {
    "other names": lambda cases, path: cases.rename(columns={"case_id": "COL"}).to_csv(path, index=False),
    "latin-1": lambda cases, path: cases.to_csv(path, index=False, encoding="latin-1"),
    "semicolons": lambda cases, path: cases.to_csv(path, index=False, sep=";"),
    "latin-1 and other names": lambda cases, path: cases.rename(columns={"case_id": "COL"}).to_csv(
        path, index=False, encoding="latin-1"
    ),
}


@pytest.mark.parametrize("how", WRITTEN)
@pytest.mark.parametrize("command", ["score", "check", "rank"])
def test_what_is_recommended_for_a_cohort_table_works(run, tables, how, command):
    """Options of the command are for the predictions, so the advice is `cohort read`, ready to be copied."""
    cases, said, folder = tables
    table = folder / "cohort.csv"
    WRITTEN[how](cases, table)

    def call(cohort, *more):
        return {
            "score": lambda: run("score", "classification", cohort, said, "--resamples", 0, "--out", folder / "out", *more),
            "check": lambda: run("check", said, "--task", "classification", "--cohort", cohort, *more),
            "rank": lambda: run("rank", said, "--cohort", cohort, "--task", "classification", "--metric", "auroc", "--resamples", 0, *more),
        }[command]()  # fmt: skip

    failed = call(table, *(("--encoding", "latin-1") if "and" in how else ()))
    assert failed.code == 64
    done = run(*followed(failed.err, folder / "made"))
    assert done.code == 0, done.said
    assert call(folder / "made").code == 0


def test_encoding_works_where_one_covers_both(run, tables):
    cases, said, folder = tables
    cases.to_csv(folder / "cohort.csv", index=False, encoding="latin-1")
    done = run(
        "score", "classification", folder / "cohort.csv", said, "--encoding", "latin-1", "--resamples", 0,
        "--out", folder / "out",
    )  # fmt: skip
    assert done.code == 0, done.said


CLAIM = """
model = "Vendor"
task = "classification"
{more}
[predictions]
scale = "birads"
[[primary]]
metric = "auroc"
value = 0.8
margin = 0.2
margin_source = "meeting of March 2026"
"""


def test_the_threshold_of_a_claim_is_recommended_in_the_claim(run, tables):
    """`accept` has no --threshold: the warning about BI-RADS names the line of the claim, and the line works."""
    cases, _, folder = tables
    cases.to_csv(folder / "cohort.csv", index=False)
    rng = np.random.default_rng(1)
    categories = np.where(
        cases["label"] > 0, rng.choice(["4B", "5"], len(cases)), rng.choice(["2", "3", "4A"], len(cases))
    )
    pd.DataFrame({"case_id": cases["case_id"], "probability": categories}).to_csv(
        folder / "said.csv", index=False
    )
    (folder / "claim.toml").write_text(CLAIM.format(more=""))
    base = (
        "accept",
        folder / "cohort.csv",
        folder / "said.csv",
        "--claim",
        folder / "claim.toml",
        "--resamples",
        0,
    )
    done = run(*base, "--json")
    assert done.code in (0, 2, 3, 4), done.said
    warning = next(w for w in done.json["warnings"] if "BI-RADS" in w)
    assert "--threshold" not in warning
    line = re.search(r"threshold = [0-9.]+[0-9]", warning).group(0)
    (folder / "claim.toml").write_text(CLAIM.format(more=line))
    again = run(*base, "--json")
    assert again.code in (0, 2, 3, 4, 6), again.said
    assert again.json["operating_point"]["threshold"] == float(line.split("=")[1])


def test_rank_recommends_no_option_that_it_lacks(run, tables):
    cases, said, folder = tables
    cases.to_csv(folder / "cohort.csv", index=False)
    (folder / "subs").mkdir()
    table = pd.read_csv(said)
    table.to_csv(folder / "subs" / "good.csv", index=False)
    pd.concat([table, table]).to_csv(folder / "subs" / "twice.csv", index=False)
    done = run(
        "rank", folder / "subs", "--cohort", folder / "cohort.csv", "--task", "classification", "--metric", "auroc",
        "--resamples", 0,
    )  # fmt: skip
    assert "is in rows" in done.out and "--unit" not in done.out
