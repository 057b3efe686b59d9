"""Pictured detections: what a report needs to show lesions and false positives in their slices, as plain data.

The pictures are parts of patients' images. They are shown by number ('lesion 1', 'volume 3'); `key` says which case a
number is, and belongs into the key file alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elsewhere.privacy import Redactor

TRUTH = -1
"""The number that stands for the annotation among those of the models."""


@dataclass(frozen=True, kw_only=True)
class DrawnBox:
    """A box on a strip, in shares of the strip's frame.

    Attributes:
        model: The number of the model; `TRUTH` for an annotated lesion.
        x: The left end.
        y: The upper end.
        width: The width.
        height: The height.
        first: The first slice that it lies on.
        last: The last one.
        score: The score; None for an annotated lesion.
        full: Whether it is drawn with a full line: a box within the budget of false positives.
        centre: The annotated slice of a lesion: on other slices it is dashed. None for no such slice.
        subject: Whether it is the lesion or the false positive that the strip is about.
    """

    model: int
    x: float
    y: float
    width: float
    height: float
    first: int
    last: int
    score: float | None = None
    full: bool = True
    centre: int | None = None
    subject: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelLine:
    """What one model says at the place that a strip shows.

    Attributes:
        model: The number of the model.
        score: The score of its box there; None where it has none.
        first: The first slice of this box; None where it has none or it has no slices.
        last: The last one.
        cost: The false positives per volume at this score; None where it has no box there.
        says: The same in words, such as 'found' or 'no box here'.
    """

    model: int
    says: str
    score: float | None = None
    first: int | None = None
    last: int | None = None
    cost: float | None = None


@dataclass(frozen=True, kw_only=True)
class PicturedPlace:
    """A strip with its boxes.

    Attributes:
        title: What it is: 'Lesion 1', 'False positive 2'.
        volume: In which volume: 'volume 3'.
        facts: What is known of it, as short phrases.
        models: What each model says, in their order.
        slices: The JPEG of each slice; empty where the volume cannot be read.
        first: The number of the first slice, from 0.
        start: The number of the slice that is shown first.
        depth: How many slices the volume has.
        size: Width and height of the frame, in original pixels.
        boxes: What is drawn on it.
        problem: Why there are no slices; empty where there are.
    """

    title: str
    volume: str
    facts: tuple[str, ...]
    models: tuple[ModelLine, ...]
    slices: tuple[bytes, ...] = ()
    first: int = 0
    start: int = 0
    depth: int = 0
    size: tuple[int, int] = (1, 1)
    boxes: tuple[DrawnBox, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class PicturedDetections:
    """The hardest lesions and the highest-scoring false positives of one or several models.

    Attributes:
        models: The names of the models, the best first.
        lesions: The lesions, hardest first.
        false_positives: The false positives, highest first.
        budget: The false positives per volume up to which a box is drawn with a full line.
        notes: What is not shown, and why, as sentences.
        key: The id behind each number on the page; it must not be shared.
    """

    models: tuple[str, ...]
    lesions: tuple[PicturedPlace, ...]
    false_positives: tuple[PicturedPlace, ...]
    budget: float
    notes: tuple[str, ...] = ()
    key: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def places(self) -> tuple[PicturedPlace, ...]:
        """The lesions, then the false positives."""
        return self.lesions + self.false_positives

    @property
    def bytes(self) -> int:
        """How many bytes the pictures take on a page, where three bytes become four letters."""
        return sum(-(-len(one) // 3) * 4 for place in self.places for one in place.slices)

    @property
    def unreadable(self) -> int:
        """How many volumes cannot be read."""
        return len({place.volume for place in self.places if place.problem})

    def warnings(self) -> tuple[str, ...]:
        """Say what could not be read.

        Returns:
            One sentence, or none.
        """
        if not self.unreadable:
            return ()
        volumes = len({place.volume for place in self.places})
        return (
            f"Pictures: {self.unreadable} of {volumes} volumes could not be read; the report lists them with the reason.",
        )

    def sentence(self) -> str:
        """Say what is pictured, for a terminal.

        Returns:
            One sentence.
        """
        return (
            f"pictures of {_counted(len(self.lesions), 'lesion')} and {_counted(len(self.false_positives), 'false positive')}, "
            f"{self.bytes / 1e6:.1f} MB: the report holds parts of patients' images"
        )

    def shared(self, redactor: Redactor) -> PicturedDetections:
        """Take ids and folders out of the reasons and out of the names of models.

        Args:
            redactor: Knows them.

        Returns:
            The same pictures as they may be shown, without the key.
        """

        def clean(places: tuple[PicturedPlace, ...]) -> tuple[PicturedPlace, ...]:
            return tuple(replace(one, problem=redactor.text(one.problem)) for one in places)

        return replace(
            self,
            models=tuple(redactor.text(name) for name in self.models),
            lesions=clean(self.lesions),
            false_positives=clean(self.false_positives),
            notes=tuple(redactor.text(note) for note in self.notes),
            key={},
        )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
