"""The published predictions of the DBTex challenge: one zip with a csv per team, phase and split.

The archive holds `phase1/test/TEAM.csv`, `phase2/validation/TEAM.csv` and so on. Folders around this layout, letter case
and blanks do not matter. What is not such a file is counted and not read: what a Mac adds (`__MACOSX`, `._NAME`,
`.DS_Store`), archives inside the archive, files elsewhere or with another ending. A team with two different files in one
place is not guessed: it is reported. Nothing is unpacked under a name of the archive's choice, and a name that leads out of
the archive is a reason to read none of it.
"""

from __future__ import annotations

import errno
import re
import stat
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from elsewhere.errors import UserError
from elsewhere.files.limits import (
    DAMAGED_ARCHIVE,
    MOST_RATIO,
    RATIO_FROM,
    check_size,
    human_bytes,
    size_limit,
)
from elsewhere.untrusted import check_plain_file, printable

_SPLITS = {
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "test": "test",
    "testing": "test",
    "train": "train",
    "training": "train",
}
_PHASE = re.compile(r"phase[ _-]?([0-9]{1,3})", re.IGNORECASE)
_OUTSIDE = re.compile(r"^[a-zA-Z]:|^[/\\]|(^|[/\\])\.\.([/\\]|$)")
_OF_A_MAC = re.compile(r"(^|/)(__MACOSX(/|$)|\._|\.DS_Store$)|(^|/)(Thumbs\.db|desktop\.ini)$", re.IGNORECASE)
_COPY = re.compile(r"[ _-]*(\([0-9]+\)|- copy|copy)$", re.IGNORECASE)
"""What browsers and systems append to the name of a second copy."""
_ARCHIVES = (".zip", ".gz", ".tar", ".tgz", ".bz2", ".xz", ".7z", ".rar")
_MOST_MEMBERS = 20_000
_MOST_DIRECTORY_BYTES = 16 << 20
_END, _END_64, _LOCATOR_64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """The predictions of one team in one phase and split.

    Attributes:
        team: The name of the file without its ending.
        phase: The phase of the challenge.
        split: `validation`, `test` or `train`.
        member: The name in the archive.
        others: Further files of the same team, phase and split with other content; with any, none is read.
    """

    team: str
    phase: int
    split: str
    member: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PublishedPredictions:
    """What an archive of published predictions holds.

    Attributes:
        path: The archive.
        files: The predictions, sorted by phase, split and team.
        notes: What is not read and why, as sentences with counts.
    """

    path: Path
    files: tuple[PublishedFile, ...]
    notes: tuple[str, ...] = field(default=())

    def choose(self, *, phase: int | None = None, split: str | None = None) -> tuple[PublishedFile, ...]:
        """Choose the files of one phase and split.

        Args:
            phase: The phase; None where the archive has only one for the split.
            split: The split; None where the archive has only one for the phase.

        Returns:
            The files.

        Raises:
            UserError: There are none, or more than one phase or split is left.
        """
        left = [one for one in self.files if phase in (None, one.phase) and split in (None, one.split)]
        places = sorted({(one.phase, one.split) for one in left})
        if len(places) == 1:
            return tuple(left)
        counts = Counter((one.phase, one.split) for one in self.files)
        listed = ", ".join(f"phase {p} {s} ({n} files)" for (p, s), n in sorted(counts.items()))
        if not places:
            asked = " ".join(filter(None, [f"phase {phase}" if phase is not None else "", split or ""]))
            raise UserError(
                f"the archive has no predictions of {asked}" if asked else "the archive has no predictions",
                where=str(self.path),
                fix=f"It has {listed}."
                if listed
                else f"Expected: phase1/test/TEAM.csv. {' '.join(self.notes)}",
            )
        raise UserError(
            "the archive has predictions of several phases or splits",
            where=str(self.path),
            fix=f"Choose with --phase and --split: {listed}.",
        )


