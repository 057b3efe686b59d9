"""A map of hit rules: 60 rules x 8 prediction files of 50,000 boxes on 1,700 volumes with 233 lesions.

The peers score each file under each rule for itself, from boxes that are in memory already. The first is this package's own
evaluation, called 60 times for each file, as a user would do with 60 protocols; the second leaves out all checks and
tables, and is matching and curve alone. They are timed on some of the rules and scaled; the three overlap rules, which a
protocol cannot hold, count as radius rules, whose cost is the same. Under each timed rule the values must be the same.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_dbtex import write_files
from elsewhere.cohort import Cohort, read_cohort
from elsewhere.predictions import Predictions
from elsewhere.protocols import DetectionRules, protocols
from elsewhere.scoring.detection import DetectionTask
from elsewhere.scoring.detection.froc import FrocEvaluator, FrocEvents
from elsewhere.scoring.detection.hit_rule_map import score_under_rules, under_rules
from elsewhere.scoring.detection.hit_rules import HitRules, in_plane_rules, rule_table
from elsewhere.scoring.detection.matching import match_boxes
from elsewhere.scoring.detection.prepared_boxes import prepare_boxes
from elsewhere.scoring.detection.tables import as_boxes, as_lesions
from elsewhere.scoring.task import ScoreOptions, read_predictions

BAR = 10.0
FILES = 8
CODE = protocols.get("dbtex-code")


def make_files(folder: Path) -> tuple[Cohort, list[Predictions]]:
    """The truth, and eight files: the scores and the places of the boxes differ."""
    write_files(folder)
    (folder / "truth").mkdir()
    for name in ("labels.csv", "boxes.csv"):
        (folder / name).rename(folder / "truth" / name)
    cohort = read_cohort("bcs-dbt", folder / "truth")
    first = read_predictions("detection", folder / "predictions.csv", cohort=cohort)
    rng = np.random.default_rng(3)
    n = len(first.table)
    files = []
    for _ in range(FILES):
        table = first.table.assign(
            x=first.table["x"] + rng.normal(0, 15, n), score=first.table["score"] + rng.normal(0, 0.05, n)
        )
        files.append(dataclasses.replace(first, table=table))
    return cohort, files


def of_rule(row: Any, planes: dict[str, DetectionRules | None]) -> DetectionRules | None:
    plane = planes[row.in_plane]
    if plane is None:
        return None
    return dataclasses.replace(plane, slice_fraction=row.slice_tolerance, matching=row.matching)


def separate(cohort: Cohort, said: Predictions, rules: DetectionRules) -> float:
    """One evaluation by the task, as for a protocol of its own."""
    task, options = DetectionTask(), ScoreOptions()
    scores = task.score(cohort, said, dataclasses.replace(CODE, detection=rules), options)
    evaluator = task.evaluator(scores, task.partition(scores), options)
    return float(evaluator.evaluate(np.ones((1, evaluator.n_clusters), dtype=np.uint16))[0, 0])


def lean(held: Any, rules: DetectionRules) -> float:
    """Matching and curve alone, on arrays."""
    lesions = as_lesions(held.lesions)
    hit = match_boxes(as_boxes(held.boxes, held.volume), lesions, rules, n_volumes=len(held.cases))
    of_case = np.bincount(lesions.volume, minlength=len(held.cases))
    evaluator = FrocEvaluator(
        rules=rules,
        cluster_of_case=np.zeros(len(held.cases), dtype=np.int32),
        n_clusters=1,
        lesions_of_case=of_case,
        events=FrocEvents(
            case=held.volume,
            cluster=np.where(held.volume < 0, -1, 0),
            lesion=hit,
            score=held.score,
        ),
    )
    return float(evaluator.evaluate(np.ones((1, 1), dtype=np.uint16))[0, 0])


def run(quick: bool = False) -> dict[str, Any]:
    """The map from boxes in memory to the values of all rules and files. The bar is a ratio."""
    with tempfile.TemporaryDirectory() as name:
        cohort, files = make_files(Path(name))
        return _run(cohort, files, timed=3 if quick else 12)


def _run(cohort: Cohort, files: list[Predictions], *, timed: int) -> dict[str, Any]:
    rules, options = HitRules(), ScoreOptions()
    planes = {plane.name: plane.radius for plane in in_plane_rules()}
    score_under_rules(cohort, files[0], CODE, options, rules)
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        made = [score_under_rules(cohort, said, CODE, options, rules) for said in files]
        seconds.append(time.perf_counter() - begin)
    ours = float(np.median(seconds))
    rows = [
        (at, radius)
        for at, row in enumerate(rule_table(rules).itertuples())
        if (radius := of_rule(row, planes)) is not None
    ]
    chosen = rows[:: max(1, len(rows) // timed)][:timed]
    separate(cohort, files[0], chosen[0][1])
    begin = time.perf_counter()
    theirs = [[separate(cohort, said, radius) for _, radius in chosen] for said in files[:2]]
    each = (time.perf_counter() - begin) / (2 * len(chosen))
    held = [prepare_boxes(cohort, said, options) for said in files]
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        for one in held:
            under_rules(one, CODE, rules)
        seconds.append(time.perf_counter() - begin)
    ours_lean = float(np.median(seconds))
    lean(held[0], chosen[0][1])
    begin = time.perf_counter()
    leanest = [[lean(one, radius) for _, radius in chosen] for one in held[:2]]
    each_lean = (time.perf_counter() - begin) / (2 * len(chosen))
    mine = [[float(one.every.values[at, 0]) for at, _ in chosen] for one in made[:2]]
    count = len(rules) * len(files)
    notes = f"{len(chosen)} rules x 2 files timed and scaled to {count}; same numbers: {mine == theirs == leanest}"
    return {
        "job": f"map of hit rules, {len(rules)} rules x {len(files)} files of 50,000 boxes",
        "peer": "a separate evaluation for each rule and file",
        "peer_seconds": each * count,
        "ours_seconds": ours,
        "ratio": each * count / ours,
        "bar": BAR,
        "notes": notes,
        "also": [
            {
                "job": "the same, from boxes that were checked before",
                "peer": "matching and curve alone for each rule and file, no checks and no tables",
                "peer_seconds": each_lean * count,
                "ours_seconds": ours_lean,
                "ratio": each_lean * count / ours_lean,
                "bar": BAR,
                "notes": notes,
            }
        ],
    }
