"""Patches of two laboratories in every version that a drop is divided over, and what models predict for them (LN-22).

    FOLDER/rendering.json         the interventions, the versions, and what they were made from
    FOLDER/internal.csv           one row per internal patch: dataset, patient, case, place, whether it holds tumour
    FOLDER/external.csv           the same of external patches
    FOLDER/truth/<side>.npy       the truth, one bit per pixel; not needed for predicting
    FOLDER/<version>.npy          uint8 [patches, size, size, 3], in the order of the side's csv

    PREDICTIONS/<model>/<version>.npy          or PREDICTIONS/<model>/<fold>/<version>.npy
                                  [patches] or [patches, size, size]: probabilities, 8 bits (255 for certain), or true and false

A version is written whole or not at all, and a run that was stopped goes on with those that are missing. Predictions come
from elsewhere: arrays are mapped, never unpickled, and checked before a value is used.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import FileSystemError, UserError
from elsewhere.files import human_bytes, replacing, reserve, write_bytes
from elsewhere.inputs.rendering.interventions import (
    INTERNAL,
    SCALE,
    SIDES,
    Rendering,
    rendering_from,
)
from elsewhere.inputs.rendering.scale import Field, middle
from elsewhere.tables import read_table, write_table
from elsewhere.tables.identifiers import note_ids
from elsewhere.untrusted import check_plain_file, is_plain_name, printable, read_json

MANIFEST = "rendering.json"
FORMAT, VERSION = "elsewhere rendered patches", 1
TEXTS = ("dataset", "patient_id", "case_id", "stage", "site", "domain")
AS_IS = "as-is"
MOST_MODELS = 500
_BLOCK = 64
_LISTED = 6
Report = Callable[[str, int, int], None]
Bytes = npt.NDArray[np.uint8]
Reader = Callable[[npt.NDArray[np.int64]], tuple[Bytes, npt.NDArray[np.bool_]]]


@dataclass(frozen=True, kw_only=True, eq=False)
class SidePatches:
    """The patches of one laboratory before they are rendered.

    Attributes:
        rows: One row per patch, with `case_id`, `patient_id` and what else is known.
        read: Reads the pixels and the truth of rows, given by their numbers.
    """

    rows: pd.DataFrame
    read: Reader


@dataclass(frozen=True, kw_only=True)
class Version:
    """Patches of one side with some interventions.

    Attributes:
        side: "internal" or "external".
        applied: The interventions, in the order in which they are applied.
    """

    side: str
    applied: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What its files are called.

        Example:
            >>> Version(side="external", applied=("scale", "stain")).name
            'external_scale+stain'
        """
        return f"{self.side}_{'+'.join(self.applied) or AS_IS}"


def versions_of(rendering: Rendering) -> list[Version]:
    """List every version that the decomposition needs.

    Args:
        rendering: The interventions.

    Returns:
        Both sides as they are, and with every set of the interventions that change the side.

    Example:
        >>> [one.name for one in versions_of(Rendering(interventions=(), internal_mpp=0.5, external_mpp=0.5))]
        ['internal_as-is', 'external_as-is']
    """
    made = []
    for side in SIDES:
        names = rendering.on_side(side)
        for code in range(1 << len(names)):
            chosen = tuple(name for at, name in enumerate(names) if code >> at & 1)
            made.append(Version(side=side, applied=chosen))
    return sorted(made, key=lambda one: (one.side != INTERNAL, len(one.applied)))