def is_archive(path: str | Path) -> bool:
    """Recognise an archive of predictions by its name.

    Args:
        path: A file.

    Returns:
        Whether its name ends with `.zip` and it is no folder.

    Example:
        >>> is_archive("team_predictions_bothphases.zip"), is_archive("team.csv")
        (True, False)
    """
    path = Path(path)
    return path.suffix.lower() == ".zip" and not path.is_dir()


def read_published(path: str | Path) -> PublishedPredictions:
    """List the predictions in an archive, without unpacking any.

    Args:
        path: The zip archive.

    Returns:
        Its files, and what is not read.

    Raises:
        UserError: It is no zip archive or a damaged one, holds too many files, or a name leads out of it.
    """
    path = Path(path)
    check_size(check_plain_file(path, what="archive").st_size, "the archive has", where=path)
    with _opened(path) as archive:
        members = archive.infolist()
    if len(members) > _MOST_MEMBERS:
        raise UserError(
            f"the archive holds {len(members):,} files; at most {_MOST_MEMBERS:,} are listed",
            where=str(path),
            fix="Check that this is the archive of the teams' predictions.",
        )
    climbing = [one.filename for one in members if _OUTSIDE.search(one.filename)]
    if climbing:
        raise UserError(
            f"{len(climbing)} names in the archive lead out of it, for example '{printable(climbing[0])[:80]}'",
            where=str(path),
            fix="The published archive has no such names: download it again, and read none of this one.",
        )
    return _sorted_out(path, members)


def _sorted_out(path: Path, members: Sequence[zipfile.ZipInfo]) -> PublishedPredictions:
    found: dict[tuple[int, str, str], list[zipfile.ZipInfo]] = {}
    skipped: Counter[str] = Counter()
    for member in members:
        name = member.filename.replace("\\", "/")
        if _OF_A_MAC.search(name):
            skipped["added by the operating system"] += not member.is_dir()
            continue
        if member.is_dir():
            continue
        place = _place(name)
        if stat.S_ISLNK(member.external_attr >> 16):
            skipped["links"] += 1
        elif name.lower().endswith(_ARCHIVES):
            skipped["archives inside the archive"] += 1
        elif place is None:
            skipped["outside of folders such as phase1/test"] += 1
        elif not name.lower().endswith(".csv"):
            skipped["not csv files"] += 1
        else:
            found.setdefault((*place, _plain(_team(name))), []).append(member)
    files = []
    repeated = 0
    for (phase, split, _), same in sorted(found.items(), key=lambda item: item[0]):
        different = list({(one.CRC, one.file_size): one for one in reversed(same)}.values())[::-1]
        repeated += len(same) - len(different)
        first = different[0]
        files.append(
            PublishedFile(
                team=_team(first.filename),
                phase=phase,
                split=split,
                member=first.filename,
                others=tuple(one.filename for one in different[1:]),
            )
        )
    if repeated:
        skipped["repetitions of a team's file with the same content"] += repeated
    notes = [
        f"Not read in the archive: {count} file{'s' if count > 1 else ''} ({why})."
        for why, count in skipped.items()
        if count
    ]
    return PublishedPredictions(path=path, files=tuple(files), notes=tuple(notes))


def _place(name: str) -> tuple[int, str] | None:
    """The phase and the split that the folders of a file name, in this order."""
    folders = [part.strip() for part in PurePosixPath(name).parts[:-1]]
    for at, folder in enumerate(folders):
        phase = _PHASE.fullmatch(folder)
        if phase is None:
            continue
        splits = [_SPLITS[one.lower()] for one in folders[at + 1 :] if one.lower() in _SPLITS]
        return (int(phase[1]), splits[0]) if splits else None
    return None


