"""A store of patches: pixels of slides, cut and normalised once, read as memory-mapped batches.

    STORE/store.json              what all patches have in common: grid, stain, masks
    STORE/slides/<key>/slide.json the slide: dataset, case, digests of its file and annotations, its stain fit
    STORE/slides/<key>/<token>.*  shards of up to 4,096 of its patches (see `shards.py`)
    STORE/failed/<name>.json      why a slide could not be packed; removed when it is
    STORE/damaged/                shards that differ from what was written, set aside
    STORE/.lock                   held by the run that writes

A training set is a list of rows (dataset, case, column, row) that is looked up in the store. Reading needs no lock and
no library but numpy, so that a store can be read on a machine without OpenSlide.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.files import human_bytes, replacing, reserve
from elsewhere.inputs.patches.shards import Pixels, Shard, Whole, read_shard
from elsewhere.inputs.patches.spec import StoreSpec, read_spec
from elsewhere.untrusted import printable, read_json

STORE_FILE, SLIDE_FILE = "store.json", "slide.json"
FORMAT = "elsewhere patch store"
VERSION = 1
MOST_MAPS = 128
"""Files that are mapped at once: each takes a file descriptor."""
Report = Callable[[str, int, int], None]
SlideName = tuple[str, str]


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredSlide:
    """A slide with patches in a store.

    Attributes:
        dataset: Its dataset; "" where the table names none.
        case_id: Its case.
        folder: Its folder in the store.
        facts: What `slide.json` states: digests, size, microns per pixel, stain fit, warnings.
        shards: Its shards.
    """

    dataset: str
    case_id: str
    folder: Path
    facts: Mapping[str, Any]
    shards: tuple[Shard, ...]

    @property
    def name(self) -> SlideName:
        """Dataset and case."""
        return self.dataset, self.case_id

    def codes(self) -> Whole:
        """Number the places of its patches, shard by shard.

        Returns:
            One number per patch; see `place_codes`.
        """
        if not self.shards:
            return np.empty(0, np.int64)
        return np.concatenate([place_codes(shard.i, shard.j) for shard in self.shards])


def place_codes(i: npt.ArrayLike, j: npt.ArrayLike) -> Whole:
    """Number places in a grid, so that the order is that of reading: row by row, from the left.

    Args:
        i: Columns.
        j: Rows.

    Returns:
        One number per place.

    Example:
        >>> place_codes([3, 0], [0, 1]).argsort().tolist()
        [0, 1]
    """
    return (np.asarray(j, np.int64) << 21) | np.asarray(i, np.int64)


@dataclass(frozen=True, kw_only=True)
class Damage:
    """Something in a store that cannot be used.

    Attributes:
        path: The file or folder.
        why: What is wrong, as a clause.
    """

    path: Path
    why: str


class PatchStore:
    """A store that is read. It pickles as its path, and each process maps the files itself.

    Args:
        path: The folder of the store.

    Attributes:
        path: The folder of the store.
        spec: What all its patches have in common.
        slides: Its slides by dataset and case.
        damage: What cannot be used; it is not among the slides.

    Raises:
        UserError: There is no such folder, or it is no store.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.spec = read_store_spec(self.path)
        self.slides: dict[SlideName, StoredSlide] = {}
        self.damage: list[Damage] = []
        self._shards: list[Shard] = []
        self._maps: OrderedDict[tuple[int, str], Pixels] = OrderedDict()
        self._index: dict[SlideName, tuple[Whole, Whole]] = {}
        starts = [0]
        for folder in slide_folders(self.path):
            slide = self._read_slide(folder)
            if slide is None:
                continue
            self.slides[slide.name] = slide
            first = starts[-1]
            for shard in slide.shards:
                self._shards.append(shard)
                starts.append(starts[-1] + len(shard))
            codes = slide.codes()
            order = np.argsort(codes, kind="stable")
            self._index[slide.name] = (codes[order], order + first)
        self._starts = np.asarray(starts, np.int64)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return PatchStore, (self.path,)

    @property
    def shards(self) -> list[Shard]:
        """All shards, slide by slide."""
        return list(self._shards)

    def failures(self) -> dict[SlideName, str]:
        """Read which slides could not be packed.

        Returns:
            The reason of each, by dataset and case.
        """
        found = {}
        for path in sorted((self.path / "failed").glob("*.json")):
            with contextlib.suppress(UserError, KeyError, TypeError):
                content = read_json(path, most=1 << 20)
                found[str(content["dataset"]), str(content["case_id"])] = str(content["why"])
        return found

    def select(
        self,
        slides: Sequence[SlideName],
        i: npt.ArrayLike,
        j: npt.ArrayLike,
        *,
        missing: str = "refuse",
    ) -> PatchSet:
        """Look up a set of patches, such as a training set.

        Args:
            slides: Dataset and case of each row.
            i: The column of each row's patch in the grid.
            j: Its row in the grid.
            missing: What to do with rows that the store does not hold: "refuse", or "leave out", which keeps
                them in `PatchSet.missing` with the reason.

        Returns:
            The set, in the order of the rows.

        Raises:
            UserError: The rows are of different lengths, a word is unknown, or rows are missing and may not be.
        """
        if missing not in ("refuse", "leave out"):
            raise UserError(f"missing is {missing!r}", fix='Give "refuse" or "leave out".')
        codes = place_codes(i, j)
        if codes.shape != (len(slides),):
            raise UserError(f"{len(slides)} slides were named for {codes.size} places")
        positions = np.full(len(slides), -1, np.int64)
        groups: dict[SlideName, list[int]] = {}
        for row, name in enumerate(slides):
            groups.setdefault((name[0], name[1]), []).append(row)
        for name, rows in groups.items():
            if name not in self._index:
                continue
            known, where = self._index[name]
            if not len(known):
                continue
            asked = codes[rows]
            at = np.searchsorted(known, asked).clip(max=len(known) - 1)
            positions[rows] = np.where(known[at] == asked, where[at], -1)
        lost = np.flatnonzero(positions < 0)
        reasons: dict[int, str] = {}
        if len(lost):
            failures = self.failures()
            for row in lost.tolist():
                name = slides[row]
                reasons[row] = failures.get((name[0], name[1]), "the patch was never packed")
        if len(lost) and missing == "refuse":
            row = int(lost[0])
            raise UserError(
                f"{len(lost):,} of {len(slides):,} patches are not in the store; the first is column "
                f"{int(codes[row]) & ((1 << 21) - 1)}, row {int(codes[row]) >> 21} of {printable(slides[row][1])} "
                f"({reasons[row]})",
                where=str(self.path),
                fix="Pack them with elsewhere slides pack, or leave them out by name.",
            )
        return PatchSet(store=self, positions=positions[positions >= 0], missing=reasons)

    def batch(self, positions: npt.ArrayLike) -> Pixels:
        """Copy patches out of the mapped files.

        Args:
            positions: Where they are, as `select` returned them.

        Returns:
            [patches, size, size, 3].

        Raises:
            UserError: A file is missing or cut off, or there is no such position.
        """
        size = self.spec.size
        return self._gather(np.asarray(positions, np.int64), "pixels", (size, size, 3))

    def packed_masks(self, positions: npt.ArrayLike) -> Pixels:
        """Copy masks out of the mapped files, one bit per pixel.

        Args:
            positions: Where they are, as `select` returned them.

        Returns:
            [patches, size * size / 8]; `unpack_masks` makes masks of them.

        Raises:
            UserError: The store has no masks, a file is missing or cut off, or there is no such position.
        """
        return self._gather(np.asarray(positions, np.int64), "masks", (self.spec.mask_bytes,))

    def masks(self, positions: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Copy masks out of the mapped files.

        Args:
            positions: Where they are, as `select` returned them.

        Returns:
            [patches, size, size] of truth values: tumour or not.

        Raises:
            UserError: As `packed_masks`.
        """
        return unpack_masks(self.packed_masks(positions), self.spec.size)

    def verify(self, *, progress: Report | None = None) -> list[Damage]:
        """Read every byte and compare it with the digests that were written.

        Args:
            progress: Called with "checking shards", how many are done, and how many there are.

        Returns:
            What cannot be used; nothing where all is well.
        """
        found = list(self.damage)
        for done, shard in enumerate(self._shards, start=1):
            if why := shard.problem(self.spec, deep=True):
                found.append(Damage(path=shard.note_path, why=why))
            if progress is not None:
                progress("checking shards", done, len(self._shards))
        return found

    def _read_slide(self, folder: Path) -> StoredSlide | None:
        try:
            facts = read_json(folder / SLIDE_FILE, most=1 << 20, what="note of a slide")
            dataset, case_id = facts.get("dataset"), facts.get("case_id")
            if (
                not isinstance(dataset, str)
                or not isinstance(case_id, str)
                or facts.get("key") != folder.name
            ):
                raise UserError("the note of a slide names no case", where=str(folder))
        except UserError as error:
            self.damage.append(Damage(path=folder, why=error.what))
            return None
        if (dataset, case_id) in self.slides:
            self.damage.append(Damage(path=folder, why="the case is in the store a second time"))
            return None
        shards = []
        for note in sorted(folder.glob("*.json")):
            if note.name == SLIDE_FILE or note.name.startswith("."):
                continue
            try:
                shard = read_shard(note, self.spec)
            except UserError as error:
                self.damage.append(Damage(path=note, why=error.what))
                continue
            if why := shard.problem(self.spec):
                self.damage.append(Damage(path=note, why=why))
            else:
                shards.append(shard)
        return StoredSlide(dataset=dataset, case_id=case_id, folder=folder, facts=facts, shards=tuple(shards))

    def _map(self, number: int, kind: str) -> Pixels:
        key = (number, kind)
        if key in self._maps:
            self._maps.move_to_end(key)
            return self._maps[key]
        shard = self._shards[number]
        made = shard.map_pixels(self.spec) if kind == "pixels" else shard.map_masks(self.spec)
        self._maps[key] = made
        while len(self._maps) > MOST_MAPS:
            self._maps.popitem(last=False)
        return made

    def _gather(self, positions: Whole, kind: str, shape: tuple[int, ...]) -> Pixels:
        if kind == "masks" and not self.spec.masks:
            raise UserError("this store holds no masks", where=str(self.path), fix="Pack it with masks.")
        out = np.empty((len(positions), *shape), np.uint8)
        self.fill(positions, kind, out)
        return out

    def fill(
        self, positions: npt.ArrayLike, kind: str, out: Pixels, *, progress: Report | None = None
    ) -> None:
        """Copy patches or masks into an array, shard by shard in the order of the files.

        Args:
            positions: Where they are, as `select` returned them.
            kind: "pixels" or "masks".
            out: The array, with one entry per position.
            progress: Called with a step, how many are copied, and how many there are.

        Raises:
            UserError: A file is missing or cut off, or there is no such position.
        """
        asked = np.asarray(positions, np.int64)
        if len(asked) and not (asked.min() >= 0 and asked.max() < len(self)):
            raise UserError(
                f"the store holds {len(self):,} patches, and position {int(asked.max()):,} was asked for",
                where=str(self.path),
            )
        numbers = np.searchsorted(self._starts, asked, side="right") - 1
        order = np.argsort(asked, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        done = 0
        for rows in np.split(order, cuts):
            if not len(rows):
                continue
            number = int(numbers[rows[0]])
            source = self._map(number, kind)
            offsets = asked[rows] - self._starts[number]
            for begin in range(0, len(rows), 512):
                part = slice(begin, begin + 512)
                out[rows[part]] = source[offsets[part]]
            done += len(rows)
            if progress is not None:
                progress(f"reading {kind}", done, len(asked))


@dataclass(frozen=True, kw_only=True, eq=False)
class PatchSet:
    """Patches of a store in a certain order, such as a training set.

    Attributes:
        store: The store.
        positions: Where each patch is.
        missing: Rows that were asked for and left out: the reason of each, by its number.
    """

    store: PatchStore
    positions: Whole
    missing: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.positions)

    def batch(self, rows: npt.ArrayLike) -> Pixels:
        """Copy patches out of the mapped files.

        Args:
            rows: Which of the set.

        Returns:
            [patches, size, size, 3].

        Raises:
            UserError: A file is missing or cut off.
        """
        return self.store.batch(self.positions[np.asarray(rows, np.int64)])

    def masks(self, rows: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Copy masks out of the mapped files.

        Args:
            rows: Which of the set.

        Returns:
            [patches, size, size] of truth values.

        Raises:
            UserError: The store has no masks, or a file is missing or cut off.
        """
        return self.store.masks(self.positions[np.asarray(rows, np.int64)])

    def lay_out(
        self, *, kind: str = "pixels", path: Path | None = None, progress: Report | None = None
    ) -> Pixels:
        """Put the whole set into one array, for a GPU's memory for example.

        Args:
            kind: "pixels", or "masks" for packed masks.
            path: A .npy file to write and map; None for an array in memory.
            progress: Called with a step, how many patches are copied, and how many there are.

        Returns:
            [patches, size, size, 3], or [patches, size * size / 8] for masks; read-only where it is mapped.

        Raises:
            UserError: The memory or the disk is too small, the store has no masks, or a file is damaged.
        """
        spec = self.store.spec
        if kind not in ("pixels", "masks"):
            raise UserError(f"kind is {kind!r}", fix="Give pixels or masks.")
        if kind == "masks" and not spec.masks:
            raise UserError(
                "this store holds no masks", where=str(self.store.path), fix="Pack it with masks."
            )
        shape = (len(self), spec.size, spec.size, 3) if kind == "pixels" else (len(self), spec.mask_bytes)
        if path is not None:
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                header, {"descr": "|u1", "fortran_order": False, "shape": shape}
            )
            with replacing(path) as temporary:
                reserve(temporary, header.tell() + int(np.prod(shape)))
                with temporary.open("r+b") as file:
                    file.write(header.getvalue())
                if len(self):
                    mapped = np.memmap(temporary, np.uint8, "r+", offset=header.tell(), shape=shape)
                    self.store.fill(self.positions, kind, mapped, progress=progress)
                    mapped.flush()
                    del mapped
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        try:
            out = np.empty(shape, np.uint8)
        except MemoryError as error:
            raise UserError(
                f"the set takes {human_bytes(float(np.prod(shape)))}, more than this machine's memory",
                fix="Lay it out in a file (path=...), or read it in batches.",
            ) from error
        self.store.fill(self.positions, kind, out, progress=progress)
        return out

    def batches(self, size: int, *, rng: np.random.Generator | None = None) -> Iterator[Whole]:
        """Split the rows of the set into batches.

        Args:
            size: Rows per batch; the last may have fewer.
            rng: Shuffles the rows; None for their order.

        Yields:
            The rows of each batch.
        """
        order = np.arange(len(self)) if rng is None else rng.permutation(len(self))
        for begin in range(0, len(order), size):
            yield order[begin : begin + size]


