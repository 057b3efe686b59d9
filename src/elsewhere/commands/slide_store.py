"""`slides pack` and `slides verify`: the patches of a table in a store, and whether a store is still what was written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort.patch_table import PatchTable, read_patch_table
from elsewhere.commands.output import Report
from elsewhere.commands.slide_patches.cases import SlideCase, find_cases
from elsewhere.errors import EXIT_FILE_SYSTEM, EXIT_INCOMPLETE, EXIT_OK, UserError, name_rows
from elsewhere.files import human_bytes
from elsewhere.inputs.patches.packing import PackPlan, PackResult, pack, plan_packing
from elsewhere.inputs.patches.slide_masks import MaskRules
from elsewhere.inputs.patches.slide_packing import MASKS_DIFFER, SlideRows
from elsewhere.inputs.patches.spec import NO_STAIN, StainSpec, StoreSpec
from elsewhere.inputs.patches.store import Damage, PatchStore, set_aside
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.stain_target import fit_target
from elsewhere.inputs.stain.fits import TARGETS
from elsewhere.inputs.stain.normalise import COUNTED, make_target
from elsewhere.untrusted import printable

PATCH_PX = 256
_MOST_SHOWN = 40
_SAME_MPP = 1e-6
_WORDS = {**COUNTED, MASKS_DIFFER: "masks whose tumour share differs from the table's by more than 5 %"}


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """How patches are packed.

    Attributes:
        stain: "none", the name of a target such as "study", or a picture or slide to normalise to.
        stain_method: "macenko", "vahadane" or "reinhard".
        stain_fit: "slide": one fit per slide; "patch": each patch its own.
        masks: Whether masks of tumour are stored.
        mpp: Microns per pixel of level 0 that are stated for every slide; None for those of the table's settings, of the
            cohort or of the files.
        training: Whether only the rows drawn for training are packed.
        scale: "mpp" or "study", where the table does not say by which it was cut; "" otherwise.
    """

    stain: str = NO_STAIN
    stain_method: str = "macenko"
    stain_fit: str = "slide"
    masks: bool = True
    mpp: float | None = None
    training: bool = False
    scale: str = ""


@dataclass(frozen=True, kw_only=True)
class EstimateReport:
    """What packing would write.

    Attributes:
        out: The store.
        spec: What its patches have in common.
        plan: The estimate.
        refused: Slides that cannot be opened, with the reason.
    """

    out: Path
    spec: StoreSpec
    plan: PackPlan
    refused: tuple[tuple[str, Mapping[str, Any]], ...]

    @property
    def exit_code(self) -> int:
        """0; 5 where slides cannot be opened; 74 where the disk is too small."""
        if self.plan.needed_bytes > self.plan.free_bytes:
            return EXIT_FILE_SYSTEM
        return EXIT_INCOMPLETE if self.refused else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The estimate and what cannot be opened.
        """
        return {
            "out": str(self.out),
            "patches": self.spec.to_dict(),
            **_plan_dict(self.plan),
            "fits": self.plan.needed_bytes <= self.plan.free_bytes,
            "refused": [{"case_id": name, **error} for name, error in self.refused],
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        plan = self.plan
        yield from _spec_lines(self.spec)
        yield from _plan_lines(plan)
        yield (
            f"{plan.left:,} patches to pack: {human_bytes(plan.needed_bytes)}; the disk has "
            f"{human_bytes(plan.free_bytes)} left"
        )
        if plan.needed_bytes > plan.free_bytes:
            yield "the disk is too small: name a folder on a larger one, or pack fewer rows"
        yield from _refused_lines(self.refused, "cannot be opened")
        yield "nothing was written"


@dataclass(frozen=True, kw_only=True)
class PackReport:
    """What was packed.

    Attributes:
        out: The store.
        result: What was done.
    """

    out: Path
    result: PackResult

    @property
    def exit_code(self) -> int:
        """0, or 5 where patches of some slides could not be packed."""
        return EXIT_INCOMPLETE if self.result.failed else EXIT_OK

    @property
    def missing(self) -> int:
        """Patches of the table that the store does not hold."""
        return sum(self.held(slide.name, slide.asked) for slide in self.result.failed)

    def held(self, name: tuple[str, str], asked: int) -> int:
        """Count the patches of a slide that are missing.

        Args:
            name: Dataset and case.
            asked: Its patches in the table.

        Returns:
            Those that the store lacks.
        """
        found = self.result.store.slides.get(name)
        return max(0, asked - (len(found.codes()) if found is not None else 0))

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The counts, the slides with remarks, and what could not be packed.
        """
        result = self.result
        return {
            "out": str(self.out),
            "patches": result.store.spec.to_dict(),
            **_plan_dict(result.plan),
            "packed_now": result.packed,
            "packed_anew_slides": sum(slide.anew for slide in result.slides),
            "set_aside": result.set_aside,
            "stored": len(result.store),
            "shards": len(result.store.shards),
            "counts": result.counts,
            "warnings": {slide.name[1]: list(slide.warnings) for slide in result.slides if slide.warnings},
            "missing": self.missing,
            "refused": [
                {
                    "case_id": slide.name[1],
                    "rows": self.held(slide.name, slide.asked),
                    **slide.error.to_dict(),
                }
                for slide in result.failed
                if slide.error is not None
            ],
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        result = self.result
        yield from _spec_lines(result.store.spec)
        yield from _plan_lines(result.plan)
        for slide in [slide for slide in result.slides if slide.warnings][:_MOST_SHOWN]:
            for warning in slide.warnings:
                yield f"{slide.name[1]}: warning: {warning}"
        anew = sum(slide.anew for slide in result.slides)
        if anew:
            yield f"{anew} slides were packed anew: their files or annotations changed"
        if result.set_aside:
            yield f"{result.set_aside} damaged shards were moved to {self.out / 'damaged'} and packed again"
        for name, number in result.counts.items():
            yield f"{number:,} {_WORDS.get(name, name)}"
        yield f"{result.packed:,} patches were packed; the store holds {len(result.store):,} in {plural(len(result.store.shards), 'shard')}"
        yield from _refused_lines(
            [(slide.name[1], slide.error.to_dict()) for slide in result.failed if slide.error is not None],
            "not packed",
        )
        if result.failed:
            yield (
                f"{len(result.failed)} of {len(result.slides)} slides could not be packed as a whole: {self.missing:,} "
                f"patches are missing, listed in {self.out / 'failed'}"
            )
        yield f"written: {self.out}"


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """Whether a store is what was written.

    Attributes:
        out: The store.
        store: The store.
        damage: What cannot be used.
        failures: Slides that could not be packed, with the reason.
        moved: How many damaged things were set aside.
    """

    out: Path
    store: PatchStore
    damage: tuple[Damage, ...]
    failures: Mapping[tuple[str, str], str]
    moved: int = 0

    @property
    def exit_code(self) -> int:
        """0, or 5 where something cannot be used."""
        return EXIT_INCOMPLETE if self.damage else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The counts and the damage.
        """
        return {
            "out": str(self.out),
            "patches": self.store.spec.to_dict(),
            "stored": len(self.store),
            "slides": len(self.store.slides),
            "shards": len(self.store.shards),
            "damage": [{"path": str(one.path), "why": one.why} for one in self.damage],
            "set_aside": self.moved,
            "failed": [{"case_id": name, "reason": why} for (_, name), why in self.failures.items()],
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        yield from _spec_lines(self.store.spec)
        yield (
            f"{len(self.store):,} patches of {plural(len(self.store.slides), 'slide')} in {plural(len(self.store.shards), 'shard')}"
        )
        for one in self.damage[:_MOST_SHOWN]:
            yield f"{one.path}: {one.why}"
        for (_, name), why in list(self.failures.items())[:_MOST_SHOWN]:
            yield f"{name}: could not be packed: {why}"
        if not self.damage:
            yield "every byte is what was written"
        elif self.moved:
            yield f"{self.moved} were moved to {self.out / 'damaged'}: pack again to replace them"
        else:
            yield f"{len(self.damage)} cannot be used; --set-aside moves them away, so that packing again replaces them"


def pack_patches(
    table: Path,
    *,
    slides: Sequence[Path],
    out: Path,
    annotations: Path | None = None,
    settings: StoreSettings | None = None,
    workers: int = 1,
    progress: Report | None = None,
) -> PackReport:
    """Pack the patches of a table into a store; what it holds already is left as it is.

    Args:
        table: The patch table.
        slides: Slides, folders of slides, or one cohort.
        out: The folder of the store.
        annotations: A folder of annotations with the names of the slides, or the annotation of the only slide.
        settings: How patches are packed; None for the defaults.
        workers: Processes that read slides.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        What was packed.

    Raises:
        UserError: The table or the slides cannot be used, the store holds another grid or stain, or another run writes to it.
        FileSystemError: The disk is too small or becomes full.
    """
    settings = settings or StoreSettings()
    jobs, spec = _jobs(table, slides, annotations, settings)
    return PackReport(out=out, result=pack(jobs, out, spec, workers=workers, progress=progress))


def estimate(
    table: Path,
    *,
    slides: Sequence[Path],
    out: Path,
    annotations: Path | None = None,
    settings: StoreSettings | None = None,
    progress: Report | None = None,
) -> EstimateReport:
    """Estimate what `pack_patches` would write, and open every slide; nothing is written.

    Args:
        table: The patch table.
        slides: Slides, folders of slides, or one cohort.
        out: The folder of the store.
        annotations: A folder of annotations with the names of the slides, or the annotation of the only slide.
        settings: How patches would be packed; None for the defaults.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The estimate.

    Raises:
        UserError: The table or the slides cannot be used, or the store holds another grid or stain.
    """
    settings = settings or StoreSettings()
    jobs, spec = _jobs(table, slides, annotations, settings)
    refused: list[tuple[str, Mapping[str, Any]]] = []
    for done, job in enumerate(jobs, start=1):
        try:
            if job.path is None:
                raise UserError(job.problem)
            open_slide(job.path, mpp=job.mpp).close()
        except UserError as error:
            refused.append((job.case_id, error.to_dict()))
        if progress is not None:
            progress("opening slides", done, len(jobs))
    return EstimateReport(out=out, spec=spec, plan=plan_packing(jobs, out, spec), refused=tuple(refused))


def verify(out: Path, *, move: bool = False, progress: Report | None = None) -> VerifyReport:
    """Check every byte of a store.

    Args:
        out: The folder of the store.
        move: Whether what is damaged is moved away, so that packing again replaces it.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        What was found.

    Raises:
        UserError: It is no store.
    """
    store = PatchStore(out)
    damage = tuple(store.verify(progress=progress))
    moved = set_aside(out, damage) if move and damage else 0
    return VerifyReport(out=out, store=store, damage=damage, failures=store.failures(), moved=moved)


def _jobs(
    table: Path, slides: Sequence[Path], annotations: Path | None, settings: StoreSettings
) -> tuple[list[SlideRows], StoreSpec]:
    """The slides of the table with their rows and files, and what the patches have in common."""
    found = read_patch_table(table)
    cut = found.provenance.get("settings")
    cut = cut if isinstance(cut, Mapping) else {}
    rows = found.rows
    if settings.training:
        rows = rows[rows["training"]]
    if rows.empty:
        raise UserError("the table names no patches to pack", where=str(table))
    spec = _spec(rows, cut, settings, table)
    cases = find_cases(slides, annotations=annotations)
    problems = {_fold(name): error for name, error in cases.refused}
    by_name = {(case.facts.dataset, _fold(case.facts.case_id)): case for case in cases.cases}
    by_case: dict[str, list[SlideCase]] = {}
    for known in cases.cases:
        by_case.setdefault(_fold(known.facts.case_id), []).append(known)
    digests = _digests(found)
    jobs = []
    for name, part in rows.groupby([rows["dataset"].fillna(""), rows["case_id"]], sort=True):
        dataset, case_id = str(name[0]), str(name[1])
        case: SlideCase | None = by_name.get((dataset, _fold(case_id)))
        alone = by_case.get(_fold(case_id), [])
        if case is None and len(alone) == 1:
            case = alone[0]
        problem = "no file of this slide was found among --slides"
        if (error := problems.get(_fold(case_id))) is not None:
            problem = error.what
        jobs.append(
            _job(
                (dataset, case_id), part, case, (cut, settings, problem, digests.get((dataset, case_id), ""))
            )
        )
    if all(job.path is None for job in jobs) and not problems:
        raise UserError(
            f"none of the {plural(len(jobs), 'slide')} of the table is among --slides: the table names "
            f"{name_rows([printable(job.case_id) for job in jobs], limit=3)}",
            where=str(table),
            fix="Name the slides or the cohort that the table was cut from.",
        )
    return jobs, spec


def _job(
    name: tuple[str, str],
    part: pd.DataFrame,
    case: SlideCase | None,
    shared: tuple[Mapping[str, Any], StoreSettings, str, str],
) -> SlideRows:
    cut, settings, problem, digest = shared
    mpp = case.mpp if case is not None and case.mpp is not None else settings.mpp
    if mpp is None and isinstance(stated := cut.get("mpp"), int | float):
        mpp = float(stated)
    if isinstance(mpp, str):
        problem, case, mpp = (
            f"the microns per pixel of the slide are '{printable(mpp)[:40]}', no number",
            None,
            None,
        )
    return SlideRows(
        dataset=name[0],
        case_id=name[1],
        i=part["i"].to_numpy(np.int64),
        j=part["j"].to_numpy(np.int64),
        path=None if case is None else case.slide,
        mpp=mpp,
        annotation=None if case is None else case.annotation,
        tumour=part["tumour"].to_numpy(np.float64),
        x=part["x"].to_numpy(np.float64),
        y=part["y"].to_numpy(np.float64),
        mask_rules=_mask_rules(cut),
        shares_are_exact=cut.get("outline_fill", "exact") == "exact",
        slide_sha256=digest,
        problem=problem if case is None else "",
    )


def _mask_rules(cut: Mapping[str, Any]) -> MaskRules:
    groups, tumour = cut.get("groups"), cut.get("mask_tumour")
    return MaskRules(
        groups=tuple(sorted((str(k), str(v)) for k, v in groups.items()))
        if isinstance(groups, Mapping)
        else (),
        tumour=tuple(int(v) for v in tumour if isinstance(v, int)) if isinstance(tumour, list) else (),
        from_scanned=cut.get("origin") == "scanned",
    )


def _digests(table: PatchTable) -> dict[tuple[str, str], str]:
    """The digests of the slides that the table was cut from."""
    slides = table.provenance.get("slides")
    found = {}
    for slide in slides if isinstance(slides, list) else ():
        if isinstance(slide, Mapping) and isinstance(slide.get("slide_digest"), str):
            found[str(slide.get("dataset") or ""), str(slide.get("case_id"))] = str(slide["slide_digest"])
    return found


def _spec(rows: pd.DataFrame, cut: Mapping[str, Any], settings: StoreSettings, table: Path) -> StoreSpec:
    scale = str(cut.get("scale") or settings.scale or "mpp")
    if settings.scale and settings.scale != scale:
        raise UserError(
            f"the table was cut at the scale '{scale}', and --scale is '{settings.scale}'", where=str(table)
        )
    size = cut.get("size_px", PATCH_PX)
    mpp = None
    if scale == "mpp":
        low, high = float(rows["mpp"].min()), float(rows["mpp"].max())
        if not high - low <= _SAME_MPP * high:
            raise UserError(
                f"the patches of the table have {low:.4g} to {high:.4g} microns per pixel",
                where=str(table),
                fix="If it was cut at the study's scale, say so: --scale study.",
            )
        mpp = float(cut.get("patch_mpp", rows["mpp"].iloc[0]))
    return StoreSpec(
        size=size if isinstance(size, int) else PATCH_PX,
        scale=scale,
        mpp=mpp,
        stain=stain_spec(settings.stain, method=settings.stain_method, fit=settings.stain_fit),
        masks=settings.masks,
    )


def stain_spec(stain: str, *, method: str = "macenko", fit: str = "slide") -> StainSpec | None:
    """Read what a user wrote for a stain.

    Args:
        stain: "none", the name of a target, or a picture or slide.
        method: "macenko", "vahadane" or "reinhard".
        fit: "slide" or "patch".

    Returns:
        How patches are normalised; None for not at all.

    Raises:
        UserError: It is neither a name nor a file, or the file holds no two stains.

    Example:
        >>> stain_spec("none") is None, stain_spec("study").target_name
        (True, 'study')
    """
    if stain == NO_STAIN:
        return None
    if stain in TARGETS:
        return StainSpec(target=make_target(stain, method=method), target_name=stain, method=method, fit=fit)
    if not Path(stain).exists():
        raise UserError(
            f"'{stain}' is neither a stain target nor a file",
            fix=f"Known: {', '.join((NO_STAIN, *TARGETS))}; or a picture, or a slide.",
        )
    target = fit_target(Path(stain), method=method)
    return StainSpec(target=target, target_name="file", method=method, fit=fit)


def plural(number: int, noun: str) -> str:
    """Write a number with its noun.

    Args:
        number: The number.
        noun: The noun, of which the plural ends in s.

    Returns:
        Such as "1 shard".

    Example:
        >>> plural(1, "shard"), plural(2000, "shard")
        ('1 shard', '2,000 shards')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _fold(name: str) -> str:
    return name.strip().casefold()


def _spec_lines(spec: StoreSpec) -> Iterator[str]:
    yield f"patches: {spec.grid_words()}; stain: {spec.stain_words()}; masks: {'yes' if spec.masks else 'no'}"


def _plan_lines(plan: PackPlan) -> Iterator[str]:
    repeated = f", {plan.repeated:,} of them a second time" if plan.repeated else ""
    yield (
        f"table: {plan.rows:,} patches of {plural(plan.slides, 'slide')}{repeated}; {plan.packed:,} were in the store before"
    )
    if plan.without_slide:
        yield f"{plan.without_slide:,} patches belong to slides that were not found"


def _plan_dict(plan: PackPlan) -> dict[str, Any]:
    return {
        "rows": plan.rows,
        "slides": plan.slides,
        "repeated": plan.repeated,
        "packed_before": plan.packed,
        "to_pack": plan.left,
        "without_slide": plan.without_slide,
        "needed_bytes": plan.needed_bytes,
        "free_bytes": plan.free_bytes,
    }


def _refused_lines(refused: Sequence[tuple[str, Mapping[str, Any]]], what: str) -> Iterator[str]:
    for name, error in refused[:_MOST_SHOWN]:
        yield f"{name}: {what}: {error['error']}" + (f"\n  {error['fix']}" if error["fix"] else "")
    if len(refused) > _MOST_SHOWN:
        yield f"... and {len(refused) - _MOST_SHOWN} more (--json lists all)"
