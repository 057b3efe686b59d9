"""The parts of a run: one file per slide and fold, so that a run that was stopped resumes where it was."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from elsewhere.analysis.slide_ensembles.reading import (
    InvalidMemberError,
    SlideTruth,
    SlideVotes,
    part_key,
    read_part,
    read_votes,
    write_part,
)
from elsewhere.errors import UserError
from elsewhere.files import explained_refusals
from elsewhere.files.locks import FileLock
from elsewhere.files.writing import make_folders, remove_empty

Report = Callable[[str, int, int], None]
_PART = re.compile(r"[0-9a-f]{64}\.npz")


@contextlib.contextmanager
def parts_folder(folder: Path) -> Iterator[Path]:
    """Make and lock the folder of parts; remove the parts when the block ends well.

    Args:
        folder: The folder.

    Yields:
        The folder.

    Raises:
        UserError: Another run uses it.
    """
    with explained_refusals(folder, "the parts of the run cannot be written"):
        created = make_folders(folder)
        lock = FileLock(folder / "lock")
        taken = lock.acquire()
    if not taken:
        raise UserError(
            "another command is combining these masks",
            where=str(folder),
            fix="Wait until it ends, or name another --out.",
        )
    try:
        yield folder
        for part in list(folder.iterdir()):
            if _PART.fullmatch(part.name):
                part.unlink(missing_ok=True)
    finally:
        for partial in folder.glob(".elsewhere-*.partial"):
            partial.unlink(missing_ok=True)
        lock.release(remove=True)
        remove_empty([*created, folder] if folder not in created else created)


@dataclass(frozen=True, kw_only=True)
class VoteParts:
    """The parts of all slides and folds.

    Attributes:
        paths: The file of each slide and fold, by their numbers.
        resumed: How many of them an earlier run had finished.
        invalid: Masks that could not be used: the slide, the model, the fold and why.
    """

    paths: Mapping[tuple[int, int], Path]
    resumed: int
    invalid: tuple[tuple[str, str, str, str], ...]

    def read(self, slide: int, fold: int) -> SlideVotes:
        """Read one part.

        Args:
            slide: The number of the slide.
            fold: The number of the fold.

        Returns:
            The votes.

        Raises:
            UserError: The part was removed or damaged while the run went on.
        """
        path = self.paths[slide, fold]
        found = read_part(path)
        if found is None:
            raise UserError(
                "a part of the run was changed while it went on",
                where=str(path),
                fix="Run the command again.",
            )
        return found


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How members' masks are read.

    Attributes:
        levels: Whether means of probabilities are kept, which mean-probability needs.
        worst: Whether a mask that cannot be used counts as missing, in place of ending the run.
    """

    levels: bool = False
    worst: bool = False


def read_parts(
    folder: Path,
    slides: Sequence[SlideTruth],
    models: Sequence[str],
    folds: Sequence[str],
    rows: Mapping[tuple[str, str, str], pd.Series],
    options: ReadingOptions,
    *,
    progress: Report | None = None,
) -> VoteParts:
    """Read every mask once: a part per slide and fold, unless an earlier run wrote it.

    Args:
        folder: The folder of the parts.
        slides: The slides.
        models: The models.
        folds: The folds.
        rows: The mask of each slide, fold and model that has one.
        options: How masks are read.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The parts.

    Raises:
        UserError: A truth cannot be read, or a mask cannot and is not to count as missing.
    """
    paths: dict[tuple[int, int], Path] = {}
    invalid: list[tuple[str, str, str, str]] = []
    resumed = 0
    for i, slide in enumerate(slides):
        for f, fold in enumerate(folds):
            mine = {
                model: rows[slide.case, fold, model] for model in models if (slide.case, fold, model) in rows
            }
            key = part_key(slide, fold, models, mine, levels=options.levels)
            path = folder / f"{key}.npz"
            made = read_part(path)
            if made is not None and (options.worst or not made.invalid):
                resumed += 1
            else:
                try:
                    made = read_votes(slide, models, mine, levels=options.levels, worst=options.worst)
                except InvalidMemberError as problem:
                    error = problem.error
                    raise UserError(
                        f"{error.what} (slide {slide.case}, model {problem.model}, fold {fold})",
                        where=error.where,
                        fix=f"{error.fix or 'Write the mask again.'} With --on-invalid worst it counts as the worst answer.",
                    ) from problem
                with explained_refusals(folder, "the parts of the run cannot be written"):
                    write_part(made, path)
            paths[i, f] = path
            invalid += [(slide.case, model, fold, why) for model, why in made.invalid.items()]
            if progress is not None:
                progress("slides and folds read", i * len(folds) + f + 1, len(slides) * len(folds))
    return VoteParts(paths=paths, resumed=resumed, invalid=tuple(invalid))