def unpack_masks(packed: Pixels, size: int) -> npt.NDArray[np.bool_]:
    """Make masks of packed bits.

    Args:
        packed: [patches, size * size / 8].
        size: Pixels along a patch.

    Returns:
        [patches, size, size] of truth values.

    Example:
        >>> unpack_masks(np.full((1, 8), 0b10000000, np.uint8), 8)[0, :, :2].sum(axis=0).tolist()
        [8, 0]
    """
    return np.unpackbits(packed, axis=1).reshape(len(packed), size, size).view(bool)


def read_store_spec(path: Path) -> StoreSpec:
    """Read what the patches of a store have in common.

    Args:
        path: The folder of the store.

    Returns:
        Its settings.

    Raises:
        UserError: There is no such folder, or it is no store, or one of another version.
    """
    if not path.is_dir():
        raise UserError(
            "there is no store of patches here",
            where=str(path),
            fix="Name the folder that elsewhere slides pack wrote.",
        )
    if not (path / STORE_FILE).is_file():
        raise UserError(
            f"the folder is no store of patches: it has no {STORE_FILE}",
            where=str(path),
            fix="Name the folder that elsewhere slides pack wrote.",
        )
    content = read_json(path / STORE_FILE, most=1 << 20, what="description of the store")
    if content.get("format") != FORMAT:
        raise UserError("the folder is no store of patches", where=str(path / STORE_FILE))
    if content.get("version") != VERSION:
        raise UserError(
            f"the store was written by another version of Elsewhere ({printable(content.get('version'))[:20]}, "
            f"not {VERSION})",
            where=str(path),
            fix="Pack the slides again into another folder.",
        )
    return read_spec(content.get("patches"), where=str(path / STORE_FILE))


