"""`demo`: three synthetic hospitals for every task, four planted faults, and a report that finds them.

Then a study: two synthetic ultrasound hospitals as pictures, networks trained on each, and the study's
report.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.cohort import Cohort
from elsewhere.commands.output import Report
from elsewhere.commands.score import score
from elsewhere.commands.summarise import StreamSummary, summarise
from elsewhere.errors import UserError, check_seed
from elsewhere.phantom.hospitals import MAKERS, Tables, World, make
from elsewhere.results import Result
from elsewhere.scoring.task import tasks
from elsewhere.tables import check_out, staged_directory, write_table


@dataclass(frozen=True, kw_only=True)
class StudyPart:
    """The demo's study: what was trained, and its report; or why it was left out.

    Args:
        name: The name of the study.
        report: The report; None where the study was left out or has no report.
        told: What was printed about the study, line by line.
        exit_code: The exit code of the study.
        left_out: Why the study was left out; empty where it ran.
        content: What --json prints of the study.
    """

    name: str
    report: Path | None = None
    told: tuple[str, ...] = ()
    exit_code: int = 0
    left_out: str = ""
    content: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `study`, `report`, `left_out`, and what the study's run prints.
        """
        return {
            "study": self.name,
            "report": None if self.report is None else str(self.report),
            "left_out": self.left_out or None,
            **self.content,
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        if self.left_out:
            yield f"The study '{self.name}' was left out: {self.left_out}"
            return
        yield "Two small synthetic ultrasound hospitals as pictures: Alder marks its malignant ones, Birch does not."
        for line in self.told:
            yield f"  {line}"


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What was planted, what was found, and where the reports are.

    Args:
        found: For each planted fault what was `planted`, whether it was `found`, and the `evidence`.
        reports: The report of each task.
        main: The report to read first.
        seconds: How long the demo took.
        study: The demo's study; None where none was asked for.
    """

    found: dict[str, dict[str, Any]]
    reports: dict[str, Path]
    main: Path
    seconds: float
    study: StudyPart | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `planted`, `all_found`, `reports`, `report`, `seconds` and `study`.
        """
        return {
            "planted": self.found,
            "all_found": all(f["found"] for f in self.found.values()),
            "reports": {task: str(path) for task, path in self.reports.items()},
            "report": str(self.main),
            "seconds": self.seconds,
            "study": None if self.study is None else self.study.to_dict(),
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        yield "Three synthetic hospitals: Alder, where the model was trained, Birch, and Cedar."
        for name, fault in self.found.items():
            yield f"  planted {name.replace('_', ' ')}: {fault['planted']}"
            yield f"    {'found' if fault['found'] else 'NOT FOUND'}: {fault['evidence']}"
        for task, path in self.reports.items():
            yield f"  {task:16s} {path}"
        if self.study is not None:
            yield from self.study.lines()
        yield f"done in {self.seconds:.0f} s"
        yield str(self.main)
        if self.study is not None and self.study.report is not None:
            yield str(self.study.report)

    @property
    def exit_code(self) -> int:
        """70 where a planted fault was not found; otherwise the exit code of the study."""
        if not all(f["found"] for f in self.found.values()):
            return 70
        return 0 if self.study is None else self.study.exit_code


def demo(
    out: str | Path,
    *,
    seed: int = 7,
    world: World | None = None,
    resamples: int = 1000,
    study: str | Path | None = None,
    progress: Report | None = None,
) -> Demo:
    """Write the synthetic tables, score every task, and look for what was planted in the first report.

    What an earlier demo wrote in `out` is replaced; every other file stays.

    Args:
        out: The folder to write.
        seed: The seed of every draw.
        world: How the hospitals differ, and which faults are planted; None for the usual ones.
        resamples: The number of resamples.
        study: A study file, or 'demo', that is trained to its report afterwards; None for no study.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        What was planted, what was found, and the reports.

    Raises:
        UserError: The seed is negative, or a folder holds files that may not be replaced.
    """
    check_seed(seed)
    start = time.perf_counter()
    folder = Path(out)
    for task in MAKERS:
        check_out(folder / "data" / task, replace=True)
        check_out(folder / task, replace=True)
    world = world or World()
    reports: dict[str, Path] = {}
    results: dict[str, Result] = {}
    planted: dict[str, str] = {}
    for number, task in enumerate(MAKERS):
        if progress:
            progress("tasks", number, len(MAKERS))
        rng = np.random.default_rng(np.random.SeedSequence([seed, number]))
        tables = make(task, rng, world)
        planted |= tables.planted
        cohort_path, predictions_path = write_tables(tables, folder / "data" / task)
        settings: dict[str, Any] = {
            "out": folder / task,
            "replace": True,
            "resamples": resamples,
            "reference_site": "Alder",
            "margin": tables.margin,
            "group_by": () if tasks.get(task).compares_groups else ("breast_density",),
        }
        made: Result | StreamSummary
        if tables.scored:
            made = summarise(task, cohort_path, predictions_path, **settings)
        else:
            made = score(task, cohort_path, predictions_path, **settings)
        if isinstance(made, Result):
            results[task] = made
            reports[task] = folder / task / "report.html"
    found = look_for(results["classification"].summary, planted)
    trained = None if study is None else run_demo_study(study, folder / "study", progress=progress)
    return Demo(
        study=trained,
        found=found,
        reports=reports,
        main=reports["classification"].resolve(),
        seconds=time.perf_counter() - start,
    )


def run_demo_study(
    study: str | Path, out: Path, *, trainer: Any = None, progress: Report | None = None
) -> StudyPart:
    """Train the demo's study on this machine; without torch it is left out, and the reason is reported.

    Networks start from ImageNet weights where the package that carries them is installed, else from random
    weights.

    Args:
        study: A study file, or 'demo'.
        out: The folder to write; what an earlier run wrote there is used again.
        trainer: Trains in place of the networks, for tests; None for the networks.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The study's report, or why it was left out.
    """
    from importlib.util import find_spec

    if find_spec("torch") is None and trainer is None:
        return StudyPart(
            name=str(study), left_out="training needs torch; pip install 'elsewhere[train,weights]'"
        )
    from elsewhere.commands.run import RanStudy, run_study
    from elsewhere.study.file import load_study

    changes, told = [], []
    for name, model in load_study(study).study.models.items():
        if model.weights == "imagenet" and not _has_weights(model.network):
            changes.append(f"models.{name}.weights=none")
            told.append(
                f"no ImageNet weights of {model.network} on this machine: trained from random weights, with worse results"
            )
    done = run_study(study, out=out, changes=changes, trainer=trainer, progress=progress)
    told += list(done.lines())
    report = done.written.path if isinstance(done, RanStudy) else None
    return StudyPart(
        name=str(study),
        report=None if report is None else report.resolve(),
        told=tuple(told),
        exit_code=done.exit_code,
        content=done.to_dict(),
    )


def _has_weights(network: str) -> bool:
    """Check for weights on this machine alone: the demo downloads nothing."""
    if not network.startswith("efficientnet-lite"):
        return False
    from elsewhere.networks.weights import find_weights

    try:
        return find_weights(network, "imagenet") is not None
    except UserError:
        return False


def write_tables(tables: Tables, folder: Path) -> tuple[Path, Path]:
    """Write synthetic tables as a hospital has them: a cohort folder or csv, and a csv of predictions.

    Tables of an earlier demo are replaced; a table that somebody has changed since is not.

    Args:
        tables: The synthetic tables of a task.
        folder: The folder to write.

    Returns:
        The paths of the cohort and of the predictions.
    """
    cohort, predictions = "cohort.csv" if tables.lesions is None else "cohort", "predictions.csv"
    with staged_directory(folder, replace=True) as staged:
        write_table(tables.predictions, staged / predictions)
        if tables.lesions is None:
            write_table(tables.cases, staged / cohort)
        else:
            Cohort.from_frame(tables.cases, lesions=tables.lesions).save(staged / cohort)
    return folder / cohort, folder / predictions


def look_for(summary: dict[str, Any], planted: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Look for each planted fault in a summary that knows nothing of the planting.

    Args:
        summary: The content of summary.json.
        planted: The planted faults in words, by name.

    Returns:
        For each fault what was `planted`, whether it was `found`, and the `evidence`.
    """
    evidence: dict[str, tuple[bool, str]] = {}
    claims = {claim.get("group"): claim for claim in summary["verdict"]["claims"]}
    cedar, birch = claims.get("site Cedar", {}), claims.get("site Birch", {})
    evidence["drop"] = (
        cedar.get("word") == "BELOW" and birch.get("word") != "BELOW",
        f"verdict {summary['verdict']['word']}: Cedar {cedar.get('word')} ({_signed(cedar)}), Birch {birch.get('word')} ({_signed(birch)})",
    )
    gap = summary["fairness"].get("breast_density", {})
    evidence["subgroup_gap"] = (
        gap.get("worst_group") == "D" and (gap.get("p") or 1) < 0.05,
        f"worst group {gap.get('worst_group')}, gap {gap.get('gap'):.3f} over a null band up to {gap.get('null_band_upper'):.3f}, p {gap.get('p'):.3g}",
    )
    audit = {finding["kind"]: finding["message"] for finding in summary["audit"]}
    leaks = [text for kind, text in audit.items() if kind == "leak"]
    evidence["leak"] = (bool(leaks), leaks[0] if leaks else "the audit says nothing of it")
    ids = [text for kind, text in audit.items() if kind in ("ids-are-file-names", "site-spelt-two-ways")]
    evidence["id_mistake"] = (len(ids) >= 2, "; ".join(ids) if ids else "the audit says nothing of it")
    return {
        name: {"planted": text, "found": evidence[name][0], "evidence": evidence[name][1]}
        for name, text in planted.items()
    }


def _signed(claim: dict[str, Any]) -> str:
    return (
        "no difference"
        if claim.get("difference") is None
        else f"{claim['difference']:+.3f} [{claim['lo']:+.3f}, {claim['hi']:+.3f}]"
    )