@dataclass(frozen=True, kw_only=True, eq=False)
class RenderedFolder:
    """Rendered patches that lie on the disk.

    Attributes:
        path: The folder.
        rendering: The interventions.
        size: Pixels along a patch.
        rows: The rows of each side.
        key: What names the patches and the interventions.
    """

    path: Path
    rendering: Rendering
    size: int
    rows: Mapping[str, pd.DataFrame]
    key: str

    @property
    def versions(self) -> list[Version]:
        """All versions."""
        return versions_of(self.rendering)

    def missing(self) -> list[str]:
        """Name the versions that were not written yet.

        Returns:
            Their names.
        """
        return [one.name for one in self.versions if not (self.path / f"{one.name}.npy").is_file()]

    def pixels(self, version: Version) -> Bytes:
        """Map the patches of a version.

        Args:
            version: The version.

        Returns:
            uint8 [patches, size, size, 3], read-only.

        Raises:
            UserError: The file is missing or damaged.
        """
        shape = (len(self.rows[version.side]), self.size, self.size, 3)
        array = _load(self.path / f"{version.name}.npy")
        if array.shape != shape or array.dtype != np.uint8:
            raise UserError(
                f"the patches of {version.name} are damaged",
                where=str(self.path),
                fix="Remove the file and run elsewhere slides rerender again.",
            )
        return array

    def field(self, version: Version) -> Field:
        """Find the part of a patch that is scored: the same microns in every version.

        Args:
            version: The version.

        Returns:
            The middle of the patch.
        """
        return middle(self.size, self.rendering.field_share(version.side, version.applied))

    def truth(self, version: Version, rows: slice) -> npt.NDArray[np.bool_]:
        """Read the truth of some patches, rendered as the version is.

        Args:
            version: The version.
            rows: Which patches.

        Returns:
            [patches, size, size].

        Raises:
            UserError: The file is missing or damaged.
        """
        packed = _load(self.path / "truth" / f"{version.side}.npy")
        if (
            packed.shape != (len(self.rows[version.side]), self.size * self.size // 8)
            or packed.dtype != np.uint8
        ):
            raise UserError("the truth of the patches is damaged", where=str(self.path))
        masks = np.unpackbits(np.asarray(packed[rows]), axis=1).reshape(-1, self.size, self.size).view(bool)
        if SCALE not in version.applied:
            return masks
        return np.stack([self.rendering.render_mask(one, version.side, version.applied) for one in masks])


def write_rendered(
    out: str | Path,
    rendering: Rendering,
    sides: Mapping[str, SidePatches],
    *,
    size: int,
    key: str,
    progress: Report | None = None,
) -> RenderedFolder:
    """Write every version; versions that are there already are left as they are.

    Args:
        out: The folder.
        rendering: The interventions. In a folder that was begun, those that it was begun with count.
        sides: The patches of both sides.
        size: Pixels along a patch, a multiple of 8.
        key: What names the patches and the settings; another one than the folder's is refused.
        progress: Called with a step, how many patches are done, and how many there are.

    Returns:
        The folder.

    Raises:
        UserError: The folder holds other things, or patches of another key.
        FileSystemError: The disk is too small or becomes full; what was completed stays.
    """
    out = Path(out)
    if not began(out, key):
        _check_space(out, rendering, sides, size)
        for side in SIDES:
            write_table(sides[side].rows, out / f"{side}.csv")
        content = {
            "format": FORMAT,
            "version": VERSION,
            "key": key,
            "size": size,
            "patches": {side: len(sides[side].rows) for side in SIDES},
            "rendering": rendering.to_dict(),
            "versions": [one.name for one in versions_of(rendering)],
        }
        write_bytes(json.dumps(content, indent=1).encode(), out / MANIFEST)
    folder = open_rendered(out)
    versions = folder.versions
    total = sum(len(folder.rows[one.side]) for one in versions)
    done = 0
    for version in versions:
        target = out / f"{version.name}.npy"
        count = len(folder.rows[version.side])
        truth = out / "truth" / f"{version.side}.npy"
        if not target.is_file() or (not version.applied and not truth.is_file()):
            for part in _write_version(folder, version, sides[version.side], target, truth):
                if progress is not None:
                    progress("rendering patches", done + part, total)
        done += count
        if progress is not None:
            progress("rendering patches", done, total)
    return folder


def began(out: Path, key: str) -> bool:
    """Say whether a folder was begun with the same patches and settings.

    Args:
        out: The folder.
        key: What names them.

    Returns:
        False for a folder that is empty or does not exist.

    Raises:
        UserError: It holds other things, or other patches.

    Example:
        >>> began(Path("/no/such/folder"), "key")
        False
    """
    if not out.exists():
        return False
    if (out / MANIFEST).is_file():
        if _manifest(out).get("key") != key:
            raise UserError(
                "the folder holds other patches, or was begun with other settings",
                where=str(out),
                fix="Name another folder, or remove this one.",
            )
        return True
    known = {"internal.csv", "external.csv"}
    if not out.is_dir() or any(
        one.name not in known and not one.name.endswith(".partial") for one in out.iterdir()
    ):
        raise UserError(
            "the folder holds other things than rendered patches",
            where=str(out),
            fix="Name a folder that is empty or does not exist.",
        )
    return False


def _check_space(out: Path, rendering: Rendering, sides: Mapping[str, SidePatches], size: int) -> None:
    needed = sum(len(sides[one.side].rows) * size * size * 3 for one in versions_of(rendering))
    place = out
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed > free:
        raise FileSystemError(
            f"{len(versions_of(rendering))} versions of the patches need {human_bytes(needed)}, and the disk has "
            f"{human_bytes(free)} left",
            where=str(out),
            fix="Name a folder on a larger disk, or take fewer patches per slide with --per-slide.",
        )


def _write_version(
    folder: RenderedFolder, version: Version, patches: SidePatches, target: Path, truth: Path
) -> Iterator[int]:
    """Write one version, and with the plain one the truth; yields how many patches are done."""
    count, size = len(folder.rows[version.side]), folder.size
    bits = np.zeros((count, size * size // 8), np.uint8)
    with replacing(target) as temporary:
        mapped = _new_array(temporary, (count, size, size, 3))
        for begin in range(0, count, _BLOCK):
            rows = np.arange(begin, min(begin + _BLOCK, count))
            pixels, masks = patches.read(rows)
            bits[rows] = np.packbits(masks.reshape(len(rows), -1), axis=1)
            for at, one in zip(rows, pixels, strict=True):
                mapped[at] = folder.rendering.render(one, version.side, version.applied)
            yield int(rows[-1]) + 1
        mapped.flush()
        del mapped
        if not version.applied:
            with replacing(truth) as other:
                held = _new_array(other, bits.shape)
                held[...] = bits
                held.flush()


def _new_array(path: Path, shape: tuple[int, ...]) -> Any:
    """A .npy file whose space is taken, mapped for writing."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    reserve(path, header.tell() + int(np.prod(shape)))
    with path.open("r+b") as file:
        file.write(header.getvalue())
    return np.memmap(path, np.uint8, "r+", offset=header.tell(), shape=shape)


def _load(path: Path) -> npt.NDArray[Any]:
    """Map an array; nothing in it is ever unpickled."""
    check_plain_file(path, what="array", fix="Give arrays that numpy.save wrote.")
    try:
        loaded: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(
            f"cannot be read as an array ({printable(str(error))[:120]})",
            where=str(path),
            fix="Write it with numpy.save, as numbers and not as objects.",
        ) from error
    if not isinstance(loaded, np.ndarray):
        raise UserError("holds several arrays", where=str(path), fix="Write one array with numpy.save.")
    return loaded


def _manifest(path: Path) -> dict[str, Any]:
    if not (path / MANIFEST).is_file():
        raise UserError(
            f"the folder holds no rendered patches: it has no {MANIFEST}",
            where=str(path),
            fix="Name the folder that elsewhere slides rerender wrote.",
        )
    content = read_json(path / MANIFEST, most=1 << 20, what="description of the rendered patches")
    if content.get("format") != FORMAT or content.get("version") != VERSION:
        raise UserError(
            "the folder holds no rendered patches, or those of another version of Elsewhere",
            where=str(path / MANIFEST),
            fix="Render the patches again: elsewhere slides rerender.",
        )
    return content


def open_rendered(path: str | Path) -> RenderedFolder:
    """Open a folder of rendered patches.

    Args:
        path: The folder.

    Returns:
        The folder. Its ids are noted, so that nothing that is shared prints them.

    Raises:
        UserError: It is no such folder, or is damaged.
    """
    path = Path(path)
    content = _manifest(path)
    where = str(path / MANIFEST)
    rendering = rendering_from(content.get("rendering"), where=where)
    size = content.get("size")
    if not isinstance(size, int) or not 8 <= size <= 4096 or size % 8:
        raise UserError("the size of the patches cannot be understood", where=where)
    rows = {}
    for side in SIDES:
        table = read_table(path / f"{side}.csv", required=("case_id", "patient_id"), strings=TEXTS)
        if len(table) != (content.get("patches") or {}).get(side):
            raise UserError(
                f"{side}.csv has {len(table):,} rows, and another number of patches was rendered",
                where=str(path),
            )
        note_ids(table["patient_id"], table["case_id"])
        rows[side] = table
    return RenderedFolder(path=path, rendering=rendering, size=size, rows=rows, key=str(content.get("key")))


@dataclass(frozen=True, kw_only=True, eq=False)
class PredictedVersions:
    """What one model (and fold) predicts for every version.

    Attributes:
        model: The model.
        fold: The fold; empty where there is one.
        arrays: One array per version, mapped: [patches] or [patches, size, size].
        values: What they hold: "probability", "bytes" or "mask".
        scalar: Whether there is one number per patch, and not one per pixel.
    """

    model: str
    fold: str
    arrays: Mapping[str, npt.NDArray[Any]]
    values: str = "probability"
    scalar: bool = field(default=False)

    def probabilities(self, version: Version, rows: slice) -> npt.NDArray[np.float32]:
        """Read some predictions as probabilities.

        Args:
            version: The version.
            rows: Which patches.

        Returns:
            [patches] or [patches, size, size], from 0 to 1.

        Raises:
            UserError: A value is no probability.
        """
        part = np.asarray(self.arrays[version.name][rows])
        if self.values == "bytes":
            return (part / np.float32(255)).astype(np.float32)
        made = part.astype(np.float32)
        bad = ~((made >= 0) & (made <= 1))
        if bad.any():
            first = (rows.start or 0) + int(np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))[0])
            value = made[bad][0]
            raise UserError(
                f"{printable(self.model)}, {version.name}: patch {first} holds {value:g}, which is no probability",
                fix="Give numbers from 0 to 1: apply the sigmoid to logits, and leave no value that is not a number.",
            )
        return made


def read_predictions(folder: RenderedFolder, path: str | Path) -> list[PredictedVersions]:
    """Find the predictions of every model, and check that they fit the patches.

    Args:
        folder: The rendered patches.
        path: The folder of predictions: one folder per model, with one array per version, or with one folder per fold.

    Returns:
        One entry per model and fold, sorted.

    Raises:
        UserError: There is none, a version is missing, or an array has another shape or type than it may have.
    """
    root = Path(path)
    if not root.is_dir():
        raise UserError(
            "there is no folder of predictions here",
            where=str(root),
            fix="Give a folder with one folder per model, each with one .npy file per version.",
        )
    names = [one.name for one in folder.versions]
    found: list[PredictedVersions] = []
    for model in _folders(root):
        if _arrays(model, names):
            found.append(_predicted(folder, model, model.name, ""))
            continue
        folds = [fold for fold in _folders(model) if _arrays(fold, names)]
        found += [_predicted(folder, fold, model.name, fold.name) for fold in folds]
    if not found and _arrays(root, names):
        found = [_predicted(folder, root, "model", "")]
    if not found:
        raise UserError(
            "no predictions were found",
            where=str(root),
            fix=f"Write PREDICTIONS/MODEL/{names[0]}.npy and so on: one array for each .npy file of {folder.path}.",
        )
    if len(found) > MOST_MODELS:
        raise UserError(f"{len(found):,} models and folds; at most {MOST_MODELS} are read", where=str(root))
    kinds = {one.scalar for one in found}
    if len(kinds) > 1:
        raise UserError(
            "some models predict one number per patch and others one per pixel",
            where=str(root),
            fix="Judge the two kinds of models in two runs.",
        )
    return found


def _folders(path: Path) -> list[Path]:
    return sorted(one for one in path.iterdir() if one.is_dir() and not one.name.startswith("."))


def _arrays(path: Path, names: Sequence[str]) -> bool:
    return any((path / f"{name}.npy").is_file() for name in names)


def _predicted(folder: RenderedFolder, path: Path, model: str, fold: str) -> PredictedVersions:
    names = {one.name: one for one in folder.versions}
    if not is_plain_name(model) or (fold and not is_plain_name(fold)):
        raise UserError(
            f"'{printable(model)}' is no name for a model",
            where=str(path),
            fix="Use letters, digits, and . _ - in the names of folders.",
        )
    absent = [name for name in names if not (path / f"{name}.npy").is_file()]
    if absent:
        more = f" and {len(absent) - _LISTED} more" if len(absent) > _LISTED else ""
        raise UserError(
            f"{len(absent)} of {len(names)} versions have no predictions: {', '.join(absent[:_LISTED])}{more}",
            where=str(path),
            fix=f"Predict every .npy file of {folder.path}, and keep its name.",
        )
    arrays = {name: _load(path / f"{name}.npy") for name in names}
    shapes = set()
    for name, array in arrays.items():
        count = len(folder.rows[names[name].side])
        fits = array.shape in ((count,), (count, folder.size, folder.size))
        if array.ndim == 4 and array.shape in (
            (count, 1, folder.size, folder.size),
            (count, folder.size, folder.size, 1),
        ):
            array = arrays[name] = array.reshape(count, folder.size, folder.size)
            fits = True
        if not fits:
            raise UserError(
                f"{name}.npy has the shape {array.shape}; {count:,} patches need ({count},) or "
                f"({count}, {folder.size}, {folder.size})",
                where=str(path),
                fix=f"Keep the order and number of the patches of {name}.npy.",
            )
        shapes.add(array.ndim)
    if len(shapes) > 1:
        raise UserError(
            "some versions have one number per patch and others one per pixel",
            where=str(path),
            fix="Predict all alike.",
        )
    return PredictedVersions(
        model=model, fold=fold, arrays=arrays, values=_values(arrays, path), scalar=shapes == {1}
    )


def _values(arrays: Mapping[str, npt.NDArray[Any]], path: Path) -> str:
    kinds = {array.dtype.kind for array in arrays.values()}
    if kinds == {"f"}:
        return "probability"
    if kinds == {"b"}:
        return "mask"
    if kinds == {"u"} and all(array.dtype == np.uint8 for array in arrays.values()):
        # 0 and 1 are a mask; anything above is a byte of which 255 is certain
        largest = max(int(array.max()) if array.size else 0 for array in arrays.values())
        return "mask" if largest <= 1 else "bytes"
    raise UserError(
        f"the arrays hold {', '.join(sorted({str(array.dtype) for array in arrays.values()}))}",
        where=str(path),
        fix="Give probabilities (float16, float32 or float64), 8 bits (255 for certain), or true and false; all versions alike.",
    )


def rendering_key(parts: Sequence[Any]) -> str:
    """Name patches and settings.

    Args:
        parts: Plain values.

    Returns:
        sha256 in hexadecimal.

    Example:
        >>> len(rendering_key(["a", 1]))
        64
    """
    return hashlib.sha256(json.dumps(list(parts), sort_keys=True, default=str).encode()).hexdigest()


def predict_versions(
    folder: RenderedFolder,
    model: Callable[[Bytes], npt.ArrayLike],
    out: str | Path,
    *,
    name: str = "model",
    batch: int = 64,
    progress: Report | None = None,
) -> Path:
    """Let a Python function predict every version; versions that are there already are left as they are.

    Args:
        folder: The rendered patches.
        model: Takes uint8 [patches, size, size, 3], returns probabilities [patches] or [patches, size, size].
        out: The folder of predictions.
        name: The name of the model.
        batch: Patches per call.
        progress: Called with a step, how many patches are done, and how many there are.

    Returns:
        The folder of the model.

    Raises:
        UserError: The name cannot be a folder's, or the model returns another number of values.
    """
    if not is_plain_name(name):
        raise UserError(
            f"'{printable(name)}' is no name for a model", fix="Use letters, digits, and . _ - only."
        )
    place = Path(out) / name
    total = sum(len(folder.rows[one.side]) for one in folder.versions)
    done = 0
    for version in folder.versions:
        target = place / f"{version.name}.npy"
        pixels = folder.pixels(version)
        if not target.is_file():
            parts = []
            for begin in range(0, len(pixels), batch):
                part = np.asarray(model(np.array(pixels[begin : begin + batch])))
                if len(part) != len(pixels[begin : begin + batch]):
                    raise UserError(
                        f"the model returned {len(part)} values for {len(pixels[begin : begin + batch])} patches",
                        fix="Return one number, or one array of the patch's size, per patch.",
                    )
                parts.append(part if part.dtype == np.bool_ else part.astype(np.float32))
                if progress is not None:
                    progress("predicting patches", done + begin + len(part), total)
            with replacing(target) as temporary, temporary.open("wb") as file:
                np.save(file, np.concatenate(parts))
        done += len(pixels)
    return place
