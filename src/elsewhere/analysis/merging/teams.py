"""The files of a merge: one per team for the volumes that the setting is chosen on, and those that are reported on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from elsewhere.analysis.ranking.submissions import Failure, check_entry, entries_of
from elsewhere.analysis.result.inputs import Progress, as_cohort, as_predictions
from elsewhere.analysis.result.names import names_of
from elsewhere.analysis.result.part import Part, choose_part
from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions import Predictions, ReadOptions
from elsewhere.predictions.boxes import read_boxes
from elsewhere.scoring.detection.tables import id_warnings
from elsewhere.tables.identifiers import note_source

VALIDATION, TEST = "validation", "test"
"""The two roles of a cohort in a merge, and the folders of the published predictions."""
FEWEST = 2


@dataclass(frozen=True, kw_only=True)
class TeamFile:
    """The files of one team.

    Args:
        name: The team.
        files: Its file for each role; the same file where it holds the boxes of both.
    """

    name: str
    files: Mapping[str, Path]


@dataclass(frozen=True, kw_only=True)
class ReadTeams:
    """The boxes of every team that could be read.

    Args:
        boxes: By role and team.
        failures: The teams that could not be read, with the reason.
        warnings: What a reader must know, without ids.
        digests: The digests of each team's files.
    """

    boxes: Mapping[str, Mapping[str, Predictions]]
    failures: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()
    digests: Mapping[str, Sequence[str]] = field(default_factory=dict)


def find_parts(
    cohort: str | Path | Cohort | None,
    report_on: str | Path | Cohort | None,
    where: Mapping[str, str] | None,
    options: ReadOptions,
) -> tuple[Part | None, Part | None]:
    """Open the volumes that the setting is chosen on, and those that are reported on.

    Args:
        cohort: The cohort to choose on; None for none.
        report_on: Another cohort, or COLUMN=VALUE for the cases of `cohort` with this value; None for none.
        where: Only cases of `cohort` whose columns have these values.
        options: How a text table is written.

    Returns:
        Both parts; None where there is none.

    Raises:
        UserError: A cohort cannot be read, the two share a volume, or an option lacks the one that it needs.
    """
    if cohort is None:
        if report_on is not None or where:
            raise UserError(
                "--report-on and --where need the cohort that the setting is chosen on",
                fix="Add --cohort COHORT; or leave them out, with --setting published, to merge without any truth.",
            )
        return None, None
    first = choose_part(as_cohort(cohort, options.table), where)
    if report_on is None:
        return first, None
    column, sign, value = (
        (piece.strip() for piece in str(report_on).partition("="))
        if isinstance(report_on, str | Path)
        else ("", "", "")
    )
    if sign and not Path(str(report_on)).exists():
        if not where:
            raise UserError(
                f"it is not known which cases choose the setting, since --report-on {report_on} is a part of the cohort",
                fix="Add e.g. --where split=validation.",
            )
        second = choose_part(first.whole, {column: value})
    else:
        other = report_on if isinstance(report_on, Cohort) else Path(str(report_on))
        second = choose_part(as_cohort(other, options.table), None)
    shared = set(first.cohort.cases["case_id"].astype(str)) & set(second.cohort.cases["case_id"].astype(str))
    if shared:
        raise UserError(
            f"{len(shared)} volumes are in both cohorts: what chose the setting cannot judge it",
            where="--cohort and --report-on",
            fix="Report on volumes that had no part in the choice, of other patients.",
        )
    return first, second


def find_team_files(
    files: Sequence[Path], test_files: Sequence[Path], *, both: bool
) -> tuple[list[TeamFile], list[str]]:
    """Pair the files of each team.

    Args:
        files: Prediction files, or one folder of them, or one folder with `validation/` and `test/` of the same names.
        test_files: Files of the volumes that are reported on, or one folder of them, with the same names; empty
            where the files hold both.
        both: Whether volumes are reported on.

    Returns:
        The teams, and a warning for those that have only one of two files.

    Raises:
        UserError: Two files have one name, or no team has both files.
    """
    if not test_files and len(files) == 1 and (files[0] / VALIDATION).is_dir() and (files[0] / TEST).is_dir():
        files, test_files = [files[0] / VALIDATION], [files[0] / TEST] if both else []
    elif test_files and not both:
        raise UserError(
            "--test-predictions without the cohort that they are about", fix="Add --report-on TEST_COHORT."
        )
    chosen = _named(files)
    if not both or not test_files:
        return [
            TeamFile(name=name, files={VALIDATION: path, TEST: path}) for name, path in chosen.items()
        ], []
    reported = _named(test_files)
    teams = [
        TeamFile(name=name, files={VALIDATION: path, TEST: reported[name]})
        for name, path in chosen.items()
        if name in reported
    ]
    lone = sorted(set(chosen) ^ set(reported))
    if not teams:
        raise UserError(
            "no team has a file in both sets of predictions",
            fix=f"Files of one team have one name. The first names: {', '.join(list(chosen)[:4])}; for the test: "
            f"{', '.join(list(reported)[:4])}.",
        )
    warnings = []
    if lone:
        warnings.append(
            f"{len(lone)} teams have a file in only one of the two sets and are left out: {', '.join(lone)}."
        )
    return teams, warnings


def _named(given: Sequence[Path]) -> dict[str, Path]:
    for path in given:
        if len(given) == 1 and not path.exists():
            raise UserError("there is no such file or folder", where=str(path))
    paths = entries_of(given)
    for path in paths:
        check_entry(path, given)
    stems = [path.stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else names_of(paths)
    return dict(zip(names, paths, strict=True))


def read_teams(
    teams: Sequence[TeamFile],
    parts: Mapping[str, Part | None],
    options: ReadOptions,
    *,
    explain: Callable[[UserError], str] = str,
    progress: Progress | None = None,
) -> ReadTeams:
    """Read the boxes of every team in the volumes of every role.

    Rows of volumes that only the other role lists are left out. A team whose file cannot be read does not stop the
    others.

    Args:
        teams: The files of each team.
        parts: The volumes of each role; None for predictions without a cohort.
        options: How a file is read.
        explain: Puts the reason of a failure into words.
        progress: Called after each team.

    Returns:
        The boxes, and the teams that could not be read.

    Raises:
        UserError: Fewer than two teams could be read.
    """
    boxes: dict[str, dict[str, Predictions]] = {role: {} for role in parts}
    failures: list[Failure] = []
    warnings: list[str] = []
    digests: dict[str, list[str]] = {}
    for number, team in enumerate(teams):
        found: dict[str, Predictions] = {}
        try:
            for role, part in parts.items():
                note_source(team.files[role])
                other = [p.cohort for name, p in parts.items() if name != role and p is not None]
                found[role] = _read_one(team.files[role], part, other, options)
        except UserError as problem:
            failures.append(
                Failure(model=team.name, why=explain(problem), path=team.files[role], options=options)
            )
            continue
        digests[team.name] = list(dict.fromkeys(said.digest for said in found.values()))
        for role, said in found.items():
            boxes[role][team.name] = said
            warnings += [f"{team.name}: {text}" for text in said.warnings]
        if progress:
            progress("reading", number + 1, len(teams))
    if len(next(iter(boxes.values()))) < FEWEST:
        reasons = "; ".join(f"{one.model}: {one.why}" for one in failures)
        raise UserError(
            f"{len(next(iter(boxes.values())))} of {len(teams)} teams can be merged, and two are needed",
            fix=reasons or "Give the prediction files of two teams or more, or a folder of them.",
        )
    return ReadTeams(
        boxes=boxes, failures=tuple(failures), warnings=tuple(dict.fromkeys(warnings)), digests=digests
    )


def _read_one(path: Path, part: Part | None, others: Sequence[Cohort], options: ReadOptions) -> Predictions:
    if part is None:
        return read_boxes(path, options)
    said = part.predictions(as_predictions("detection", path, options, part.whole))
    said = _without(said, others)
    cases = part.cohort.cases.assign(case_id=part.cohort.cases["case_id"].astype("string"))
    found = id_warnings(cases, said.table, source=said.source) if len(said.table) else []
    return replace(said, warnings=(*said.warnings, *found))


def _without(said: Predictions, others: Sequence[Cohort]) -> Predictions:
    """Leave out the rows of volumes that another role lists."""
    for other in others:
        strange = said.table["case_id"].isin(other.cases["case_id"].astype("string")).to_numpy(dtype=bool)
        if strange.any():
            said = replace(said, table=said.table.loc[~strange].reset_index(drop=True))
    return said
