"""Choose the hardest lesions and the highest-scoring false positives, and cut their strips out of the volumes.

Lesions are ordered by their difficulty (DBT-08), of one model by what they cost it. The scores of several models are not
comparable, so false positives are ordered by their rank within their model: first the highest of each model, then the
second. Boxes of several models at one place are one false positive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from elsewhere.analysis.result.inputs import Progress
from elsewhere.analysis.result.model_boxes import BoxArrays, ModelBoxes
from elsewhere.analysis.result.pictured import TRUTH, DrawnBox, ModelLine, PicturedDetections, PicturedPlace
from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.inputs.tomosynthesis.source import TomosynthesisSource
from elsewhere.inputs.tomosynthesis.strips import EITHER_SIDE, LONG_SIDE, Strip, cut_strip
from elsewhere.scoring.detection.found import BUDGET, lesions_of_models
from elsewhere.statistics.difficulty import lesion_difficulty
from elsewhere.study.case_rows import case_rows

MOST_BYTES = 12_000_000
"""All pictures of a page take no more than this; they are reduced until they do."""
MOST_PLACES = 50
MOST_BOXES = 8
"""So many boxes of a model are drawn on a strip: those with the highest scores."""
_LEVELS = ((LONG_SIDE, 82), (288, 75), (240, 70), (200, 65), (160, 60), (128, 50), (96, 45))
"""Long side and quality of the pictures, one after another until they fit."""


@dataclass(frozen=True, kw_only=True)
class PictureOptions:
    """Which pictures a report shows.

    Attributes:
        count: How many lesions, and how many false positives.
        either_side: How many slices before and after the middle one.
        most_bytes: The most bytes that they may take on the page.
    """

    count: int = 6
    either_side: int = EITHER_SIDE
    most_bytes: int = MOST_BYTES


@dataclass(frozen=True, kw_only=True)
class PictureVolumes:
    """The volumes of a cohort.

    Attributes:
        source: The volumes; none is opened before it is needed.
        datasets: The dataset of each case, by its id.
    """

    source: TomosynthesisSource
    datasets: Mapping[str, str]


def picture_volumes(task: str, cohort: Cohort, options: PictureOptions) -> PictureVolumes:
    """Find the volumes of a cohort, and refuse before anything is scored what cannot be pictured.

    Args:
        task: The task.
        cohort: The cohort, which names the volumes in its column `image`.
        options: Which pictures are wanted.

    Returns:
        The volumes.

    Raises:
        UserError: The task is another one, the cohort names no volume, or the number of pictures is not possible.
    """
    if task != "detection":
        raise UserError(
            f"pictures are those of detection and of slides, and the task is {task}",
            where="--pictures",
            fix="Leave --pictures out.",
        )
    if not 1 <= options.count <= MOST_PLACES:
        raise UserError(
            f"{options.count} pictures were asked for",
            where="--picture-count",
            fix=f"Give a number from 1 to {MOST_PLACES}.",
        )
    how = (
        "Name the volume of each case in a column `image` (a DICOM file, a .volume.json or a picture), or read the cohort "
        "with its volumes: elsewhere cohort read bcs-dbt FOLDER --volumes --out COHORT."
    )
    if "image" not in cohort.cases.columns:
        raise UserError(
            "pictures need the volumes, and the cohort has no column image", where="--pictures", fix=how
        )
    source = TomosynthesisSource.of_cases(case_rows(cohort))
    if not source.cases:
        raise UserError(
            "pictures need the volumes, and the cohort's column image names no volume of tomosynthesis",
            where="--pictures",
            fix=how,
        )
    datasets = cohort.cases[["case_id", "dataset"]].astype(str)
    return PictureVolumes(source=source, datasets=dict(datasets.itertuples(index=False, name=None)))


class _Place(NamedTuple):
    """A place to show: its volume, its box and its slice, NaN where it is not known, and whose box it is."""

    case_id: str
    x: float
    y: float
    width: float
    height: float
    slice: float
    model: int = TRUTH


def picture_detections(
    models: Mapping[str, ModelBoxes],
    volumes: PictureVolumes,
    options: PictureOptions,
    *,
    progress: Progress | None = None,
) -> PicturedDetections:
    """Picture the hardest lesions and the highest-scoring false positives.

    Args:
        models: The boxes of each model by its name, on the same cases, the best first.
        volumes: The volumes of these cases.
        options: Which pictures are made.
        progress: Called to report how many volumes are read; None for no report.

    Returns:
        The strips with the boxes of all models. A volume that cannot be read has its reason in place of slices.

    Example:
        Picture one model's detections of a cohort that names its volumes::

            volumes = picture_volumes("detection", cohort, PictureOptions(count=3))
            picture_detections({"model": held}, volumes, PictureOptions(count=3))
    """
    made = _Pictures(models, volumes, options)
    lesions = made.hardest()
    false = made.false_positives()
    total = len(lesions) + len(false)
    places: list[PicturedPlace] = []
    strips: list[Strip | None] = []
    for number, (title, place, facts, lines) in enumerate([*lesions, *false]):
        shown, strip = made.picture(title, place, facts, lines)
        places.append(shown)
        strips.append(strip)
        if progress:
            progress("pictures", number + 1, total)
    places = _within(places, strips, options.most_bytes)
    return PicturedDetections(
        models=tuple(models),
        lesions=tuple(places[: len(lesions)]),
        false_positives=tuple(places[len(lesions) :]),
        budget=BUDGET,
        notes=tuple(made.notes),
        key=made.key,
    )


def _within(
    places: Sequence[PicturedPlace], strips: Sequence[Strip | None], most: int
) -> list[PicturedPlace]:
    """Encode the strips; where they take too many bytes, smaller and coarser until they fit."""
    for long_side, quality in _LEVELS:
        shown = [
            place
            if strip is None
            else replace(place, slices=strip.encoded(long_side=long_side, quality=quality))
            for place, strip in zip(places, strips, strict=True)
        ]
        if sum(-(-len(one) // 3) * 4 for place in shown for one in place.slices) <= most:
            break
    return shown


_Chosen = tuple[str, _Place, tuple[str, ...], tuple[ModelLine, ...]]


@dataclass(kw_only=True)
class _FalsePositive:
    """A place where at least one model has a false positive: its box, and the rank and the row in each model."""

    model: BoxArrays
    row: int
    ranks: dict[int, int] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)


class _Pictures:
    """The work of `picture_detections`: what is chosen, and how it is numbered."""

    def __init__(
        self,
        models: Mapping[str, ModelBoxes],
        volumes: PictureVolumes,
        options: PictureOptions,
    ) -> None:
        self.source, self.datasets, self.options = volumes.source, volumes.datasets, options
        self.names = tuple(models)
        self.models = [BoxArrays.of(number, held) for number, held in enumerate(models.values())]
        self.held = lesions_of_models({name: held.scores for name, held in models.items()})
        self.lesions = next(iter(models.values())).prepared.lesions
        self.of_lesion = {
            (str(case), str(lesion)): row
            for row, (case, lesion) in enumerate(
                zip(self.lesions["case_id"], self.lesions["lesion_id"], strict=True)
            )
        }
        self.thresholds: dict[str, float] = {}
        self.notes: list[str] = []
        self.key: dict[str, str] = {}
        self._volumes: dict[str, str] = {}

    def volume(self, case_id: str) -> str:
        """The number by which a page names a volume."""
        if case_id not in self._volumes:
            self._volumes[case_id] = f"volume {len(self._volumes) + 1}"
            self.key[self._volumes[case_id]] = case_id
        return self._volumes[case_id]

    def hardest(self) -> list[_Chosen]:
        """The hardest lesions with what each model says of them."""
        if self.held.lesions.empty:
            self.notes.append("The cohort lists no lesions, so only false positives are shown.")
            return []
        made = lesion_difficulty(
            self.held.events, volumes=len(self.held.cases), lesions=self.held.lesions, budget=BUDGET
        )
        self.thresholds = made.thresholds
        best = {name: self._best_hits(name) for name in self.held.events}
        chosen: list[_Chosen] = []
        for number, row in enumerate(made.table.head(self.options.count).to_dict("records"), start=1):
            key = str(row["case_id"]), str(row["lesion_id"])
            lesion = self.lesions.iloc[self.of_lesion[key]]
            self.volume(key[0])
            title = f"Lesion {number}"
            self.key[title.lower()] = f"{key[0]}, lesion {key[1]}"
            x, y, width, height, middle = (
                float(lesion[name]) for name in ("x", "y", "width", "height", "slice")
            )
            place = _Place(key[0], x, y, width, height, middle)
            lines = tuple(
                self._line_of_lesion(model, best.get(name, {}).get(key))
                for name, model in zip(self.names, self.models, strict=True)
            )
            if math.isnan(place.slice):
                place = place._replace(slice=self._slice_of(lines))
            chosen.append((title, place, self._facts_of_lesion(lesion, row), lines))
        return chosen

    def _best_hits(self, name: str) -> dict[tuple[str, str], int]:
        """The number of the best box on each lesion."""
        events = self.held.events[name]
        hits = events[(events["kind"] == "tp").to_numpy(dtype=bool)]
        return {
            (str(case), str(lesion)): int(box)
            for case, lesion, box in zip(hits["case_id"], hits["lesion_id"], hits["box"], strict=True)
        }

    def _line_of_lesion(self, model: BoxArrays, box: int | None) -> ModelLine:
        if box is None:
            return ModelLine(model=model.number, says="not found")
        line = self._line(model, model.row_of_box[box], "found")
        threshold = self.thresholds.get(self.names[model.number], -math.inf)
        within = line.score is not None and line.score > threshold
        return line if within else replace(line, says="found beyond the budget")

    def _line(self, model: BoxArrays, row: int, says: str) -> ModelLine:
        first, last = model.slices(row) or (None, None)
        score = float(model.score[row])
        return ModelLine(
            model=model.number, says=says, score=score, first=first, last=last, cost=model.cost(score)
        )

    @staticmethod
    def _slice_of(lines: Sequence[ModelLine]) -> float:
        """The middle of the first box that has slices."""
        for line in lines:
            if line.first is not None and line.last is not None:
                return (line.first + line.last) / 2
        return math.nan

    def _facts_of_lesion(self, lesion: pd.Series, row: Mapping[Any, Any]) -> tuple[str, ...]:
        facts = []
        if isinstance(lesion["lesion_class"], str):
            facts.append(lesion["lesion_class"])
        if lesion["ad"] == 1:
            facts.append("architectural distortion")
        facts.append(f"{lesion['width']:.0f} x {lesion['height']:.0f} px")
        if len(self.held.events) > 1:
            facts.append(
                f"found by {row['detected_by']} of {row['algorithms']} models at {BUDGET:g} false positives per volume"
            )
        return tuple(facts)

    def false_positives(self) -> list[_Chosen]:
        """The highest-scoring false positives, each with all models that have a box there."""
        orders = []
        invalid = unlisted = 0
        for model in self.models:
            false = np.flatnonzero(model.kind == "fp")
            drawable = false[model.valid[false]]
            listed = np.isin(model.cases[false], list(self.datasets))
            unlisted += int((~listed).sum())
            invalid += int(len(false) - len(drawable) - (~listed).sum())
            order = drawable[np.argsort(-model.score[drawable], kind="stable")]
            orders.append(order[: 4 * self.options.count])
        for number, what in (
            (unlisted, "lie in volumes that the cohort does not list"),
            (invalid, "are invalid"),
        ):
            if number:
                self.notes.append(f"{number} false positives {what} and are not among the pictures.")
        found: list[_FalsePositive] = []
        for rank in range(max((len(order) for order in orders), default=0)):
            for model, order in zip(self.models, orders, strict=True):
                if rank >= len(order):
                    continue
                row = int(order[rank])
                same = next((one for one in found if one.model.together(one.row, model, row)), None)
                if same is None and len(found) < self.options.count:
                    same = _FalsePositive(model=model, row=row)
                    found.append(same)
                if same is not None:
                    same.ranks.setdefault(model.number, rank + 1)
                    same.rows.setdefault(model.number, row)
        if not found:
            self.notes.append("No model has a false positive that can be shown.")
        return [self._false_positive(number, one) for number, one in enumerate(found, start=1)]

    def _false_positive(self, number: int, one: _FalsePositive) -> _Chosen:
        model, row = one.model, one.row
        case_id = str(model.cases[row])
        title = f"False positive {number}"
        self.volume(case_id)
        centre = model.centre[row]
        place = _Place(
            case_id,
            float(model.x[row]),
            float(model.y[row]),
            float(model.width[row]),
            float(model.height[row]),
            math.floor(centre) if math.isfinite(centre) else math.nan,
            model.number,
        )
        self.key[title.lower()] = f"{case_id}, box {place.x:g} {place.y:g} {place.width:g} {place.height:g}"
        lines = []
        several = len(self.models) > 1
        for other in self.models:
            if other.number in one.rows:
                rank = one.ranks[other.number]
                says = "its highest false positive" if rank == 1 else f"its false positive number {rank}"
                lines.append(self._line(other, one.rows[other.number], says))
                continue
            at = [
                int(r)
                for r in other.rows.get(case_id, ())
                if other.valid[r] and model.together(row, other, int(r))
            ]
            if not at:
                lines.append(ModelLine(model=other.number, says="no box here"))
                continue
            best = max(at, key=lambda r: other.score[r])
            says = "a lower false positive" if other.kind[best] == "fp" else "its box hits a lesion"
            lines.append(self._line(other, best, says))
        facts = [f"{place.width:.0f} x {place.height:.0f} px"]
        if several:
            at_place = sum(line.score is not None for line in lines)
            facts.append(f"a box of {at_place} of {len(lines)} models")
        return title, place, tuple(facts), tuple(lines)

    def picture(
        self, title: str, place: _Place, facts: tuple[str, ...], lines: tuple[ModelLine, ...]
    ) -> tuple[PicturedPlace, Strip | None]:
        """Cut the strip of a place, and draw all boxes there."""
        shown = PicturedPlace(title=title, volume=self.volume(place.case_id), facts=facts, models=lines)
        name = f"{self.datasets.get(place.case_id, '')}/{place.case_id}"
        if name not in self.source:
            return replace(shown, problem="the cohort names no file for this volume"), None
        try:
            volume = self.source.volume(name)
            depth = volume.facts().shape[2]
            at = (depth - 1) // 2 if math.isnan(place.slice) else math.floor(place.slice)
            box = (place.x, place.y, place.width, place.height)
            strip = cut_strip(volume, box, slice=at, either_side=self.options.either_side)
        except UserError as error:
            return replace(shown, problem=str(error)), None
        if depth > 1 and not 0 <= at < depth:
            facts = (*facts, f"its slice is {at}, and the volume has slices 0 to {depth - 1}")
        x0, y0, x1, y1 = strip.frame
        return replace(
            shown,
            facts=facts,
            first=strip.first,
            start=min(max(at, 0), depth - 1),
            depth=depth,
            size=(x1 - x0, y1 - y0),
            boxes=(*self._truth(place, strip), *self._drawn(place, strip)),
        ), strip

    def _truth(self, place: _Place, strip: Strip) -> list[DrawnBox]:
        drawn = []
        rows = self.lesions[(self.lesions["case_id"] == place.case_id).to_numpy(dtype=bool)]
        for x, y, width, height, middle in rows[["x", "y", "width", "height", "slice"]].to_numpy(dtype=float):
            at = strip.fractions(x, y, width, height)
            if _meets(at):
                centre = None if strip.depth == 1 or math.isnan(middle) else int(middle)
                about = place.model == TRUTH and place[1:5] == (x, y, width, height)
                drawn.append(_box(TRUTH, at, (0, strip.depth - 1), centre=centre, subject=about))
        return drawn

    def _drawn(self, place: _Place, strip: Strip) -> list[DrawnBox]:
        drawn = []
        last = strip.first + len(strip.pictures) - 1
        for name, model in zip(self.names, self.models, strict=True):
            threshold = self.thresholds.get(name)
            there = []
            for row in model.rows.get(place.case_id, ()):
                if not model.valid[row]:
                    continue
                slices = model.slices(int(row)) if strip.depth > 1 else None
                slices = slices or (0, strip.depth - 1)
                ends = tuple(float(part[row]) for part in (model.x, model.y, model.width, model.height))
                at = strip.fractions(*ends)
                if slices[0] <= last and slices[1] >= strip.first and _meets(at):
                    about = place.model == model.number and place[1:5] == ends
                    there.append((about, float(model.score[row]), at, slices))
            there.sort(key=lambda one: (one[0], one[1]), reverse=True)
            for about, score, at, slices in there[:MOST_BOXES]:
                full = model.cost(score) <= BUDGET if threshold is None else score > threshold
                drawn.append(_box(model.number, at, slices, score=score, full=full, subject=about))
        return drawn


def _box(model: int, at: tuple[float, float, float, float], slices: tuple[int, int], **more: Any) -> DrawnBox:
    x, y, width, height = at
    return DrawnBox(
        model=model, x=x, y=y, width=width, height=height, first=slices[0], last=slices[1], **more
    )


def _meets(at: tuple[float, float, float, float]) -> bool:
    """Whether a box in shares of the frame reaches into it."""
    x, y, width, height = at
    return x < 1 and y < 1 and x + width > 0 and y + height > 0
