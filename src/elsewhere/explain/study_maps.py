"""Relevance maps for a study's report (US-23, US-24), drawn on request for scenarios with saved weights.

Cases are chosen by rule, and no case is named: a caption has the label and the answer.
"""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import Any

from elsewhere.analysis.study.design import configuration
from elsewhere.engine.store import Store
from elsewhere.errors import UserError
from elsewhere.explain.run import Looked, look_at_run
from elsewhere.report.study.pictures import CasePictures, RunMaps
from elsewhere.study.file import StudyFile
from elsewhere.study.pictures import Report
from elsewhere.study.plan import Plan
from elsewhere.study.results import Results
from elsewhere.study.stored import StoredRuns

MOST_RUNS = 8
PANELS = 4
SIZE_PX = 200
BYTES = 30_000
"""The most bytes of one panel: with thirty-two panels the report stays below its limit."""
QUALITIES = (85, 70, 55, 40)


def check_maps_can_be_drawn(file: StudyFile) -> None:
    """Refuse maps before anything is trained: they need saved weights, and torch.

    Args:
        file: The study file.

    Raises:
        UserError: The study saves no weights, or torch is not installed.
    """
    if not file.study.study.keep_weights:
        raise UserError(
            "the study saves no weights, and relevance maps need them",
            where="--pictures",
            fix='Write keep_weights = ["A>B"] under [study], with the scenarios to look at; trainings that are in the '
            "store without weights are done again.",
        )
    if find_spec("torch") is None:
        raise UserError("relevance maps need torch", where="--pictures", fix="pip install 'elsewhere[train]'")


def look(run: str, stored: StoredRuns, **options: Any) -> Looked:
    """Make the relevance maps of a run.

    Args:
        run: The name of the run.
        stored: The runs of the study.
        **options: The keyword arguments of `look_at_run`.

    Returns:
        The maps, the numbers and the sanity check.
    """
    key = str(stored.row(run)["training"])
    training = stored.plan.units[key]
    needs = {role: stored.store.load(needed) for role, needed in training.needs.items()}
    test = stored.answers(run)["test"]
    return look_at_run(run, training, stored.store.load(key), stored.plan.work, test, needs=needs, **options)


def relevance_maps(
    results: Results, plan: Plan, store: Store, *, device: str = "auto", progress: Report | None = None
) -> CasePictures:
    """Make maps of the scenarios with saved weights: of each with every model and input, the first seed.

    Args:
        results: The results of the study.
        plan: The plan of the study, which names the scenarios whose weights are saved.
        store: The finished trainings.
        device: 'auto', 'cpu', 'cuda' or 'cuda:N'; of several, separated by commas, the first is used.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The maps of the first `MOST_RUNS` runs, and how many runs are left.
    """
    stored = StoredRuns(plan, store)
    done = results.done()
    done = done[done["scenario"].isin(plan.kept()) & (done["input"] != "")]
    done = done.drop_duplicates(["scenario", "task", "method"])
    made = []
    for number, row in enumerate(done.head(MOST_RUNS).to_dict(orient="records"), start=1):
        run = str(row["run"])
        seen = look(run, stored, choose=PANELS, device=device.split(",")[0])
        name = f"{configuration(str(row['model']), str(row['input']))}, {row['scenario']}"
        made.append(
            RunMaps(name=name, task=str(row["task"]), summary=seen.to_dict(), pictures=_pictures(seen, name))
        )
        if progress:
            progress("relevance maps", number, min(len(done), MOST_RUNS))
    return CasePictures(maps=tuple(made), runs_left=max(0, len(done) - MOST_RUNS))


def _pictures(looked: Looked, name: str) -> tuple[tuple[str, bytes], ...]:
    """Draw the panels of the shown cases, each with a caption that names no case."""
    made = []
    for position, case in enumerate(looked.seen.case):
        if case not in looked.shown:
            continue
        probability, malignant = float(looked.seen.probability[position]), bool(looked.label[case])
        right = "right" if (probability >= 0.5) == malignant else "wrong"
        label = looked.word(position).capitalize()
        caption = f"{label}, {right} answer: probability of malignancy {probability:.2f}"
        made.append((caption, _jpeg(looked.panel(position, name, size_px=SIZE_PX))))
    return tuple(made)


def _jpeg(image: Any) -> bytes:
    """Compress a panel to at most `BYTES`, or to the lowest quality."""
    for quality in QUALITIES:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        if len(buffer.getvalue()) <= BYTES:
            break
    return buffer.getvalue()