def _team(name: str) -> str:
    """The name of a team: its file's name, or its folder's where a folder stands below the split."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    below = [at for at, part in enumerate(parts[:-1]) if part.strip().lower() in _SPLITS]
    inside = parts[below[-1] + 1 : -1] if below else ()
    return printable(inside[0] if inside else PurePosixPath(parts[-1]).stem).strip()


def _plain(team: str) -> str:
    once = _COPY.sub("", team)
    return re.sub(r"[^\w]+|_", "", once).casefold() or team


def unpack(
    published: PublishedPredictions, files: Sequence[PublishedFile], folder: Path
) -> Iterator[tuple[PublishedFile, Path | UserError]]:
    """Unpack chosen files into a folder, under names of our own.

    Args:
        published: The archive.
        files: The files, as `choose` returned them.
        folder: An empty folder.

    Yields:
        Each file with its path, or with the error for which it cannot be read.

    Raises:
        UserError: Together they unpack to more than the limit of size, or the archive is damaged.
    """
    path = published.path
    with _opened(path) as archive:
        infos = {one.member: archive.getinfo(one.member) for one in files}
        total = sum(info.file_size for info in infos.values())
        packed = sum(info.compress_size for info in infos.values())
        check_size(total, "the chosen files unpack to", where=path)
        if total > RATIO_FROM and total > MOST_RATIO * packed:
            raise UserError(
                f"the chosen files unpack to {human_bytes(total)}, more than {MOST_RATIO:g} times their size",
                where=str(path),
                fix="Boxes in csv files do not pack so well: check that this is the published archive.",
            )
        for number, one in enumerate(files):
            where = f"{path.name}: {printable(one.member)}"
            if one.others:
                names = ", ".join(printable(name) for name in (one.member, *one.others))
                yield (
                    one,
                    UserError(
                        f"{1 + len(one.others)} files with different content for one team: {names}",
                        where=path.name,
                        fix="Keep one of them in the archive; none was read.",
                    ),
                )
                continue
            target = folder / f"file{number:05d}.csv"
            try:
                _write(archive, infos[one.member], target)
            except UserError as problem:
                yield one, UserError(problem.what, where=where, fix=problem.fix)
            except DAMAGED_ARCHIVE as problem:
                yield one, UserError(f"the file in the archive is damaged ({problem})", where=where)
            except OSError as problem:
                if problem.errno != errno.EINVAL:  # what the archive states is no place in it
                    raise
                yield one, UserError(f"the file in the archive is damaged ({problem})", where=where)
            else:
                yield one, target


def _write(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    if info.flag_bits & 1:
        raise UserError("the file in the archive is encrypted", fix="Unpack the archive with its password.")
    left = min(info.file_size, size_limit())
    with archive.open(info) as source, target.open("xb") as out:
        while chunk := source.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                raise UserError("the file in the archive is larger than the archive states")
            out.write(chunk)


def _check_directory(path: Path) -> None:
    """Refuse a list of files that is itself a bomb, before it is read: its size stands at the archive's end."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 65_557 - 76))
        tail = file.read()
    end = tail.rfind(_END)
    if end < 0:
        return
    stated = [int.from_bytes(tail[end + 12 : end + 16], "little")]
    if tail[max(0, end - 20) : end].startswith(_LOCATOR_64):
        large = tail.rfind(_END_64, 0, end)
        stated = [int.from_bytes(tail[large + 40 : large + 48], "little") if large >= 0 else size]
    if max(stated) > _MOST_DIRECTORY_BYTES:
        raise UserError(
            f"the list of files in the archive takes {human_bytes(max(stated))}",
            where=str(path),
            fix="Check that this is the archive of the teams' predictions.",
        )


def _opened(path: Path) -> zipfile.ZipFile:
    _check_directory(path)
    try:
        return zipfile.ZipFile(path)
    except DAMAGED_ARCHIVE as problem:
        raise UserError(
            f"this is not a whole zip archive ({problem})",
            where=str(path),
            fix="Download it again: the published predictions are one zip with phase1/test/TEAM.csv inside.",
        ) from problem
