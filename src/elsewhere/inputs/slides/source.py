"""The source 'slides': whole slides by case, opened when they are read, and what a recipe is shown of them (LN-01).

Slides do not travel to a bare machine as they are: that machine lacks the decoders. What travels are patches that were
cut from them; `pack` says so.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, near_matches
from elsewhere.files.refusals import explained_refusals
from elsewhere.inputs.digests import slide_parts
from elsewhere.inputs.slides.annotations.outlines import Annotations, check_inside
from elsewhere.inputs.slides.annotations.reading import read_annotations
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.slide import Level, Pixels, Slide, Strip
from elsewhere.inputs.source import CaseRow, sources

if TYPE_CHECKING:
    from elsewhere.inputs.cases import Cases

OUTLINE, STAGE = "outline", "stage"
MOST_OPEN = 32
"""Slides that are open at one time: each takes a file handle and a table of tiles."""
_WINDOW_PX, _WINDOWS = 64, 12
"""For the digest of pixels: squares of level 0, and how many lie along each side."""


@dataclass(frozen=True, kw_only=True)
class SlideCase:
    """The files of one case.

    Attributes:
        path: The slide.
        mpp: Microns per pixel of level 0 that the table states; None for those of the file.
        annotation: Outlines; None where there are none.
        stage: The stage of the slide; '' where it is not known.
    """

    path: Path
    mpp: float | None = None
    annotation: Path | None = None
    stage: str = ""


class SlidesView:
    """What a recipe is shown of slides: those of one training's cases.

    Outlines and stages of cases that are only predicted are not shown, unless the recipe declares that it sees them.
    The slides themselves, and the names of their files, are not attributes of the view.

    Args:
        source: The source.
        cases: The cases that may be asked for.
        hidden: Those of them whose truth is not shown.
        sees: The kinds of truth that are shown all the same.
    """

    __slots__ = ("_ask",)
    _ask: Callable[..., Any]

    def __init__(
        self,
        source: SlidesSource,
        *,
        cases: frozenset[str],
        hidden: frozenset[str],
        sees: frozenset[str] = frozenset(),
    ) -> None:
        withheld = {"annotations": OUTLINE not in sees, "stage": STAGE not in sees}

        def ask(what: str, case: str) -> Any:
            if what == "__contains__":
                return case in cases and case in source
            if case not in cases:
                raise KeyError(f"'{case}' is not a case of this training")
            if case in hidden and withheld.get(what, False):
                return None
            if what == "annotations":
                return source.annotations(case)
            if what == "stage":
                return source.files(case).stage or None
            return source.slide(case)

        self._ask = ask

    def __contains__(self, case: str) -> bool:
        return bool(self._ask("__contains__", case))

    def size_px(self, case: str) -> tuple[int, int]:
        """Return the size of a slide.

        Args:
            case: "DATASET/case_id".

        Returns:
            Width and height of level 0.

        Raises:
            KeyError: The case does not belong to this training.
            UserError: The slide cannot be read.
        """
        slide: Slide = self._ask("slide", case)
        return slide.size_px

    def mpp(self, case: str) -> float:
        """Return the microns per pixel of level 0: those that the table states, else those of the file.

        Args:
            case: "DATASET/case_id".

        Returns:
            Microns per pixel.

        Raises:
            KeyError: The case does not belong to this training.
            UserError: The slide cannot be read.
        """
        slide: Slide = self._ask("slide", case)
        return slide.mpp

    def levels(self, case: str) -> tuple[Level, ...]:
        """Return the resolutions of a slide, level 0 first.

        Args:
            case: "DATASET/case_id".

        Returns:
            The levels.

        Raises:
            KeyError: The case does not belong to this training.
            UserError: The slide cannot be read.
        """
        slide: Slide = self._ask("slide", case)
        return slide.levels

    def read_mpp(self, case: str, box: tuple[int, int, int, int], *, mpp: float) -> Pixels:
        """Read a region at a number of microns per pixel, by the exact mean over area.

        Args:
            case: "DATASET/case_id".
            box: x, y, width and height in pixels of the size asked for.
            mpp: Microns per pixel.

        Returns:
            [height, width, 3] of 8 bits in RGB.

        Raises:
            KeyError: The case does not belong to this training.
            UserError: The region cannot be read, or the slide is too coarse.
        """
        slide: Slide = self._ask("slide", case)
        return slide.read_mpp(*box, mpp=mpp)

    def strips(self, case: str, *, mpp: float, height: int = 256) -> Iterator[Strip]:
        """Read a slide from top to bottom in strips of rows at a number of microns per pixel.

        Args:
            case: "DATASET/case_id".
            mpp: Microns per pixel.
            height: Rows of a strip.

        Returns:
            The strips.

        Raises:
            KeyError: The case does not belong to this training.
            UserError: The slide cannot be read, or is too coarse.
        """
        slide: Slide = self._ask("slide", case)
        return slide.strips(mpp, height)

    def annotations(self, case: str) -> Annotations | None:
        """Return the outlines of tumour in pixels of level 0.

        Args:
            case: "DATASET/case_id".

        Returns:
            The outlines; None where nobody outlined, or where they are hidden.

        Raises:
            KeyError: The case does not belong to this training.
            UserError: The file cannot be read, or is that of another slide.
        """
        found: Annotations | None = self._ask("annotations", case)
        return found

    def stage(self, case: str) -> str | None:
        """Return the stage of a slide.

        Args:
            case: "DATASET/case_id".

        Returns:
            negative, itc, micro or macro; None where it is not known, or where it is hidden.

        Raises:
            KeyError: The case does not belong to this training.
        """
        stage: str | None = self._ask("stage", case)
        return stage


@sources.register("slides")
class SlidesSource:
    """The whole slides of a study by case: the source 'slides'. A slide is opened when it is first read.

    Args:
        cases: The files of each case ("DATASET/case_id").

    Example:
        >>> source = SlidesSource({"A/1": SlideCase(path=Path("1.svs"), stage="macro")})
        >>> view = source.view(cases=frozenset({"A/1"}), hidden=frozenset({"A/1"}), sees=frozenset())
        >>> "A/1" in view, view.stage("A/1")
        (True, None)
    """

    name: ClassVar[str] = "slides"
    noun: ClassVar[str] = "slides"
    complete: ClassVar[bool] = False
    truths: ClassVar[Mapping[str, str]] = {
        OUTLINE: "the annotated outlines of the tumour",
        STAGE: "the stage of the slide (negative, itc, micro, macro)",
    }

    def __init__(self, cases: Mapping[str, SlideCase]) -> None:
        self._cases = dict(cases)
        self._open: OrderedDict[str, Slide] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": OrderedDict()}

    def __contains__(self, case: str) -> bool:
        return case in self._cases

    @property
    def cases(self) -> tuple[str, ...]:
        """The names of all cases."""
        return tuple(self._cases)

    @classmethod
    def of_cases(cls, rows: Iterable[CaseRow]) -> SlidesSource:
        """Make the source of the slides that a cohort's rows name in `slide`. No file is opened yet.

        Args:
            rows: The rows of one or several cohorts; a row without `slide` is left out. `mpp` overrides the microns per
                pixel of the file.

        Returns:
            The source.
        """
        cases = {}
        for row in rows:
            slide = row.values.get("slide")
            if not isinstance(slide, str) or not slide.strip():
                continue
            annotation = row.values.get("annotation")
            stage = row.values.get("stage")
            cases[row.name] = SlideCase(
                path=row.file(slide),
                mpp=_number(row.values.get("mpp")),
                annotation=row.file(annotation)
                if isinstance(annotation, str) and annotation.strip()
                else None,
                stage=stage.strip() if isinstance(stage, str) else "",
            )
        return cls(cases)

    def files(self, case: str) -> SlideCase:
        """Return the files of a case.

        Args:
            case: "DATASET/case_id".

        Returns:
            The slide, its scale, and its annotation.

        Raises:
            UserError: The case is unknown; the nearest names are offered.
        """
        try:
            return self._cases[case]
        except KeyError:
            near = near_matches(case, self._cases)
            raise UserError(
                f"there is no slide of case '{case}'",
                fix=f"Did you mean {' or '.join(near)}?" if near else None,
            ) from None

    def slide(self, case: str) -> Slide:
        """Return the slide of a case; it stays open while few others are read.

        Args:
            case: "DATASET/case_id".

        Returns:
            The slide, which the caller does not close.

        Raises:
            UserError: It cannot be read.
        """
        slide = self._open.pop(case, None)
        if slide is None:
            about = self.files(case)
            slide = open_slide(about.path, mpp=about.mpp)
        self._open[case] = slide
        while len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)  # closed when nobody reads it any more
        return slide

    def annotations(self, case: str) -> Annotations | None:
        """Read the outlines of a case, and check that they lie inside of its slide.

        Args:
            case: "DATASET/case_id".

        Returns:
            The outlines; None where there is no file.

        Raises:
            UserError: The file cannot be read, or is that of another slide.
        """
        path = self.files(case).annotation
        return None if path is None else check_inside(read_annotations(path), self.slide(case).size_px)

    def problems(self, cases: Iterable[str]) -> dict[str, str]:
        """Open each slide and read its annotation.

        Args:
            cases: The cases to check ("DATASET/case_id").

        Returns:
            The reason by case; cases without a problem are not in it.
        """
        reasons = {}
        for case in cases:
            try:
                self.slide(case)
                self.annotations(case)
            except UserError as error:
                reasons[case] = str(error)
        return reasons

    def digest(self, case: str) -> str:
        """Return the digest of the slide's files, which are read in full, and of the scale that the table states.

        Args:
            case: "DATASET/case_id".

        Returns:
            Hexadecimal sha256.

        Raises:
            UserError: A file cannot be read.
        """
        about = self.files(case)
        whole = hashlib.sha256(f"elsewhere-slide-1 {about.mpp}\n".encode())
        for path in (about.path, *slide_parts(about.path)):
            whole.update(f"{_file_digest(path)}\n".encode())
        return whole.hexdigest()

    def truth_digest(self, case: str) -> str:
        """Return the digest of the outlines and the stage of a case.

        Args:
            case: "DATASET/case_id".

        Returns:
            Hexadecimal sha256; "" where nothing is known.

        Raises:
            UserError: The annotation cannot be read.
        """
        about = self.files(case)
        if about.annotation is None and not about.stage:
            return ""
        outlines = _file_digest(about.annotation) if about.annotation is not None else ""
        return hashlib.sha256(f"{outlines} {about.stage}".encode()).hexdigest()

    def identity(self, case: str) -> str:
        """Return the digest of the slide's size and of small squares over all of it.

        It is the same for the same pixels under another name, header or scale. A slide that was compressed again has
        another one: near-duplicates are found by their overviews.

        Args:
            case: "DATASET/case_id".

        Returns:
            Hexadecimal sha256.

        Raises:
            UserError: The slide cannot be read.
        """
        slide = self.slide(case)
        width, height = slide.size_px
        whole = hashlib.sha256(f"elsewhere-slide-pixels-1 {width} {height}\n".encode())
        across = np.linspace(0, max(0, width - _WINDOW_PX), _WINDOWS).astype(int)
        down = np.linspace(0, max(0, height - _WINDOW_PX), _WINDOWS).astype(int)
        for y in down:
            for x in across:
                whole.update(slide.read(int(x), int(y), _WINDOW_PX, _WINDOW_PX).tobytes())
        return whole.hexdigest()

    def truth_files(self) -> tuple[Path, ...]:
        """List the files of outlines.

        Returns:
            Their paths.
        """
        return tuple(about.annotation for about in self._cases.values() if about.annotation is not None)

    def boxes(self, rows: Sequence[CaseRow]) -> npt.NDArray[np.int32]:
        """Return no boxes of pictures: outlines are read with the slides.

        Args:
            rows: The rows of the cohort.

        Returns:
            (n, 4) zeros.
        """
        return np.zeros((len(rows), 4), dtype=np.int32)

    def shape(self, case: str) -> tuple[int, ...] | None:
        """Return the size of a case's slide.

        Args:
            case: "DATASET/case_id".

        Returns:
            Rows and columns of level 0; None for a case without a slide.

        Raises:
            UserError: The slide cannot be read.
        """
        return self.slide(case).size_px[::-1] if case in self else None

    def view(self, *, cases: frozenset[str], hidden: frozenset[str], sees: frozenset[str]) -> SlidesView:
        """Make the view of one training.

        Args:
            cases: The cases that may be asked for.
            hidden: Those of them that are only predicted.
            sees: The kinds of truth that the recipe is shown of them.

        Returns:
            The view.
        """
        return SlidesView(self, cases=cases, hidden=hidden, sees=sees)

    def pack(self, folder: Path, cases: Cases, *, with_truth: bool) -> None:
        """Refuse: whole slides do not travel.

        Args:
            folder: An empty folder.
            cases: The cases to pack.
            with_truth: Whether annotations are packed too.

        Raises:
            UserError: Always.
        """
        raise UserError(
            f"{len(cases)} whole slides cannot be packed for another machine",
            fix="Train where the slides are.",
        )

    @classmethod
    def unpack(cls, folder: Path) -> SlidesSource:
        """Refuse: whole slides do not travel.

        Args:
            folder: The folder.

        Returns:
            Nothing.

        Raises:
            UserError: Always.
        """
        raise UserError("whole slides are never packed", where=str(folder), fix="Train where the slides are.")

    def portable(self, cases: Iterable[str]) -> SlidesSource:
        """Return some cases; files travel as their paths, which every node must be able to read.

        Args:
            cases: The cases ("DATASET/case_id").

        Returns:
            A source.
        """
        return SlidesSource({case: self._cases[case] for case in cases if case in self})

    def nbytes(self) -> int:
        """Count the bytes of slides that are in memory.

        Returns:
            0: slides are files.
        """
        return 0

    def write_mask(self, path: Path, mask: npt.NDArray[np.bool_], *, like: str) -> Path:
        """Refuse: no recipe of this source answers with whole masks.

        Args:
            path: The file to write.
            mask: The mask.
            like: The case.

        Returns:
            Nothing.

        Raises:
            TypeError: Always.
        """
        raise TypeError("masks of whole slides are written by strips, not whole")


def _file_digest(path: Path) -> str:
    with explained_refusals(path, "the file cannot be read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _number(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        return float(value)
    return None
