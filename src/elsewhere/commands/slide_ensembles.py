"""`slides ensemble`: masks of many models and folds voted to ensembles, scored and compared with random ones (LN-16)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.analysis.generalise.settings import parse_margins, parse_rule
from elsewhere.analysis.slide_ensembles.choice import ChoiceOptions, choose
from elsewhere.analysis.slide_ensembles.combine import (
    TIE_RULES,
    VoteOptions,
    combine,
    patch_table,
    stage_of_slides,
)
from elsewhere.analysis.slide_ensembles.members import MemberMasks, read_members
from elsewhere.analysis.slide_ensembles.parts import ReadingOptions, VoteParts, parts_folder, read_parts
from elsewhere.analysis.slide_ensembles.reading import SlideTruth, slide_truths
from elsewhere.analysis.slide_ensembles.summary import SHOWN_RATE, RunFacts, summarise
from elsewhere.analysis.slide_ensembles.writing import WrittenMasks, write_ensemble_masks
from elsewhere.cohort import Cohort, load_cohort
from elsewhere.commands.output import Report
from elsewhere.errors import EXIT_OK, UserError, check_seed, name_rows, unknown_name
from elsewhere.files import check_out
from elsewhere.predictions.stages import STAGES, normalise_stage
from elsewhere.report.page.numbers import format_number, p_value
from elsewhere.results import write_summary_folder
from elsewhere.scoring.slides.cases import slide_geometries
from elsewhere.statistics.bootstrap_weights import generator_for
from elsewhere.statistics.limits import check_alpha
from elsewhere.statistics.resampling import Resampling
from elsewhere.tables import file_digest, read_table
from elsewhere.tables.identifiers import remembers_ids

_SHOWN = 40
_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class EnsembleSettings:
    """The options of `slides ensemble` that have a usual value.

    Args:
        rule: The tie rule: 'strict', or 'mean-probability'.
        margins: The margins by which members are chosen: 'study', a number for both metrics, or METRIC=NUMBER.
        internal: COLUMN=VALUE of internal slides; None for the column `domain`.
        external: COLUMN=VALUE of external slides; None likewise.
        members: A table with `ensemble` and `model`, or 'study' for the members that the study prints; None to choose.
        scores: A table of patch scores on which members are chosen; None for patches of the masks themselves.
        random: How many random ensembles of each size; 0 for none.
        alpha: The level of each one-sided test that chooses members.
        resamples: Resamples of patients for the intervals; 0 for none.
        on_invalid: 'error', or 'worst' to count a mask that cannot be used as missing.
        masks_out: The folder of the ensembles' masks; None to write none.
        masks_of: The ensembles whose masks are written; empty for all.
        seed: The seed of every draw.
    """

    rule: str = "strict"
    margins: Sequence[str | float] = ("study",)
    internal: str | None = None
    external: str | None = None
    members: str | Path | None = None
    scores: str | Path | None = None
    random: int = 1000
    alpha: float = 0.05
    resamples: int = 1000
    on_invalid: str = "error"
    masks_out: str | Path | None = None
    masks_of: Sequence[str] = ()
    seed: int = 42


@dataclass(frozen=True, kw_only=True)
class EnsembleReport:
    """Ensembles of many models, scored.

    Args:
        summary: The content of summary.json; it names no slide and no patient.
        tables: The tables of the result, by the name of their file.
        path: The folder that was written; None where nothing was written.
        masks: The masks that were written; None where none were asked for.
        resumed: How many slides and folds an earlier run had read.
        exit_code: 0: many models have no single verdict.
    """

    summary: dict[str, Any]
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    path: Path | None = None
    masks: WrittenMasks | None = None
    resumed: int = 0
    exit_code: int = EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The summary; with `path` and `masks` where they were written.
        """
        out = dict(self.summary)
        if self.path is not None:
            out["path"] = str(self.path)
        if self.masks is not None:
            out["masks"] = {"folder": str(self.masks.folder), "files": self.masks.files}
        return out

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        counts, part = self.summary["counts"], self.summary["slide_ensembles"]
        yield (
            f"{counts['models']} models x {counts['folds']} folds on {counts['slides']} slides of {counts['patients']} patients: "
            f"{counts['masks']:,} masks, {counts['missing']:,} missing, {counts['invalid']:,} invalid"
        )
        if self.resumed:
            yield f"{self.resumed} of {counts['slides'] * counts['folds']} slides and folds were read by an earlier run"
        for metric, names in part["passing"].items():
            kind = "tumour" if metric == "dice" else "normal"
            yield f"pass on {kind} patches: {len(names)} of {counts['models']}: {', '.join(names) or 'none'}"
        random = {(row["kind"], row["name"]): row["rates"] for row in part["null"]}
        yield (
            "  name                      size  Dice   FPR      sensitivity  specificity  F1 (ITC left out / as negative)  "
            "p against random"
        )
        for row in _shown(part["rows"]):
            yield f"  {_line(row, random.get((row['kind'], row['name'])))}"
        for row in part["rows"]:
            if row["kind"] == "cross-fitted" and row.get("reason"):
                yield f"  {row['name']}, members chosen on other patients: NOT ASSESSED ({row['reason']})"
        for warning in self.summary["warnings"]:
            yield f"warning: {warning}"
        if self.masks is not None:
            yield f"written: {self.masks.files:,} masks in {self.masks.folder}"
        if self.path is not None:
            yield f"report: {self.path / 'report.html'}"


