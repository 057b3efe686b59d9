"""The source 'tomosynthesis': volumes by case, what a recipe is shown of them, and packs for a bare machine."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, near_matches
from elsewhere.inputs.source import LESION_BOX, LESIONS, CaseRow, sources
from elsewhere.inputs.tomosynthesis.cache import VolumeCache, default_cache
from elsewhere.inputs.tomosynthesis.described import SUFFIX, DescribedVolume
from elsewhere.inputs.tomosynthesis.header import read_header
from elsewhere.inputs.tomosynthesis.pictures import SUFFIXES, PictureVolume
from elsewhere.inputs.tomosynthesis.stored import (
    ArrayVolume,
    DicomStored,
    PackedVolume,
    write_index,
    write_pack,
)
from elsewhere.inputs.tomosynthesis.volume import Facts, Lesion, Stack, Truth, Volume

if TYPE_CHECKING:
    from elsewhere.inputs.cases import Cases

FINDING = "finding"
INDEX = "volumes.json"
MOST_OPEN = 64
"""Stacks that are mapped at one time: each takes a file handle."""
_SIDES = {"l": "left", "r": "right"}


class TomosynthesisView:
    """What a recipe is shown of volumes: those of one training's cases.

    Lesions and findings of cases that are only predicted are not shown, unless the recipe declares that it sees them.
    The volumes themselves are not an attribute of the view. Coordinates are pixels of the repaired original volume.

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
        source: TomosynthesisSource,
        *,
        cases: frozenset[str],
        hidden: frozenset[str],
        sees: frozenset[str] = frozenset(),
    ) -> None:
        withheld = {"lesions": LESION_BOX not in sees, "finding": FINDING not in sees}

        def ask(what: str, case: str, *more: Any) -> Any:
            if what == "__contains__":
                return case in cases and case in source
            if case not in cases:
                raise KeyError(f"'{case}' is not a case of this training")
            if case in hidden and withheld.get(what, False):
                return None
            if what == "slice":
                return source.slice(case, *more)
            if what == "lesions":
                return source.truth(case).lesions
            if what == "finding":
                return source.truth(case).finding or None
            return source.facts(case)

        self._ask = ask

    def __contains__(self, case: str) -> bool:
        return bool(self._ask("__contains__", case))

    def _facts(self, case: str) -> Facts:
        facts: Facts = self._ask("facts", case)
        return facts

    def shape(self, case: str) -> tuple[int, int, int]:
        """Return the size of a volume.

        Args:
            case: "DATASET/case_id".

        Returns:
            Rows, columns and slices of the original.

        Raises:
            KeyError: The case does not belong to this training.
        """
        return self._facts(case).shape

    def breast(self, case: str) -> tuple[int, int, int, int]:
        """Return the box of the breast, which is what `slice` holds.

        Args:
            case: "DATASET/case_id".

        Returns:
            x0, y0, x1, y1 in original pixels, half-open.

        Raises:
            KeyError: The case does not belong to this training.
        """
        return self._facts(case).breast

    def slice(self, case: str, z: int) -> npt.NDArray[np.uint16]:
        """Return the breast's box of one slice.

        Args:
            case: "DATASET/case_id".
            z: Which slice, from 0.

        Returns:
            [rows, columns], read-only; a mapped view where the volume is cached. Its size is that of the breast's box
            divided by `scale`, rounded up.

        Raises:
            KeyError: The case does not belong to this training.
            UserError: There is no such slice, or the volume cannot be read.
        """
        pixels: npt.NDArray[np.uint16] = self._ask("slice", case, z)
        return pixels

    def window(self, case: str) -> tuple[float, float]:
        """Return the values that are shown black and white.

        Args:
            case: "DATASET/case_id".

        Returns:
            (low, high): of the file, or percentiles of the breast where it states no usable window.

        Raises:
            KeyError: The case does not belong to this training.
        """
        return self._facts(case).window

    def side(self, case: str) -> str:
        """Return the edge of the slice that the breast touches.

        Args:
            case: "DATASET/case_id".

        Returns:
            "left" or "right"; "" where it cannot be told.

        Raises:
            KeyError: The case does not belong to this training.
        """
        return self._facts(case).side

    def scale(self, case: str) -> float:
        """Return how many original pixels one stored pixel is along each axis.

        Args:
            case: "DATASET/case_id".

        Returns:
            1 for volumes as they are, more where slices are stored reduced.

        Raises:
            KeyError: The case does not belong to this training.
        """
        return self._facts(case).scale

    def lesions(self, case: str) -> tuple[Lesion, ...] | None:
        """Return the annotated lesions.

        Args:
            case: "DATASET/case_id".

        Returns:
            In the order of the table; None where nobody annotated, or where they are hidden.

        Raises:
            KeyError: The case does not belong to this training.
        """
        lesions: tuple[Lesion, ...] | None = self._ask("lesions", case)
        return lesions

    def finding(self, case: str) -> str | None:
        """Return the finding of the whole volume.

        Args:
            case: "DATASET/case_id".

        Returns:
            "normal", "actionable", "benign" or "cancer"; None where it is not known, or where it is hidden.

        Raises:
            KeyError: The case does not belong to this training.
        """
        finding: str | None = self._ask("finding", case)
        return finding


