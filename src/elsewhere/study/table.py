"""The study table: the cohorts of a study joined, one row per case, with what no split may part.

It is built before anything is trained, and everything that would spoil a number later stops or is counted here: empty
patient ids (US-02), missing pictures and phases, near-duplicates (US-30). A study has a part for each source that its
methods read: pictures and volumes have labels of their own, and no scenario crosses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.cohort.label_scheme import LabelScheme
from elsewhere.errors import UserError
from elsewhere.inputs import Cases
from elsewhere.inputs.source import Source
from elsewhere.registry import Registry
from elsewhere.study.cohorts import merged_cohort, read_cohorts, rows_with_paths
from elsewhere.study.file import StudyFile
from elsewhere.study.pictures import Report


@dataclass(frozen=True, kw_only=True)
class StudyTable:
    """What a study knows of its cases, or of those that one source reads.

    Args:
        source: The name of the source of a part; '' of a study with several.
        frame: One row per case: case ('DATASET/case_id'), dataset, case_id, patient, group (what no split may part),
            label, site, and what the source's cohorts tell beside.
        datasets: In the order of the study file.
        cases: What training sees of the cases.
        sources: Where their pixels are read, by the source's name.
        audit: What was checked.
        cohort: What predictions are scored against.
        label_scheme: What the labels of a part are called; None for a study with several parts.
        parts: The parts of a study with several.
        also: Case -> her patient's id in another set, where a table tells it.
        pixels: Case -> what is the same under another name or header.
        without_box: Lesions without a box: their crop is the whole picture (US-13).
    """

    source: str
    frame: pd.DataFrame
    datasets: tuple[str, ...]
    cases: Cases
    sources: Mapping[str, Source]
    audit: dict[str, Any]
    cohort: Cohort
    label_scheme: LabelScheme | None = None
    parts: tuple[StudyTable, ...] = ()
    also: Mapping[str, str] = field(default_factory=dict)
    pixels: Mapping[str, str] = field(default_factory=dict)
    without_box: frozenset[str] = frozenset()

    @property
    def each(self) -> tuple[StudyTable, ...]:
        """Its parts; a table of one source is its own part."""
        return self.parts or (self,)

    def fallbacks(self, names: tuple[str, ...]) -> int:
        """Count the cases that are lesions without a box: their crop is the whole image (US-13).

        Args:
            names: The study's names of the cases to look at.

        Returns:
            How many of them have no box.
        """
        return sum(name in self.without_box for name in names)


@dataclass(frozen=True, kw_only=True)
class PartBuilder:
    """How the part of a source is built.

    Args:
        source: The source's name.
        build: Joins cohorts: `build(file, cohorts, cache=..., progress=...)`.
        fits: Whether a cohort is of this source; asked where a study has several.
    """

    source: str
    build: Callable[..., StudyTable]
    fits: Callable[[Cohort], bool]


parts: Registry[PartBuilder] = Registry(
    "part of a study",
    group="elsewhere.study_parts",
    builtin_modules=("elsewhere.study.picture_part", "elsewhere.study.volume_part"),
)
"""Sources whose cases are joined by rules of their own; all others are joined by `elsewhere.study.plain_part`."""


def part_builder(source: str) -> PartBuilder:
    """Find how the part of a source is built.

    Args:
        source: The name of a source.

    Returns:
        The source's own builder, else the one for sources without rules of their own.
    """
    if source in parts:
        return parts.get(source)
    from elsewhere.study.plain_part import plain_part

    return plain_part(source)


def build_table(file: StudyFile, *, cache: Path | None = None, progress: Report | None = None) -> StudyTable:
    """Read the cohorts of a study and join them.

    Args:
        file: The study.
        cache: A folder for what is slow to find out.
        progress: Called with what is done, how much, and how much there is.

    Returns:
        The table, with a part for each source that the study's methods read.

    Raises:
        UserError: A cohort cannot be used; nothing was trained.
    """
    from elsewhere.study.methods import sources_of

    cohorts = read_cohorts(file, cache=cache, progress=progress)
    builders = [part_builder(name) for name in sources_of(file.study)]
    if len(builders) == 1:
        return builders[0].build(file, cohorts, cache=cache, progress=progress)
    made = []
    for builder in builders:
        own = {name: cohort for name, cohort in cohorts.items() if builder.fits(cohort)}
        if not own:
            raise UserError(
                f"no cohort of the study has what the source '{builder.source}' reads",
                where=str(file.path),
                fix="Add such a [[cohort]], or leave out the methods that read it.",
            )
        made.append(builder.build(file, own, cache=cache, progress=progress))
    used = {name for part in made for name in part.datasets}
    unused = [
        name for name, cohort in cohorts.items() if not used & set(map(str, cohort.cases["dataset"].unique()))
    ]
    if unused and file.study.scenarios.by == "dataset":
        raise UserError(
            f"no method of the study reads the cohort '{unused[0]}'",
            where=str(file.path),
            fix="Leave it out, or add a method that reads its pixels.",
        )
    return joined_parts(made)


def joined_parts(made: Sequence[StudyTable]) -> StudyTable:
    """Join the parts of a study with several sources.

    Args:
        made: The parts; no dataset may stand in two.

    Returns:
        One table, which holds them as its `parts`.
    """
    named = _unique_ids(made)
    frame = pd.concat([part.frame for part in named], ignore_index=True)
    rows = pd.concat([rows_with_paths(part.cohort) for part in named], ignore_index=True)
    cohort = merged_cohort([part.cohort for part in named], rows)
    return StudyTable(
        source="",
        frame=frame,
        datasets=tuple(name for part in named for name in part.datasets),
        cases=_joined_cases([part.cases for part in named]),
        sources={name: source for part in named for name, source in part.sources.items()},
        audit=_joined_audits(named),
        cohort=cohort,
        parts=tuple(named),
        also={case: name for part in named for case, name in part.also.items()},
        pixels={case: digest for part in named for case, digest in part.pixels.items()},
        without_box=frozenset().union(*(part.without_box for part in named)),
    )


def _unique_ids(made: Sequence[StudyTable]) -> list[StudyTable]:
    """Ids that two parts share get their dataset's name in front, since predictions are joined by id alone."""
    seen: set[str] = set()
    found = []
    for part in made:
        ids = part.frame["case_id"].astype("str")
        shared = set(ids) & seen
        if shared:
            new = part.frame["dataset"].astype("str") + "_" + ids
            spelt = dict(zip(ids[ids.isin(shared)], new[ids.isin(shared)], strict=True))
            held = part.cohort.cases["case_id"].astype("str")
            cases = part.cohort.cases.assign(case_id=held.map(spelt).fillna(held))
            part = replace(
                part,
                frame=part.frame.assign(case_id=ids.map(spelt).fillna(ids)),
                cohort=replace(merged_cohort([part.cohort], cases), root=part.cohort.root),
            )
        seen |= set(part.frame["case_id"].astype("str"))
        found.append(part)
    return found