def _shown(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The best model, then all ensembles."""
    models = [row for row in rows if row["kind"] == "model"]
    best = max(models, key=lambda row: row["rates"][SHOWN_RATE]["value"] or -1.0)
    return [best, *(row for row in rows if row["kind"] != "model" and "rates" in row)][:_SHOWN]


def _line(row: Mapping[str, Any], random: Mapping[str, Any] | None) -> str:
    rates = row["rates"]

    def shown(name: str, digits: int = 3) -> str:
        return format_number(rates[name]["value"], digits)

    name = row["name"] + {"model": " (best model)", "cross-fitted": " *"}.get(row["kind"], "")
    size = row["size"]
    members = "+".join(map(str, size)) if isinstance(size, list) else str(size)
    text = (
        f"{name[:26]:26s} {members:>4s}  {shown('dice'):5s}  {shown('fpr', 4):7s}  "
        f"{shown('sensitivity_negative'):11s}  {shown('specificity_negative'):11s}  "
        f"{shown('f1_mean_left_out')} / {shown('f1_mean_negative'):5s}"
    )
    if random is not None:
        p = random[SHOWN_RATE]["p"]
        text += f"  {'undefined' if p is None else p_value(p)}"
    return text + ("  AND" if row["is_and"] else "")


@remembers_ids
def ensemble(
    cohort: str | Path | Cohort,
    masks: str | Path,
    *,
    settings: EnsembleSettings | None = None,
    out: str | Path | None = None,
    replace: bool = False,
    progress: Report | None = None,
) -> EnsembleReport:
    """Vote the masks of many models within each fold, and score every model and ensemble on slides (LN-16).

    Args:
        cohort: The slides with their truth: `stage`, `mask`, `microns_per_pixel`, and `domain` where members are chosen.
        masks: A folder MODEL/FOLD/<case_id>.tif, or a table with `case_id`, `model`, `fold` and `path`.
        settings: Rules and levels; None for the usual ones.
        out: The folder to write; None to write nothing. `<out>.parts` holds what is read until the run ends.
        replace: Whether an earlier result may be replaced.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The scored ensembles.

    Raises:
        UserError: The masks or the cohort cannot be used, or an option does not fit them.

    Example:
        Score the ensembles of a folder of masks::

            ensemble("slides.csv", "masks", out="ensembles")
    """
    chosen = settings or EnsembleSettings()
    options = _checked(chosen)
    inputs = [item for item in (cohort, masks, chosen.scores, chosen.members) if isinstance(item, str | Path)]
    check_out(out, replace=replace, inputs=inputs)
    members = read_members(masks)
    loaded = cohort if isinstance(cohort, Cohort) else load_cohort(cohort)
    cases = _cases(loaded)
    stages = _stages(cases)
    slides = slide_truths(loaded, stages, slide_geometries(loaded))
    rows = members.of([slide.case for slide in slides])
    if not rows:
        raise UserError(
            "no mask belongs to a slide of the cohort",
            where=str(masks),
            fix=f"Name the files as the cohort's case_id, such as {slides[0].case if slides else 'slide_001'}.tif.",
        )
    with _place(out) as place:
        parts = read_parts(
            place,
            slides,
            members.models,
            members.folds,
            rows,
            ReadingOptions(levels=chosen.rule == "mean-probability", worst=chosen.on_invalid == "worst"),
            progress=progress,
        )
        run = _Run(chosen, options, loaded, cases, stages, slides, members, rows, parts)
        return _combined(run, out, replace=replace, inputs=inputs, progress=progress)


@dataclass(frozen=True)
class _Run:
    """What a run reads, and how it is set."""

    settings: EnsembleSettings
    options: ChoiceOptions
    cohort: Cohort
    cases: pd.DataFrame
    stages: list[str | None]
    slides: list[SlideTruth]
    members: MemberMasks
    rows: Mapping[tuple[str, str, str], pd.Series]
    parts: VoteParts


def _combined(
    run: _Run, out: str | Path | None, *, replace: bool, inputs: Sequence[Any], progress: Report | None
) -> EnsembleReport:
    settings, members, parts = run.settings, run.members, run.parts
    models, folds = members.models, members.folds
    truth = stage_of_slides(parts, run.stages)
    if (truth < 0).all():
        raise UserError(
            "no slide has a true stage",
            fix="Add a column stage (negative, itc, micro, macro), or truth masks.",
        )
    _check_rule(run)
    from_masks = patch_table(parts, [slide.case for slide in run.slides], models, folds)
    scores = from_masks
    if settings.scores is not None:
        scores = read_table(Path(settings.scores), strings=["case_id", "patient_id", "model", "fold"])
        for name in ("case_id", "model"):
            if name not in scores.columns:
                raise UserError(f"no column {name}", where=str(settings.scores))
    seed = settings.seed
    choice = choose(models, run.cases, scores, run.options, generator_for("slide ensembles", seed, 1))
    made = combine(
        parts,
        models,
        folds,
        truth,
        choice,
        VoteOptions(rule=settings.rule, random=settings.random),
        generator_for("slide ensembles", seed, 2),
        progress=progress,
    )
    missing = _missing(run)
    facts = RunFacts(
        cases=run.cases,
        models=models,
        folds=folds,
        rule=settings.rule,
        random=settings.random,
        counts=_counts(run, truth, missing),
        warnings=tuple(_warnings(run, truth, missing)),
        missing=missing,
    )
    found = summarise(
        made,
        choice,
        facts,
        Resampling(key=f"slide ensembles/{run.cohort.hash}", seed=seed, resamples=settings.resamples),
        source={"cohort_hash": run.cohort.hash} | _digests(settings),
        settings=_stated(settings),
    )
    tables = dict(found.tables)
    tables["patch_scores.csv"] = from_masks.merge(run.cases, on="case_id", how="left")
    path = masks = None
    if settings.masks_out is not None:
        wanted = _wanted(choice.ensembles, settings.masks_of)
        masks = write_ensemble_masks(
            settings.masks_out,
            run.slides,
            members,
            wanted,
            rule=settings.rule,
            replace=replace,
            progress=progress,
        )
    if out is not None:
        path = write_summary_folder(
            found.summary, out, found.redactor, replace=replace, inputs=inputs, tables=tables
        )
    return EnsembleReport(summary=found.summary, tables=tables, path=path, masks=masks, resumed=parts.resumed)


def _wanted(ensembles: Sequence[Any], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    known = {one.name: one.members for one in ensembles}
    for name in names:
        if name not in known:
            raise unknown_name("ensemble", name, list(known))
    return {name: known[name] for name in (names or known)}


def _checked(settings: EnsembleSettings) -> ChoiceOptions:
    check_seed(settings.seed)
    check_alpha(settings.alpha)
    if settings.rule not in TIE_RULES:
        raise unknown_name("tie rule", settings.rule, list(TIE_RULES))
    if settings.on_invalid not in ("error", "worst"):
        raise unknown_name("value of --on-invalid", settings.on_invalid, ["error", "worst"])
    if not 0 <= settings.random <= 100_000 or settings.resamples < 0:
        raise UserError(
            "the number of random ensembles or of resamples cannot be",
            fix="Give 0 to 100,000 random ensembles, and 0 or more resamples.",
        )
    return ChoiceOptions(
        margins=parse_margins(settings.margins),
        alpha=settings.alpha,
        internal=None if settings.internal is None else parse_rule(settings.internal, option="--id"),
        external=None if settings.external is None else parse_rule(settings.external, option="--ood"),
        members=settings.members,
    )


@contextmanager
def _place(out: str | Path | None) -> Iterator[Path]:
    """Where parts lie while the run goes on: next to the result, or in a temporary folder."""
    if out is not None:
        with parts_folder(Path(out).with_name(f"{Path(out).name}.parts")) as folder:
            yield folder
        return
    with TemporaryDirectory() as place, parts_folder(Path(place) / "parts") as folder:
        yield folder


def _cases(cohort: Cohort) -> pd.DataFrame:
    """The slides with what tells patients and domains apart; files and sizes stay out of the tables."""
    hidden = {"mask", "tissue_mask", "image", "width_px", "height_px", "mask_downsample", "mask_tumour"}
    cases = cohort.cases[[name for name in cohort.cases.columns if name not in hidden]].reset_index(drop=True)
    if "patient_id" not in cases.columns:
        cases["patient_id"] = cases["case_id"]
    cases["case_id"] = cases["case_id"].astype(str)
    return cases


def _stages(cases: pd.DataFrame) -> list[str | None]:
    if "stage" not in cases.columns:
        return [None] * len(cases)
    words = cases["stage"].astype("string").fillna("").str.strip()
    out = [normalise_stage(word) if word else None for word in words]
    bad = [
        i + 1 for i, (word, stage) in enumerate(zip(words, out, strict=True)) if word and stage not in STAGES
    ]
    if bad:
        raise UserError(
            f"'{words.iloc[bad[0] - 1]}' is no stage",
            where=f"cohort, rows {name_rows(bad)}",
            fix=f"Use one of {', '.join(STAGES)}.",
        )
    return out


def _check_rule(run: _Run) -> None:
    if run.settings.rule != "mean-probability":
        return
    if not any(run.parts.read(i, f).graded for i, f in run.parts.paths):
        raise UserError(
            "the masks hold no probabilities, and the rule mean-probability needs them",
            where=run.members.source,
            fix="Give masks of probabilities (`slides recompose` writes them; a column `threshold` in a table says so of other "
            "files), or --rule strict.",
        )


def _missing(run: _Run) -> dict[str, int]:
    """How many masks of each model are missing, of all slides and folds."""
    expected = len(run.slides) * len(run.members.folds)
    there = pd.Series([model for _, _, model in run.rows], dtype=object).value_counts()
    lost = {model: expected - int(there.get(model, 0)) for model in run.members.models}
    return {model: count for model, count in lost.items() if count}


def _counts(run: _Run, truth: np.ndarray, missing: Mapping[str, int]) -> dict[str, int]:
    return {
        "slides": len(run.slides),
        "patients": int(run.cases["patient_id"].nunique()),
        "models": len(run.members.models),
        "folds": len(run.members.folds),
        "masks": len(run.rows),
        "missing": sum(missing.values()),
        "invalid": len(run.parts.invalid),
        "extra": len(run.members.table) - len(run.rows),
        **{f"{stage}_slides": int((truth == code).sum()) for code, stage in enumerate(STAGES)},
        "without_stage": int((truth < 0).sum()),
    }


def _warnings(run: _Run, truth: np.ndarray, missing: Mapping[str, int]) -> Iterator[str]:
    folds = run.members.folds
    if missing:
        shown = ", ".join(f"{model} ({count})" for model, count in list(missing.items())[:_NAMED])
        more = f" and {len(missing) - _NAMED} more models" if len(missing) > _NAMED else ""
        yield (
            f"{sum(missing.values()):,} masks are missing and count as the worst answer: {shown}{more}. A missing member votes "
            "against the truth."
        )
    whole = [
        f"{model}, fold {fold}"
        for model in run.members.models
        for fold in folds
        if not any((slide.case, fold, model) in run.rows for slide in run.slides)
    ]
    if whole:
        more = f" and {len(whole) - _NAMED} more" if len(whole) > _NAMED else ""
        yield f"{len(whole)} folds have no mask at all: {'; '.join(whole[:_NAMED])}{more}."
    if run.parts.invalid:
        case, model, fold, why = run.parts.invalid[0]
        yield (
            f"{len(run.parts.invalid)} masks cannot be used and count as missing, for example of {model}, fold {fold}, slide "
            f"{case}: {why}."
        )
    extra = len(run.members.table) - len(run.rows)
    if extra:
        yield f"{extra:,} masks belong to no slide of the cohort, and are left out."
    unknown = [slide.case for slide, code in zip(run.slides, truth, strict=True) if code < 0]
    if unknown:
        yield f"{len(unknown)} slides have no true stage and count in no rate of stages: {name_rows(unknown)}."
    wrong = [
        slide.case
        for i, slide in enumerate(run.slides)
        if slide.stage is not None
        and (found := run.parts.read(i, 0).truth_stage) is not None
        and found != slide.stage
    ]
    if wrong:
        yield (
            f"{len(wrong)} slides have another stage in the cohort than their truth masks give, and the cohort's counts: "
            f"{name_rows(wrong)}."
        )
    if not any(slide.tissue is not None for slide in run.slides):
        yield (
            "No slide has a tissue_mask: false-positive rates over tissue are undefined, and patches of glass count as normal "
            "patches where members are chosen."
        )
    if len(folds) == 1:
        yield "There is one fold: no spread over folds, and no test by fold that chooses members."


def _digests(settings: EnsembleSettings) -> dict[str, str]:
    files = {"scores_digest": settings.scores, "members_digest": settings.members}
    return {
        name: file_digest(file) for name, file in files.items() if file is not None and Path(file).is_file()
    }


def _stated(settings: EnsembleSettings) -> dict[str, Any]:
    hidden = {"masks_out", "scores", "members"}
    stated = {name: value for name, value in asdict(settings).items() if name not in hidden}
    return stated | {"members": "study" if settings.members == "study" else bool(settings.members)}
