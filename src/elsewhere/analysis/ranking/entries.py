"""The entries of a ranking: results that exist, or prediction files that are scored here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elsewhere.analysis.ranking.submissions import Failure, check_entry, entries_of
from elsewhere.analysis.result.assessment import Assessment, ids_of, ids_of_result
from elsewhere.analysis.result.comparison import aligned, options_of, same_cases
from elsewhere.analysis.result.detection_pictures import PictureOptions, PictureVolumes, picture_volumes
from elsewhere.analysis.result.inputs import CohortLike, Progress, as_cohort, as_predictions, choose_protocol
from elsewhere.analysis.result.model_boxes import ModelBoxes, model_boxes
from elsewhere.analysis.result.names import names_of
from elsewhere.analysis.result.part import choose_part
from elsewhere.analysis.result.storage import load_assessment
from elsewhere.errors import UserError
from elsewhere.predictions import ReadOptions
from elsewhere.scoring.detection.hit_rule_map import ModelUnderRules, score_under_rules
from elsewhere.scoring.detection.hit_rules import HitRules
from elsewhere.scoring.prepared import Prepared, prepare
from elsewhere.scoring.task import ScoreOptions, tasks
from elsewhere.tables.identifiers import note_source


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One model of a ranking.

    Attributes:
        name: Its name in the ranking.
        ready: Its scores, prepared for statistics.
        digest: The digest of its predictions; None where it is not known.
        under_rules: Its values under other hit rules; None where they were not asked for.
        boxes: Its boxes, for pictures; None where they were not asked for.
    """

    name: str
    ready: Prepared
    digest: str | None
    under_rules: ModelUnderRules | None = None
    boxes: ModelBoxes | None = None


@dataclass(frozen=True, kw_only=True)
class Entries:
    """All models of a ranking, and those that could not be scored.

    Attributes:
        ranked: The models that can be ranked.
        failures: The others, with reasons that may name cases and files.
        key: The hash of the cohort.
        counts: The numbers of cases and patients of the cohort.
        ids: Every id that must not be shared.
        where: The columns and values that chose the cases.
        reader: The reader of the cohort, where files were scored.
        synthetic: Whether the cohort is synthetic.
        notes: What was not read, as sentences.
        volumes: The volumes of the cohort, for pictures; None where they were not asked for.
    """

    ranked: tuple[Entry, ...]
    failures: tuple[Failure, ...]
    key: str = ""
    counts: dict[str, Any] = field(default_factory=dict)
    ids: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    reader: str = ""
    synthetic: bool = False
    notes: tuple[str, ...] = ()
    volumes: PictureVolumes | None = None

    def first(self) -> Entry:
        """Return the first model that can be ranked; all others have its cases and protocol.

        Returns:
            The entry.

        Raises:
            UserError: If no model could be scored; the message lists the reasons.
        """
        if not self.ranked:
            reasons = "; ".join(f"{f.model}: {f.why}" for f in self.failures)
            raise UserError(
                "no model could be scored",
                fix=reasons or "Give result folders, or prediction files with --cohort and --task.",
            )
        return self.ranked[0]


@dataclass(frozen=True, kw_only=True)
class EntryOptions:
    """How prediction files of a ranking are scored.

    Attributes:
        task: Their task.
        protocol: The protocol; None for the one that belongs to the cohort's reader.
        where: Columns with the values that choose the cases; None for all cases.
        read: How a file is read.
        scoring: What may be set in addition to the protocol.
        explain: Puts the reason of a failure into words.
        progress: Called to report how many files are scored; None for no report.
        hit_rules: The hit rules under which detections are scored too; None for the protocol's own alone.
        pictures: Which lesions and false positives are pictured; None for none.
    """

    task: str
    protocol: str | None = None
    where: Mapping[str, str] | None = None
    read: ReadOptions = field(default_factory=ReadOptions)
    scoring: ScoreOptions = field(default_factory=ScoreOptions)
    explain: Callable[[UserError], str] = str
    progress: Progress | None = None
    hit_rules: HitRules | None = None
    pictures: PictureOptions | None = None