def _joined_cases(made: Sequence[Cases]) -> Cases:
    """The cases of all parts; a part that does not know groups or masks has each case as its own group."""
    columns = list(dict.fromkeys(name for cases in made for name in cases.clinical))
    return Cases(
        case=tuple(name for cases in made for name in cases.case),
        dataset=tuple(name for cases in made for name in cases.dataset),
        label=np.concatenate([cases.label for cases in made]),
        box=np.concatenate([cases.box for cases in made]),
        digest=tuple(digest for cases in made for digest in cases.digest),
        mask_digest=tuple(digest for cases in made for digest in (cases.mask_digest or ("",) * len(cases))),
        group=tuple(group for cases in made for group in (cases.group or cases.case)),
        clinical={
            name: tuple(value for cases in made for value in cases.clinical.get(name, (None,) * len(cases)))
            for name in columns
        },
    )


def _joined_audits(made: Sequence[StudyTable]) -> dict[str, Any]:
    held = [part.audit for part in made]
    counts: dict[str, Any] = {}
    for audit in held:
        for name, count in audit["duplicates"].get("counts", {}).items():
            counts[name] = counts.get(name, 0) + count if isinstance(count, int) else count
    duplicates: dict[str, Any] = {
        "kept_together": all(audit["duplicates"]["kept_together"] for audit in held),
        "by_source": {part.source: part.audit["duplicates"] for part in made},
    }
    return {
        "ids": held[0]["ids"],
        "publication": held[0]["publication"],
        "cohorts": {name: about for audit in held for name, about in audit["cohorts"].items()},
        "left_out": [row for audit in held for row in audit["left_out"]],
        "duplicates": duplicates | ({"counts": counts} if counts else {}),
        "warnings": list(dict.fromkeys(word for audit in held for word in audit["warnings"])),
    }
