"""Packs the patches of a table into a store: estimated first, slide by slide, resumed where it was stopped.

One run writes to a store at a time. A slide that cannot be read is recorded and does not end the others; a store that
cannot be written does. Worker processes open the slides themselves, and end when the process that started them ends.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elsewhere.errors import FileSystemError, UserError
from elsewhere.files import human_bytes
from elsewhere.files.access import check_may_write
from elsewhere.files.locks import FileLock, describe_holder, describe_this_process, end_with_parent
from elsewhere.inputs.patches.shards import as_write_error, write_note
from elsewhere.inputs.patches.slide_packing import PackedSlide, SlideRows, pack_slide
from elsewhere.inputs.patches.spec import StoreSpec
from elsewhere.inputs.patches.store import (
    FORMAT,
    SLIDE_FILE,
    STORE_FILE,
    VERSION,
    PatchStore,
    Report,
    failure_file,
    place_codes,
    read_store_spec,
    set_aside,
    slide_folders,
)
from elsewhere.untrusted import printable

_NOTE_BYTES = 24
"""Of the note of a shard, for each patch."""
_OWN = {STORE_FILE, "slides", "failed", "damaged", "digests", ".lock"}


@dataclass(frozen=True, kw_only=True)
class PackPlan:
    """What a run would write.

    Attributes:
        slides: Slides in the table.
        rows: Rows in the table.
        repeated: Rows that name a patch a second time.
        packed: Patches that the store holds already.
        left: Patches to pack.
        without_slide: Patches of which no slide was found.
        needed_bytes: What they take.
        free_bytes: What the disk has left.
    """

    slides: int
    rows: int
    repeated: int
    packed: int
    left: int
    without_slide: int
    needed_bytes: int
    free_bytes: int


@dataclass(frozen=True, kw_only=True)
class PackResult:
    """What a run did.

    Attributes:
        plan: What was to be done.
        slides: What came of each slide, in the order of the table.
        set_aside: Shards that were damaged, moved out of the way and packed again.
        store: What is in the store now.
    """

    plan: PackPlan
    slides: tuple[PackedSlide, ...]
    set_aside: int
    store: PatchStore

    @property
    def packed(self) -> int:
        """Patches that were packed."""
        return sum(slide.packed for slide in self.slides)

    @property
    def failed(self) -> tuple[PackedSlide, ...]:
        """Slides of which patches are missing."""
        return tuple(slide for slide in self.slides if slide.error is not None)

    @property
    def counts(self) -> dict[str, int]:
        """What happened to the patches, added up."""
        total: Counter[str] = Counter()
        for slide in self.slides:
            total.update(slide.counts)
        return {name: number for name, number in total.items() if number}


def plan_packing(slides: Sequence[SlideRows], path: Path, spec: StoreSpec) -> PackPlan:
    """Estimate what a run would write; nothing is written or changed.

    Args:
        slides: The slides and their rows.
        path: The folder of the store; it need not exist.
        spec: The settings of the store.

    Returns:
        The estimate. Slides that cannot be read count as if they could.

    Raises:
        UserError: There is another store, or something else, in this folder; or it may not be written.
    """
    check_may_write(path)
    store = None
    if _check_folder(path):
        store = PatchStore(path)
        store.spec.check_same(spec, where=str(path))
    rows = repeated = packed = left = without_slide = 0
    for slide in slides:
        codes = place_codes(slide.i, slide.j)
        asked = np.unique(codes)
        rows += len(codes)
        repeated += len(codes) - len(asked)
        known = store.slides.get(slide.name) if store is not None else None
        inside = int(np.isin(asked, known.codes()).sum()) if known is not None else 0
        packed += inside
        if slide.path is None:
            without_slide += len(asked) - inside
        else:
            left += len(asked) - inside
    place = path
    while not place.exists():
        place = place.parent
    return PackPlan(
        slides=len(slides),
        rows=rows,
        repeated=repeated,
        packed=packed,
        left=left,
        without_slide=without_slide,
        needed_bytes=left * (spec.patch_bytes + spec.mask_bytes + _NOTE_BYTES),
        free_bytes=shutil.disk_usage(place).free,
    )


def check_space(plan: PackPlan, path: Path) -> None:
    """Refuse a run that would fill the disk.

    Args:
        plan: What it would write.
        path: The folder of the store.

    Raises:
        FileSystemError: The disk has less space than is needed.
    """
    if plan.needed_bytes > plan.free_bytes:
        raise FileSystemError(
            f"{plan.left:,} patches need {human_bytes(plan.needed_bytes)}, and the disk has "
            f"{human_bytes(plan.free_bytes)} left",
            where=str(path),
            fix="Name a folder on a larger disk, or pack fewer rows.",
        )


def pack(
    slides: Sequence[SlideRows],
    path: str | Path,
    spec: StoreSpec,
    *,
    workers: int = 1,
    progress: Report | None = None,
) -> PackResult:
    """Pack the patches of slides into a store; those that it holds already are left as they are.

    Args:
        slides: The slides and their rows; each slide once.
        path: The folder of the store; it is made where it does not exist.
        spec: The settings of the store.
        workers: Processes that read slides; with more than one, the script that calls this needs an
            `if __name__ == "__main__"` guard.
        progress: Called with a step, how many patches are done, and how many there are.

    Returns:
        What was done. Slides that could not be read are in `failed`, and in the store's folder of this name.

    Raises:
        UserError: The store was packed with another grid or stain, another run writes to it, or a slide is named twice.
        FileSystemError: The disk is too small or becomes full. What was completed stays, and the next run resumes.
    """
    path = Path(path)
    names = Counter(slide.name for slide in slides)
    twice = [name for name, number in names.items() if number > 1]
    if twice:
        raise UserError(
            f"the slide {printable(twice[0][1])} is named {names[twice[0]]} times", where=str(path)
        )
    plan_packing(slides, path, spec)  # refuses before anything is made
    with _locked(path):
        if not _check_folder(path):
            with as_write_error(path):
                write_note(
                    {"format": FORMAT, "version": VERSION, "patches": spec.to_dict()}, path / STORE_FILE
                )
        read_store_spec(path).check_same(spec, where=str(path))
        sweep(path)
        damage = PatchStore(path).damage
        moved = set_aside(path, damage) if damage else 0
        plan = plan_packing(slides, path, spec)
        check_space(plan, path)
        done = _pack_all(slides, path, spec, workers, _Progress(progress, plan))
        for slide in done:
            _record(path, slide)
    return PackResult(plan=plan, slides=tuple(done), set_aside=moved, store=PatchStore(path))


def sweep(path: Path) -> int:
    """Remove what killed runs left half-written; the caller holds the lock.

    Args:
        path: The folder of the store.

    Returns:
        How many files were removed.

    Raises:
        StoreWriteError: The system refuses.
    """
    removed = 0
    root = path / "slides"
    with as_write_error(path):
        for place in (path, path / "failed", path / "digests", *(root.iterdir() if root.is_dir() else ())):
            if not place.is_dir():
                continue
            complete = {one.stem for one in place.glob("*.json")}
            for one in list(place.iterdir()):
                partial = one.name.startswith(".elsewhere-") and one.name.endswith(".partial")
                orphan = (
                    place.parent == root and one.suffix in (".pixels", ".masks") and one.stem not in complete
                )
                if partial or orphan:
                    one.unlink()
                    removed += 1
            if place.parent == root and not any(place.iterdir()):
                place.rmdir()
    return removed


class _Progress:
    """Adds up patches over slides."""

    def __init__(self, report: Report | None, plan: PackPlan) -> None:
        self._report, self._total, self._done = report, plan.left, 0

    def add(self, number: int) -> None:
        self._done += number
        if self._report is not None and self._total:
            self._report("packing patches", min(self._done, self._total), self._total)


def _pack_all(
    slides: Sequence[SlideRows], path: Path, spec: StoreSpec, workers: int, progress: _Progress
) -> list[PackedSlide]:
    earlier: dict[tuple[str, str], tuple[Path, ...]] = {}
    for folder in slide_folders(path):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            facts = json.loads((folder / SLIDE_FILE).read_bytes())
            name = (str(facts["dataset"]), str(facts["case_id"]))
            earlier[name] = (*earlier.get(name, ()), folder)
    if workers <= 1 or len(slides) < 2:
        return [
            pack_slide(slide, path, spec, earlier=earlier.get(slide.name, ()), progress=progress.add)
            for slide in slides
        ]
    found: dict[int, PackedSlide] = {}
    alone: list[int] = []
    while alone or len(found) < len(slides):
        left = [n for n in range(len(slides)) if n not in found and n not in alone]
        numbers, count = ([alone.pop(0)], 1) if alone else (left, workers)
        died: list[int] = []
        for number, packed in _in_processes(numbers, slides, (path, spec, earlier), count, died):
            found[number] = packed
            progress.add(packed.packed)
        if died and count == 1:
            slide = slides[died[0]]
            error = UserError(
                "the process that read the slide died twice",
                where=str(slide.path),
                fix="It needs more memory than there is, or the file is damaged: try elsewhere slides show on it.",
            )
            found[died[0]] = PackedSlide(name=slide.name, asked=len(slide.i), error=error)
        else:
            alone += died
    return [found[n] for n in range(len(slides))]


def _in_processes(
    numbers: Sequence[int],
    slides: Sequence[SlideRows],
    shared: tuple[Path, StoreSpec, dict[tuple[str, str], tuple[Path, ...]]],
    workers: int,
    died: list[int],
) -> Iterator[tuple[int, PackedSlide]]:
    """Pack slides in processes; those that were read when a process died are added to `died`, and the rest is left."""
    path, spec, earlier = shared
    context = multiprocessing.get_context("spawn")
    queue = list(numbers)
    running: dict[Future[PackedSlide], int] = {}
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker) as pool:
        try:
            while queue or running:
                while queue and len(running) < workers:
                    number = queue.pop(0)
                    job = slides[number]
                    running[pool.submit(pack_slide, job, path, spec, earlier=earlier.get(job.name, ()))] = (
                        number
                    )
                ready, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ready:
                    result = future.result()
                    yield running.pop(future), result
        except BrokenProcessPool:
            died += running.values()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    end_with_parent()


def _record(path: Path, slide: PackedSlide) -> None:
    """Record why patches of a slide are missing, or forget it."""
    file = failure_file(path, slide.name)
    with as_write_error(path):
        if slide.error is None:
            file.unlink(missing_ok=True)
        else:
            dataset, case_id = slide.name
            write_note({"dataset": dataset, "case_id": case_id, "why": slide.error.what[:500]}, file)


def _check_folder(path: Path) -> bool:
    """Whether there is a store; refuse a folder of something else."""
    if not path.exists():
        return False
    if not path.is_dir():
        raise UserError("a store of patches is a folder, and this is a file", where=str(path))
    if (path / STORE_FILE).exists():
        return True
    others = [
        one.name for one in path.iterdir() if one.name not in _OWN and not one.name.endswith(".partial")
    ]
    if others:
        raise UserError(
            f"the folder is no store of patches and holds other things ({printable(sorted(others)[0])[:80]})",
            where=str(path),
            fix="Name a folder that is empty or does not exist.",
        )
    return False


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with as_write_error(path):
        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / ".lock")
        held = lock.acquire()
    if not held:
        raise UserError(
            f"another run is writing to this store: {describe_holder(lock.path)}",
            where=str(path),
            fix="Wait until it ends, or write to another folder.",
        )
    try:
        with as_write_error(path):
            lock.write(json.dumps(describe_this_process()).encode())
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.write(b"")
        lock.release()
