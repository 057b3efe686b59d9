"""The entries of a ranking from one zip with the published predictions of a challenge."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elsewhere.analysis.ranking.entries import Entries, EntryOptions, entries_from_files
from elsewhere.analysis.ranking.submissions import Failure
from elsewhere.analysis.result.inputs import as_cohort
from elsewhere.cohort import Cohort, read_cohort
from elsewhere.errors import UserError
from elsewhere.predictions.dbtex_zip import read_published, unpack
from elsewhere.tables import TableOptions
from elsewhere.tables.identifiers import note_source
from elsewhere.untrusted import printable

ARCHIVE_TASK = "detection"
"""The task of the archives that are read: the public zip of the DBTex challenge."""


@dataclass(frozen=True, kw_only=True)
class ArchiveEntries:
    """The entries of an archive.

    Attributes:
        entries: The models, and those that could not be scored.
        phase: The phase of the challenge.
        split: The split.
    """

    entries: Entries
    phase: int
    split: str


def published_truth(cohort: str | Path, options: TableOptions, *, volumes: bool = False) -> Cohort:
    """Open the truth of published predictions: a cohort, or the folder of the published tables as they are named.

    Args:
        cohort: A cohort folder or table, or a folder with `BCS-DBT-labels-test.csv`, its boxes, and other splits.
        options: How a text table is written.
        volumes: Whether the folder of the published tables is searched for the volumes.

    Returns:
        The cohort.

    Raises:
        UserError: It is neither, or a table cannot be read.
    """
    folder = Path(cohort)
    if folder.is_dir() and not (folder / "cohort.json").exists():
        names = [path.name.casefold() for path in folder.iterdir() if path.suffix.lower() == ".csv"]
        if any("labels" in name for name in names):
            return read_cohort("bcs-dbt", folder, volumes=volumes)
    return as_cohort(cohort, options)


def entries_from_archive(
    archive: str | Path,
    cohort: str | Path,
    options: EntryOptions,
    *,
    folder: Path,
    phase: int | None = None,
    split: str | None = None,
) -> ArchiveEntries:
    """Score the predictions of one phase and split of an archive, one entry per team.

    Args:
        archive: The zip, with files such as `phase1/test/TEAM.csv`.
        cohort: The cohort, or the folder of the published tables; where it has a column `split`, the cases of the
            same split are chosen.
        options: How the files are scored.
        folder: An empty folder to unpack into. It must stay until the entries are ranked.
        phase: The phase; None where the archive has only one.
        split: The split; None for that of `options.where`, or where the archive has only one.

    Returns:
        The entries; a team whose file cannot be read or scored is a failure and does not stop the others.

    Raises:
        UserError: The archive is none, or the choice is not unique; or `options.where` names another split.
    """
    note_source(archive)
    where = dict(options.where or {})
    if split is not None and where.get("split", split) != split:
        raise UserError(
            f"--split {split} and --where split={where['split']} contradict each other",
            fix="Give one of them.",
        )
    published = read_published(archive)
    chosen = published.choose(phase=phase, split=split or where.get("split"))
    first = chosen[0]
    who = published_truth(cohort, options.read.table, volumes=options.pictures is not None)
    if "split" in who.cases.columns:
        where["split"] = first.split
    paths: list[Path] = []
    failures: list[Failure] = []
    shown: dict[str, str] = {}
    teams: dict[str, str] = {}
    for one, made in unpack(published, chosen, folder):
        if isinstance(made, UserError):
            failures.append(Failure(model=one.team, why=str(made)))
            continue
        paths.append(made)
        shown[str(made)] = f"{Path(archive).name}: {printable(one.member)}"
        teams[made.stem] = one.team
    entries = Entries(ranked=(), failures=())
    if paths:
        with_team_names = dataclasses.replace(
            options, where=where, explain=lambda problem: _named(options.explain(problem), shown)
        )
        entries = entries_from_files(paths, who, with_team_names)
    ranked = [dataclasses.replace(one, name=teams[one.name]) for one in entries.ranked]
    failed = [dataclasses.replace(one, model=teams[Path(one.model).stem]) for one in entries.failures]
    return ArchiveEntries(
        entries=dataclasses.replace(
            entries,
            ranked=tuple(ranked),
            failures=(*failed, *failures),
            notes=(*entries.notes, *published.notes),
        ),
        phase=first.phase,
        split=first.split,
    )


def _named(text: str, shown: Mapping[str, str]) -> str:
    """A reason, with the names in the archive in place of those of the unpacked files."""
    for path, name in shown.items():
        text = text.replace(path, name)
    return text