def slide_folders(path: Path) -> list[Path]:
    """List the folders of a store's slides.

    Args:
        path: The folder of the store.

    Returns:
        Sorted; none where there are none.

    Example:
        >>> slide_folders(Path("/no/such/store"))
        []
    """
    slides = path / "slides"
    if not slides.is_dir():
        return []
    return sorted(
        one
        for one in slides.iterdir()
        if one.is_dir() and not one.name.startswith(".") and (one / SLIDE_FILE).exists()
    )


def failure_file(path: Path, name: SlideName) -> Path:
    """Name the file that records why a slide could not be packed.

    Args:
        path: The folder of the store.
        name: Dataset and case.

    Returns:
        The file.

    Example:
        >>> failure_file(Path("s"), ("A", "case 1")).name
        'bd3abd67ec4561f51a8a0e3c.json'
    """
    digest = hashlib.sha256(f"{name[0]}\0{name[1]}".encode("utf-8", "surrogatepass")).hexdigest()
    return path / "failed" / f"{digest[:24]}.json"


def set_aside(path: Path, damage: Sequence[Damage]) -> int:
    """Move what is damaged out of the way, so that the next run packs it again.

    Args:
        path: The folder of the store.
        damage: What `PatchStore.verify` found.

    Returns:
        How many things were moved.

    Raises:
        FileSystemError: The system refuses.
    """
    from elsewhere.inputs.patches.shards import as_write_error

    moved = 0
    with as_write_error(path):
        place = path / "damaged"
        place.mkdir(exist_ok=True)
        for one in damage:
            if not one.path.exists():
                continue
            target = place / f"{one.path.stem}.{secrets.token_hex(3)}"
            if one.path.is_dir():
                one.path.rename(target)
            else:
                target.mkdir()
                # The note goes first: without it the other files are no shard.
                for ending in (".json", ".pixels", ".masks"):
                    part = one.path.with_suffix(ending)
                    if part.exists():
                        part.rename(target / part.name)
            moved += 1
    return moved