@sources.register("tomosynthesis")
class TomosynthesisSource:
    """The volumes of a study by case: the source 'tomosynthesis'.

    Args:
        volumes: The volume of each case ("DATASET/case_id").
        truths: What the experts say of each case.

    Example:
        >>> volume = ArrayVolume(np.zeros((3, 40, 30), dtype=np.uint16), side="left")
        >>> lesion = Lesion(x=4, y=5, width=6, height=7, slice=1, kind="cancer")
        >>> source = TomosynthesisSource({"A/1": volume}, {"A/1": Truth(lesions=(lesion,))})
        >>> view = source.view(cases=frozenset({"A/1"}), hidden=frozenset({"A/1"}), sees=frozenset())
        >>> view.shape("A/1"), view.side("A/1"), view.lesions("A/1")
        ((40, 30, 3), 'left', None)
    """

    name: ClassVar[str] = "tomosynthesis"
    noun: ClassVar[str] = "volumes"
    complete: ClassVar[bool] = False
    truths: ClassVar[Mapping[str, str]] = {
        LESION_BOX: "the annotated boxes of the lesions",
        FINDING: "the finding of the volume (normal, actionable, benign, cancer)",
    }

    def __init__(self, volumes: Mapping[str, Volume], truths: Mapping[str, Truth] | None = None) -> None:
        self._volumes, self._truths = dict(volumes), dict(truths or {})
        self._open: OrderedDict[str, Stack] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": OrderedDict()}

    def __contains__(self, case: str) -> bool:
        return case in self._volumes

    @property
    def cases(self) -> tuple[str, ...]:
        """The names of all cases."""
        return tuple(self._volumes)

    @classmethod
    def of_cases(cls, rows: Iterable[CaseRow]) -> TomosynthesisSource:
        """Make the source of the volumes that a cohort's rows name in `image`. No file is opened yet.

        An image with the suffix of a picture is a single slice (`orig_height` and `orig_width` are the size of the
        slice that it was made of); one that ends with '.volume.json' describes a volume that is made when it is read;
        any other is a DICOM file.

        Args:
            rows: The rows of one or several cohorts; a row without `image`, or of another `modality`, is left out.

        Returns:
            The source.
        """
        cache = default_cache()
        volumes: dict[str, Volume] = {}
        truths = {}
        for row in rows:
            image = row.values.get("image")
            if not isinstance(image, str) or not image.strip() or _of_other_modality(row.values):
                continue
            path, side = row.file(image), side_by_name(row.values)
            picture = path.suffix.lower() in SUFFIXES
            if picture:
                volumes[row.name] = PictureVolume(path, side_by_name=side, original=_original(row.values))
            elif path.name.lower().endswith(SUFFIX):
                volumes[row.name] = DescribedVolume(None, where=path, cache=cache)
            else:
                volumes[row.name] = DicomStored(path, side_by_name=side, cache=cache)
            truths[row.name] = truth_of(row.values, one_slice=picture)
        return cls(volumes, truths)

    def reduced(self, scale: int) -> TomosynthesisSource:
        """Return a source of the same volumes with smaller slices, averaged over squares of pixels.

        Coordinates stay those of the original. Packs of it take `scale` squared times less.

        Args:
            scale: Original pixels per stored pixel, along each axis.

        Returns:
            The source; single pictures and volumes in memory stay as they are.

        Raises:
            UserError: The scale is not from 1 to 16.
        """
        if not 1 <= scale <= 16:
            raise UserError(f"the scale is {scale}", fix="Give a whole number from 1 to 16.")
        volumes = {
            case: one.reduced(scale) if isinstance(one, DicomStored | DescribedVolume) else one
            for case, one in self._volumes.items()
        }
        return TomosynthesisSource(volumes, self._truths)

    def volume(self, case: str) -> Volume:
        """Return the volume of a case.

        Args:
            case: "DATASET/case_id".

        Returns:
            The volume.

        Raises:
            UserError: The case is unknown; the nearest names are offered.
        """
        try:
            return self._volumes[case]
        except KeyError:
            near = near_matches(case, self._volumes)
            raise UserError(
                f"there is no volume of case '{case}'",
                fix=f"Did you mean {' or '.join(near)}?" if near else None,
            ) from None

    def facts(self, case: str) -> Facts:
        """Return what is known of a volume beside its pixels.

        Args:
            case: "DATASET/case_id".

        Returns:
            The facts.

        Raises:
            UserError: The volume cannot be read.
        """
        return self.volume(case).facts()

    def truth(self, case: str) -> Truth:
        """Return what the experts say of a volume.

        Args:
            case: "DATASET/case_id".

        Returns:
            The truth; empty where nothing is known.
        """
        return self._truths.get(case, Truth())

    def slice(self, case: str, z: int) -> npt.NDArray[np.uint16]:
        """Return the breast's box of one slice; of a cached volume, a mapped view.

        Args:
            case: "DATASET/case_id".
            z: Which slice, from 0.

        Returns:
            [rows, columns], read-only.

        Raises:
            UserError: There is no such slice, or the volume cannot be read.
        """
        stack = self._open.get(case)
        if stack is None:
            stack = self._open[case] = self.volume(case).stack()
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
        if not 0 <= z < len(stack):
            raise UserError(f"the volume of case '{case}' has {len(stack)} slices, slice {z} was requested")
        return stack[z]

    def problems(self, cases: Iterable[str]) -> dict[str, str]:
        """Read the header and some slices of each volume, and compare its lesions with its size.

        Args:
            cases: The cases to check ("DATASET/case_id").

        Returns:
            The reason by case; cases without a problem are not in it.
        """
        from elsewhere.inputs.tomosynthesis.audit import lesion_problem

        reasons = {}
        for case in cases:
            try:
                facts = self.facts(case)
            except UserError as error:
                reasons[case] = str(error)
                continue
            wrong = lesion_problem(self.truth(case), facts.shape)
            if wrong:
                reasons[case] = wrong
        return reasons

    def digest(self, case: str) -> str:
        """Return the digest that stands for a volume in a training's key.

        Args:
            case: "DATASET/case_id".

        Returns:
            Hexadecimal sha256.
        """
        return self.volume(case).digest()

    def truth_digest(self, case: str) -> str:
        """Return the digest that stands for the lesions and the finding of a case in a training's key.

        Args:
            case: "DATASET/case_id".

        Returns:
            Hexadecimal sha256; "" where nothing is known.
        """
        return self.truth(case).digest()

    def identity(self, case: str) -> str:
        """Return the digest of the values in the middle slices, whatever their header, encoding and orientation are.

        Args:
            case: "DATASET/case_id".

        Returns:
            Hexadecimal sha256.
        """
        return self.facts(case).identity

    def truth_files(self) -> tuple[Path, ...]:
        """List the files of annotations.

        Returns:
            None: lesions stand in the cohort's table.
        """
        return ()

    def boxes(self, rows: Sequence[CaseRow]) -> npt.NDArray[np.int32]:
        """Return no boxes of pictures: the lesions of volumes are read with the volumes.

        Args:
            rows: The rows of the cohort.

        Returns:
            (n, 4) zeros.
        """
        return np.zeros((len(rows), 4), dtype=np.int32)

    def shape(self, case: str) -> tuple[int, ...] | None:
        """Return the size of a case's original volume.

        Args:
            case: "DATASET/case_id".

        Returns:
            Rows, columns and slices; None for a case without a volume.
        """
        return self.facts(case).shape if case in self else None

    def view(
        self, *, cases: frozenset[str], hidden: frozenset[str], sees: frozenset[str]
    ) -> TomosynthesisView:
        """Make the view of one training.

        Args:
            cases: The cases that may be asked for.
            hidden: Those of them that are only predicted.
            sees: The kinds of truth that the recipe is shown of them.

        Returns:
            The view.
        """
        return TomosynthesisView(self, cases=cases, hidden=hidden, sees=sees)

    def pack(self, folder: Path, cases: Cases, *, with_truth: bool) -> None:
        """Write one pack per case, at the resolution of this source (`reduced` makes it smaller).

        A picture stays a file; of a described volume only its description is written.

        Args:
            folder: An empty folder.
            cases: The cases to pack, with their digests.
            with_truth: Whether lesions and findings are packed too.
        """
        index: dict[str, Any] = {}
        for number, (case, digest) in enumerate(zip(cases.case, cases.digest, strict=True)):
            volume = self.volume(case)
            index[case] = {
                "number": number,
                "digest": digest or volume.digest(),
                "truth": (self.truth(case) if with_truth else Truth()).to_dict(),
            }
            if isinstance(volume, PictureVolume):
                file = f"{number:06d}{volume.path.suffix.lower()}"
                shutil.copyfile(volume.path, folder / file)
                index[case] |= {"file": file, "side": volume.side_by_name, "original": volume.original}
            elif isinstance(volume, DescribedVolume):
                index[case] |= {"described": dict(volume.content), "scale": volume.scale}
            else:
                write_pack(folder / f"{number:06d}.zip", volume.stack())
                index[case]["facts"] = volume.facts().to_dict()
        write_index(folder / INDEX, {"version": 1, "cases": index})

    @classmethod
    def unpack(cls, folder: Path) -> TomosynthesisSource:
        """Read the packs that `pack` wrote. Neither pydicom nor a codec is needed.

        Args:
            folder: The folder.

        Returns:
            The source.

        Raises:
            UserError: There are no packed volumes in the folder.
        """
        path = folder / INDEX
        cache = default_cache()
        volumes: dict[str, Volume] = {}
        truths = {}
        try:
            index = json.loads(path.read_text(encoding="utf-8"))["cases"]
            for case, about in index.items():
                volumes[case] = _unpacked(folder, about, cache)
                truths[case] = Truth.from_dict(about["truth"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"the packed volumes cannot be read ({error})", where=str(path), fix="Pack them again."
            ) from error
        return cls(volumes, truths)

    def prepare(
        self,
        cases: Iterable[str],
        *,
        threads: int = 1,
        progress: Callable[[str, int, int], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Bring volumes into the cache, several at a time, so that no training waits for a decoder.

        It ends where the cache's limit is reached. A volume that cannot be read is left to
        the training that asks for it, which reports the reason.

        Args:
            cases: The cases ("DATASET/case_id").
            threads: How many volumes are read at one time.
            progress: Called with what is done, how much of it and how much there is.
            stop: Asked before each volume; True ends the preparation.
        """
        volumes = [
            one
            for one in map(self._volumes.get, dict.fromkeys(cases))
            if isinstance(one, DicomStored | DescribedVolume | PackedVolume)
        ]
        limit = min((volume.cache.most_bytes for volume in volumes), default=0)
        held = 0

        def read(volume: DicomStored | DescribedVolume | PackedVolume) -> int:
            try:
                return 0 if stop() or held > limit else volume.stack().nbytes
            except UserError:
                return 0

        with ThreadPoolExecutor(max(1, threads)) as pool:
            for done, size in enumerate(pool.map(read, volumes), start=1):
                held += size
                if progress:
                    progress("volumes", done, len(volumes))

    def portable(self, cases: Iterable[str]) -> TomosynthesisSource:
        """Return some cases; files travel as their paths, which every node must be able to read.

        Args:
            cases: The cases ("DATASET/case_id").

        Returns:
            A source.
        """
        names = [case for case in cases if case in self]
        return TomosynthesisSource(
            {case: self._volumes[case] for case in names},
            {case: self._truths[case] for case in names if case in self._truths},
        )

    def nbytes(self) -> int:
        """Count the bytes of the volumes that are in memory.

        Returns:
            Bytes; 0 where the volumes are files or packs.
        """
        return sum(one.stack().nbytes for one in self._volumes.values() if isinstance(one, ArrayVolume))

    def write_mask(self, path: Path, mask: npt.NDArray[np.bool_], *, like: str) -> Path:
        """Refuse: recipes of this source answer with boxes.

        Args:
            path: The file to write.
            mask: The mask.
            like: The case.

        Returns:
            Nothing.

        Raises:
            TypeError: Always.
        """
        raise TypeError("tomosynthesis volumes have boxes, not masks")


def side_by_name(values: Mapping[str, Any]) -> str:
    """Read from a cohort's row on which side the breast must lie.

    Args:
        values: The cells of the row: `laterality`, or the first letter of `view`.

    Returns:
        "left" or "right"; "" where the row does not say.

    Example:
        >>> side_by_name({"view": "RMLO1"}), side_by_name({"laterality": "left"}), side_by_name({})
        ('right', 'left', '')
    """
    for name in ("laterality", "view"):
        value = values.get(name)
        if isinstance(value, str) and (side := _SIDES.get(value.strip()[:1].lower(), "")):
            return side
    return ""


def maker_of(path: Path) -> str:
    """Read who made the machine of a volume.

    Args:
        path: A DICOM file, or a description of a volume.

    Returns:
        The maker; "" where the file does not say.

    Raises:
        UserError: The file cannot be read.
    """
    if path.name.lower().endswith(SUFFIX):
        return DescribedVolume(None, where=path, cache=default_cache()).maker
    return read_header(path).maker


def truth_of(values: Mapping[str, Any], *, one_slice: bool = False) -> Truth:
    """Read the lesions and the finding of a cohort's row.

    Args:
        values: The cells of the row; `lesions` holds the case's rows of the lesion table.
        one_slice: Whether the volume is a single slice, on which its lesions lie, whatever its number was.

    Returns:
        The truth; lesions are None where the cohort has no lesion table.
    """
    finding = values.get("finding")
    listed = values.get(LESIONS)
    lesions = None
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        lesions = tuple(_lesion(entry, one_slice=one_slice) for entry in listed)
    return Truth(lesions=lesions, finding=finding.strip().lower() if isinstance(finding, str) else "")


def _lesion(entry: Mapping[str, Any], *, one_slice: bool) -> Lesion:
    distortion = _number(entry.get("ad"))
    kind = entry.get("class")
    numbers = [_number(entry.get(name)) for name in ("x", "y", "width", "height", "slice")]
    x, y, width, height, z = (math.nan if number is None else number for number in numbers)
    return Lesion(
        x=x,
        y=y,
        width=width,
        height=height,
        slice=0 if one_slice or math.isnan(z) else int(z),
        kind=kind if isinstance(kind, str) else "",
        distortion=None if distortion is None else bool(distortion),
    )


def _unpacked(folder: Path, about: Mapping[str, Any], cache: VolumeCache) -> Volume:
    """The volume of an entry of the index that `TomosynthesisSource.pack` writes."""
    if "file" in about:
        file, original = str(about["file"]), about["original"]
        if not re.fullmatch(r"\d{6,}\.[a-z]+", file):
            raise ValueError(f"'{file}' is no file of this folder")
        size = None if original is None else (int(original[0]), int(original[1]))
        return PictureVolume(folder / file, side_by_name=str(about["side"]), original=size)
    if "described" in about:
        content = about["described"]
        if not isinstance(content, dict):
            raise TypeError("a description of a volume is no object")
        return DescribedVolume(content, where=folder / INDEX, cache=cache, scale=int(about["scale"]))
    return PackedVolume(
        folder / f"{int(about['number']):06d}.zip",
        facts=Facts.from_dict(about["facts"]),
        digest=str(about["digest"]),
        cache=cache,
    )


def _of_other_modality(values: Mapping[str, Any]) -> bool:
    modality = values.get("modality")
    return isinstance(modality, str) and modality.strip().lower() not in ("", "tomosynthesis", "dbt", "mg")


def _original(values: Mapping[str, Any]) -> tuple[int, int] | None:
    rows, columns = _number(values.get("orig_height")), _number(values.get("orig_width"))
    return (int(rows), int(columns)) if rows and columns else None


def _number(value: Any) -> float | None:
    """A finite number; None for an empty cell, text and infinities."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