def entries_from_results(results: Sequence[str | Path | Assessment]) -> Entries:
    """Take entries from results that exist.

    Args:
        results: Result folders, or results.

    Returns:
        The results of the cohort that most of them are of; the others are failures.
    """
    names = names_of([Path("." if isinstance(item, Assessment) else item) for item in results])
    loaded: list[tuple[str, Assessment]] = []
    failures: list[Failure] = []
    for i, item in enumerate(results):
        if isinstance(item, Assessment):
            loaded.append((item.path.name if item.path else f"model {i + 1}", item))
            continue
        note_source(item)
        try:
            loaded.append((names[i], load_assessment(item)))
        except UserError as problem:
            failures.append(Failure(model=names[i], why=str(problem)))
    if not loaded:
        return Entries(ranked=(), failures=tuple(failures))
    hashes = [result.provenance["cohort_hash"] for _, result in loaded]
    usual = max(dict.fromkeys(hashes), key=hashes.count)
    reference = loaded[hashes.index(usual)][1]
    entries = []
    ids: dict[str, None] = {}
    for name, result in loaded:
        ids |= dict.fromkeys(ids_of_result(result))
        try:
            same_cases(reference, result)
            ready = prepare(aligned(reference, result).scores, options_of(result))
        except UserError as problem:
            failures.append(Failure(model=name, why=str(problem)))
            continue
        entries.append(Entry(name=name, ready=ready, digest=result.provenance.get("predictions_digest")))
    return Entries(
        ranked=tuple(entries),
        failures=tuple(failures),
        key=reference.provenance["cohort_hash"],
        counts={k: reference.summary["counts"][k] for k in ("cases", "patients")},
        ids=tuple(ids),
    )


def entries_from_files(files: Sequence[str | Path], cohort: CohortLike, options: EntryOptions) -> Entries:
    """Score prediction files, one entry per file.

    Args:
        files: Prediction files or folders; a single folder stands for everything in it.
        cohort: The cohort.
        options: How the files are scored.

    Returns:
        The entries; a file that cannot be scored is a failure and does not stop the others.

    Raises:
        UserError: If the cohort, the task or the protocol is not usable.
    """
    task = tasks.get(options.task)
    part = choose_part(as_cohort(cohort, options.read.table), options.where)
    who = part.cohort
    rules = choose_protocol(task, options.protocol, who.reader)
    if options.hit_rules is not None and task.name != "detection":
        raise UserError(
            f"hit rules are those of detection, and the task is {task.name}",
            where="--hit-rules",
            fix="Leave --hit-rules out, or rank detections.",
        )
    volumes = None if options.pictures is None else picture_volumes(task.name, who, options.pictures)
    given = [Path(item) for item in files]
    paths = entries_of(given)
    names = names_of(paths)
    entries: list[Entry] = []
    failures: list[Failure] = []
    for number, path in enumerate(paths):
        note_source(path)
        try:
            check_entry(path, given)
            said = part.predictions(as_predictions(options.task, path, options.read, part.whole))
            scores = task.score(who, said, rules, options.scoring)
            ready = prepare(scores, options.scoring)
            boxes = None if volumes is None else model_boxes(scores, who, said, options.scoring)
            under = None
            if options.hit_rules is not None:
                under = score_under_rules(who, said, rules, options.scoring, options.hit_rules)
            entries.append(
                Entry(name=names[number], ready=ready, digest=said.digest, under_rules=under, boxes=boxes)
            )
        except UserError as problem:
            why = options.explain(problem)
            failures.append(Failure(model=path.name, why=why, path=path, options=options.read))
        if options.progress:
            options.progress("scoring", number + 1, len(paths))
    first = entries[0].ready if entries else None
    return Entries(
        ranked=tuple(entries),
        failures=tuple(failures),
        key=who.hash,
        counts={
            "cases": len(first.scores.cases) if first else 0,
            "patients": first.partition.n_clusters if first else 0,
        },
        ids=ids_of(first.scores) if first else (),
        where=dict(part.where),
        reader=who.reader,
        synthetic=bool(who.synthetic),
        volumes=volumes,
    )
