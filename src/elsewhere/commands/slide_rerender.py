"""`slides rerender`: patches of two laboratories in every version that a drop is divided over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.generalise.settings import parse_rule
from elsewhere.cohort.patch_table import read_patch_table
from elsewhere.commands.output import Report
from elsewhere.errors import EXIT_OK, UserError, check_seed, unknown_name
from elsewhere.files import human_bytes
from elsewhere.inputs.patches.store import STORE_FILE, PatchStore
from elsewhere.inputs.rendering.compression import JpegQuality
from elsewhere.inputs.rendering.interventions import (
    EXTERNAL,
    INTERNAL,
    INTERVENTIONS,
    SIDES,
    MeasureSettings,
    Rendering,
    SlideSample,
    describe,
    measure_rendering,
)
from elsewhere.predictions.rendered_patches import (
    TEXTS,
    RenderedFolder,
    SidePatches,
    began,
    open_rendered,
    rendering_key,
    versions_of,
    write_rendered,
)
from elsewhere.scoring.patch_scores import ID_WORDS, OOD_WORDS
from elsewhere.tables import file_digest, read_table
from elsewhere.tables.identifiers import note_ids, remembers_ids

PER_SLIDE = 100
_MEASURED_PER_SLIDE = 40
_SAME_MPP = 0.05
_SHOWN_VERSIONS = 12
PIXELS, TRUTH, ROWS = "pixels.npy", "truth.npy", "patches.csv"
Bytes = npt.NDArray[np.uint8]
Masks = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class RerenderSettings:
    """How patches are chosen and rendered.

    Args:
        internal: COLUMN=VALUE of internal patches; None for the column `domain`.
        external: COLUMN=VALUE of external patches; None likewise.
        internal_mpp: True microns per pixel of internal patches; None for what the table says.
        external_mpp: The same of external patches.
        internal_quality: JPEG quality of internal slides; None to measure it.
        external_quality: The same of external slides.
        names: The interventions that are looked at.
        per_slide: At most as many tumour patches and as many normal ones per slide; 0 for all.
        seed: The seed of the draw.
    """

    internal: str | None = None
    external: str | None = None
    internal_mpp: float | None = None
    external_mpp: float | None = None
    internal_quality: int | None = None
    external_quality: int | None = None
    names: tuple[str, ...] = INTERVENTIONS
    per_slide: int = PER_SLIDE
    seed: int = 42


@dataclass(frozen=True, kw_only=True)
class RerenderReport:
    """Patches that were rendered, or would be.

    Args:
        rendering: The interventions.
        counts: Patches, slides and patients of each side.
        size: Pixels along a patch.
        warnings: What was noticed, as sentences.
        out: The folder.
        written: Whether it was written.
        exit_code: 0.
    """

    rendering: Rendering
    counts: Mapping[str, Mapping[str, int]]
    size: int
    warnings: tuple[str, ...]
    out: Path
    written: bool
    exit_code: int = EXIT_OK

    @property
    def needed_bytes(self) -> int:
        """What all versions take."""
        return sum(self.counts[one.side]["patches"] * self.size**2 * 3 for one in versions_of(self.rendering))

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The interventions, the versions and the counts.
        """
        return {
            **self.rendering.to_dict(),
            "versions": [one.name for one in versions_of(self.rendering)],
            "counts": {side: dict(values) for side, values in self.counts.items()},
            "size": self.size,
            "needed_bytes": self.needed_bytes,
            "warnings": list(self.warnings),
            "out": str(self.out),
            "written": self.written,
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        for side in SIDES:
            count = self.counts[side]
            yield (
                f"{side}: {count['patches']:,} patches ({count['tumour']:,} with tumour) of {count['slides']} slides of "
                f"{count['patients']} patients"
            )
        yield from describe(self.rendering)
        versions = versions_of(self.rendering)
        names = [one.name for one in versions]
        more = f" and {len(names) - _SHOWN_VERSIONS} more" if len(names) > _SHOWN_VERSIONS else ""
        yield f"{len(names)} versions, {human_bytes(self.needed_bytes)}: {', '.join(names[:_SHOWN_VERSIONS])}{more}"
        for warning in self.warnings:
            yield f"warning: {warning}"
        if not self.written:
            yield "nothing was written"
            return
        yield f"written: {self.out}"
        yield f"next: predict each .npy file as PREDICTIONS/MODEL/NAME.npy, then elsewhere slides shift {self.out} PREDICTIONS"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Source:
    """Patches with their rows."""

    rows: pd.DataFrame
    size: int
    digest: str
    pixels: Any
    truth: Any
    warnings: tuple[str, ...] = ()

    def read(self, numbers: npt.NDArray[np.int64]) -> tuple[Bytes, Masks]:
        return self.pixels(numbers), self.truth(numbers)


@remembers_ids
def rerender(
    source: Path,
    table: Path | None = None,
    *,
    out: Path,
    settings: RerenderSettings | None = None,
    dry_run: bool = False,
    progress: Report | None = None,
) -> RerenderReport:
    """Measure what two laboratories' patches differ in, and write the patches with and without it (LN-22).

    Args:
        source: A patch store, or a folder with `pixels.npy`, `truth.npy` and `patches.csv`.
        table: The patch table of the store; None for a folder.
        out: The folder to write. A run that was stopped goes on there.
        settings: Which patches and interventions; None for the usual ones.
        dry_run: Whether differences are measured and nothing is written.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        What was measured and written.

    Raises:
        UserError: The patches cannot be used, or the folder holds other things.
        FileSystemError: The disk is too small or becomes full.
    """
    chosen = settings or RerenderSettings()
    check_seed(chosen.seed)
    if chosen.per_slide < 0:
        raise UserError(
            f"{chosen.per_slide} patches per slide", where="--per-slide", fix="Give 0 (all) or more."
        )
    held = _open(source, table)
    rows = held.rows
    side = _sides(rows, chosen)
    warnings = list(held.warnings)
    if neither := int((side == "").sum()):
        warnings.append(f"{neither:,} patches are neither internal nor external, and are left out.")
    tumour = rows["holds_tumour"].to_numpy(bool)
    numbers = {name: _drawn(rows, np.flatnonzero(side == name), tumour, chosen) for name in SIDES}
    for name in SIDES:
        if not len(numbers[name]):
            raise UserError(f"no patch is {name}", where=str(source), fix="Check the names of the domains.")
    _check_patients(rows, numbers)
    mpp = {
        INTERNAL: _mpp(rows, numbers[INTERNAL], chosen.internal_mpp, INTERNAL),
        EXTERNAL: _mpp(rows, numbers[EXTERNAL], chosen.external_mpp, EXTERNAL),
    }
    if None in mpp.values():
        if mpp[INTERNAL] != mpp[EXTERNAL]:
            raise UserError(
                "the microns per pixel of one side alone are known",
                fix="State both: --internal-mpp 0.5 --external-mpp 0.25.",
            )
        warnings.append("The microns per pixel are not stated: both sides are taken as alike.")
    key = rendering_key(
        [
            held.digest,
            {name: values.tolist() for name, values in numbers.items()},
            mpp,
            [chosen.internal_quality, chosen.external_quality, list(chosen.names)],
        ]
    )
    if not dry_run and began(out, key):
        rendering = open_rendered(out).rendering
    else:
        rendering = _measure(held, numbers, mpp, chosen, warnings, progress)
    kept = [name for name in rows.columns if name != "holds_tumour"]
    patches = {
        name: SidePatches(
            rows=rows.iloc[values][kept]
            .assign(tumour_patch=tumour[values].astype(int))
            .reset_index(drop=True),
            read=lambda at, values=values: held.read(values[at]),  # type: ignore[misc]
        )
        for name, values in numbers.items()
    }
    if not dry_run:
        made: RenderedFolder = write_rendered(
            out, rendering, patches, size=held.size, key=key, progress=progress
        )
        rendering = made.rendering
    counts = {
        name: {
            "patches": len(values),
            "tumour": int(tumour[values].sum()),
            "slides": int(rows["case_id"].iloc[values].nunique()),
            "patients": int(rows["patient_id"].iloc[values].nunique()),
        }
        for name, values in numbers.items()
    }
    return RerenderReport(
        rendering=rendering,
        counts=counts,
        size=held.size,
        warnings=tuple(warnings),
        out=out,
        written=not dry_run,
    )


def _open(source: Path, table: Path | None) -> _Source:
    if (source / STORE_FILE).is_file():
        return _open_store(source, table)
    if table is not None:
        raise UserError(
            "a patch table belongs to a patch store, and this is none",
            where=str(source),
            fix="Name the folder that elsewhere slides pack wrote, or leave the table out.",
        )
    return _open_arrays(source)


def _open_store(source: Path, table: Path | None) -> _Source:
    store = PatchStore(source)
    if table is None:
        raise UserError(
            "the patches of a store are named by its patch table, and none was given",
            where=str(source),
            fix="elsewhere slides rerender STORE patches.parquet --out FOLDER",
        )
    if not store.spec.masks:
        raise UserError(
            "the store holds no masks of tumour", where=str(source), fix="Pack the slides with masks."
        )
    rows = read_patch_table(table).rows
    found = store.select(
        list(zip(rows["dataset"].fillna("").astype(str), rows["case_id"].astype(str), strict=True)),
        rows["i"],
        rows["j"],
        missing="leave out",
    )
    warnings = []
    if found.missing:
        rows = rows.drop(index=rows.index[list(found.missing)])
        warnings.append(
            f"{len(found.missing):,} patches of the table are not in the store, and are left out."
        )
    if store.spec.stain is not None:
        warnings.append(
            f"The patches of this store were normalised already ({store.spec.stain_words()}): what the stain costs without that "
            "is not measured."
        )
    rows = rows.reset_index(drop=True)
    if rows.empty:
        raise UserError("none of the patches of the table is in the store", where=str(source))
    rows["patient_id"] = rows["patient_id"].fillna(rows["case_id"])
    rows["holds_tumour"] = (rows["tumour"] > 0).to_numpy()
    digest = rendering_key([store.spec.digest(), read_patch_table(table).hash])
    return _Source(
        rows=rows,
        size=store.spec.size,
        digest=digest,
        pixels=found.batch,
        truth=found.masks,
        warnings=tuple(warnings),
    )


def _open_arrays(source: Path) -> _Source:
    for name in (PIXELS, TRUTH, ROWS):
        if not (source / name).is_file():
            raise UserError(
                f"there is no {name}",
                where=str(source),
                fix=f"Give a patch store with its table, or a folder with {PIXELS} (uint8 [patches, size, size, 3]), {TRUTH} "
                f"([patches, size, size]) and {ROWS} (one row per patch: case_id, patient_id, domain).",
            )
    rows = read_table(source / ROWS, required=("case_id",), strings=TEXTS)
    if "patient_id" not in rows.columns:
        rows["patient_id"] = rows["case_id"]
    note_ids(rows["patient_id"], rows["case_id"])
    pixels, truth = (_array(source / name) for name in (PIXELS, TRUTH))
    size = pixels.shape[1] if pixels.ndim == 4 else 0
    if pixels.dtype != np.uint8 or pixels.shape != (len(rows), size, size, 3):
        raise UserError(
            f"{PIXELS} is an array of {pixels.dtype} with the shape {pixels.shape}; {len(rows):,} rows need uint8 "
            f"({len(rows)}, size, size, 3)",
            where=str(source),
        )
    if truth.shape != (len(rows), size, size) or truth.dtype.kind not in "bu":
        raise UserError(
            f"{TRUTH} is an array of {truth.dtype} with the shape {truth.shape}; the pixels need ({len(rows)}, {size}, {size}), "
            "true and false, or 0 and 1",
            where=str(source),
        )
    if size % 8 or size < 32:
        raise UserError(f"patches of {size} pixels", where=str(source), fix="Give a multiple of 8 from 32.")

    def masks(numbers: npt.NDArray[np.int64]) -> Masks:
        return np.asarray(truth[numbers] > 0)

    parts = [np.asarray(truth[at : at + 256] > 0).any(axis=(1, 2)) for at in range(0, len(rows), 256)]
    rows["holds_tumour"] = np.concatenate(parts) if parts else np.zeros(0, bool)
    digest = rendering_key([file_digest(source / name) for name in (PIXELS, TRUTH, ROWS)])
    return _Source(
        rows=rows, size=size, digest=digest, pixels=lambda numbers: np.asarray(pixels[numbers]), truth=masks
    )


def _array(path: Path) -> npt.NDArray[Any]:
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(
            "cannot be read as an array", where=str(path), fix="Write it with numpy.save, as numbers."
        ) from error
    if not isinstance(loaded, np.ndarray):
        raise UserError("holds several arrays", where=str(path), fix="Write one array with numpy.save.")
    return loaded


def _sides(rows: pd.DataFrame, chosen: RerenderSettings) -> npt.NDArray[np.str_]:
    """Whether each row is internal, external or neither."""
    made = np.full(len(rows), "", dtype="<U8")
    if chosen.internal is None and chosen.external is None:
        if "domain" not in rows.columns:
            raise UserError(
                "it is not known which patches are internal (ID) and which external (OOD)",
                fix="Add a column `domain` with ID or OOD, or give --id COLUMN=VALUE and --ood COLUMN=VALUE.",
            )
        words = rows["domain"].fillna("").astype(str).str.lower()
        made[words.isin(ID_WORDS).to_numpy(bool)] = INTERNAL
        made[words.isin(OOD_WORDS).to_numpy(bool)] = EXTERNAL
        return made
    for side, rule, option in ((INTERNAL, chosen.internal, "--id"), (EXTERNAL, chosen.external, "--ood")):
        if rule is None:
            continue
        column, values = parse_rule(rule, option=option)
        if column not in rows.columns:
            raise unknown_name(
                "column", column, [str(name) for name in rows.columns if name != "holds_tumour"]
            )
        have = rows[column].astype(str)
        for value in values:
            if not (have == value).any():
                raise unknown_name(f"value of {column}", value, sorted(set(have)))
        mine = have.isin(values).to_numpy(bool)
        if (mine & (made != "")).any():
            raise UserError("some patches are internal and external", fix="Choose disjoint values.")
        made[mine] = side
    if chosen.internal is None:
        made[made == ""] = INTERNAL
    if chosen.external is None:
        made[made == ""] = EXTERNAL
    return made


def _drawn(
    rows: pd.DataFrame, numbers: npt.NDArray[np.int64], tumour: Masks, chosen: RerenderSettings
) -> npt.NDArray[np.int64]:
    """At most `per_slide` tumour patches and as many normal ones of each slide."""
    if not chosen.per_slide:
        return numbers
    rng = np.random.default_rng(chosen.seed)
    key = rows["case_id"].astype(str).to_numpy()[numbers]
    kept = []
    for case in sorted(set(key)):
        for sick in (True, False):
            mine = numbers[(key == case) & (tumour[numbers] == sick)]
            kept.append(
                mine if len(mine) <= chosen.per_slide else rng.choice(mine, chosen.per_slide, replace=False)
            )
    return np.sort(np.concatenate(kept)) if kept else numbers


def _check_patients(rows: pd.DataFrame, numbers: Mapping[str, npt.NDArray[np.int64]]) -> None:
    people = [set(rows["patient_id"].iloc[numbers[side]].astype(str)) for side in SIDES]
    if shared := people[0] & people[1]:
        raise UserError(
            f"{len(shared)} patients have internal and external patches",
            fix="Both laboratories are compared as independent patients: leave these patients out of one side, or give "
            "patients of two hospitals names of their own.",
        )


def _mpp(rows: pd.DataFrame, numbers: npt.NDArray[np.int64], stated: float | None, side: str) -> float | None:
    if stated is not None:
        return stated
    if "mpp" not in rows.columns:
        return None
    values = pd.to_numeric(rows["mpp"].iloc[numbers], errors="coerce").to_numpy(float)
    if not np.isfinite(values).all():
        return None
    if values.max() > values.min() * (1 + _SAME_MPP):
        raise UserError(
            f"the {side} patches have {values.min():.4g} to {values.max():.4g} microns per pixel",
            fix="Render the patches of one scale at a time, or cut them all at one number of microns.",
        )
    return float(np.median(values))


def _measure(
    held: _Source,
    numbers: Mapping[str, npt.NDArray[np.int64]],
    mpp: Mapping[str, float | None],
    chosen: RerenderSettings,
    warnings: list[str],
    progress: Report | None,
) -> Rendering:
    tumour = held.rows["holds_tumour"].to_numpy(bool)
    patients = held.rows["patient_id"].astype(str).to_numpy()
    normal = {side: values[~tumour[values]] for side, values in numbers.items()}
    used: Mapping[str, npt.NDArray[np.int64]] = normal
    if min(len(set(patients[normal[side]])) for side in SIDES) < 2:
        used = numbers
        warnings.append(
            "Fewer than two patients of a laboratory have patches without tumour: differences are measured on all patches, so "
            "that a difference of tissue may count as one of stain or sharpness."
        )
    samples = {side: _samples(held, used[side], patients) for side in SIDES}
    jpeg = [
        None if quality is None else JpegQuality(quality=quality)
        for quality in (chosen.internal_quality, chosen.external_quality)
    ]
    known = MeasureSettings(
        internal_mpp=mpp[INTERNAL] or 1.0,
        external_mpp=mpp[EXTERNAL] or 1.0,
        internal_jpeg=jpeg[0],
        external_jpeg=jpeg[1],
        names=chosen.names,
    )
    return measure_rendering(samples[INTERNAL], samples[EXTERNAL], known, progress=progress)


def _samples(held: _Source, numbers: npt.NDArray[np.int64], patients: npt.NDArray[Any]) -> list[SlideSample]:
    """Evenly spread patches of every slide."""
    cases = held.rows["case_id"].astype(str).to_numpy()
    made = []
    for case in dict.fromkeys(cases[numbers]):
        mine = numbers[cases[numbers] == case]
        step = max(1, len(mine) // _MEASURED_PER_SLIDE)
        mine = mine[::step][:_MEASURED_PER_SLIDE]
        made.append(SlideSample(patient=str(patients[mine[0]]), patches=held.pixels(mine)))
    return made
