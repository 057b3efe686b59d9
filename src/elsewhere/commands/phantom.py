"""`phantom ultrasound`, `mri`, `tomosynthesis` and `reader-study`: synthetic data on disk, in published layouts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere.commands.output import Report
from elsewhere.errors import UserError, check_seed, unknown_name
from elsewhere.phantom.ultrasound import LAYOUTS, SCANNERS, Hospital, plan
from elsewhere.phantom.ultrasound_layouts import MARK, write_hospital
from elsewhere.tables import check_out, staged_directory, write_json


@dataclass(frozen=True, kw_only=True)
class Phantoms:
    """Synthetic ultrasound hospitals that were written, and the command that reads each.

    Args:
        hospitals: The name, layout, counts and planted faults of each hospital.
        path: The folder that was written.
        seconds: How long it took.
    """

    hospitals: tuple[dict[str, Any], ...]
    path: Path
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `hospitals`, `path` and `seconds`.
        """
        return {"hospitals": list(self.hospitals), "path": str(self.path), "seconds": self.seconds}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        for made in self.hospitals:
            counts = ", ".join(f"{n} {label}" for label, n in made["labels"].items())
            yield f"{made['name']}: {made['pictures']} pictures of {made['patients']} patients ({counts})"
            for name, n in made["planted"].items():
                yield f"  planted {name}: {n}"
            yield f"  elsewhere cohort read {made['layout']} {made['path']} --out {made['name'].lower()}"
        yield f"written: {self.path}, in {self.seconds:.0f} s"


def ultrasound(
    out: str | Path,
    *,
    replace: bool = False,
    hospitals: Sequence[str] = ("Alder", "Birch"),
    layouts: Sequence[str] = (),
    patients: int = 60,
    shift: float = 1.0,
    difficulty: float = 0.3,
    shortcut: str | None = None,
    plant: Mapping[str, int] | None = None,
    scale: float = 1.0,
    seed: int = 7,
    progress: Report | None = None,
) -> Phantoms:
    """Make synthetic ultrasound hospitals as pictures; faults are planted in the last hospital.

    Args:
        out: The folder to write.
        replace: Whether files that exist may be replaced.
        hospitals: The names of the hospitals.
        layouts: The layout of each hospital, one for all, or empty to use the known layouts in turn.
        patients: Patients per hospital.
        shift: How far the scanners differ; 0 for not at all.
        difficulty: How hard the lesions are to tell apart.
        shortcut: The hospital that marks its malignant pictures; None for none.
        plant: Faults to plant, with how many of each; None for none.
        scale: The size of the pictures; 0.5 for half the width and height.
        seed: The seed of every draw.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The hospitals that were written.

    Raises:
        UserError: The hospitals, layouts or options do not fit, or the folder may not be replaced.
    """
    check_seed(seed)
    start = time.perf_counter()
    specs = specifications(
        hospitals, layouts, patients=patients, shift=shift, difficulty=difficulty, shortcut=shortcut,
        plant=plant, scale=scale, seed=seed,
    )  # fmt: skip
    out = Path(out)
    check_out(out, replace=replace)
    made = []
    with staged_directory(out, replace=replace) as staged:
        for spec in specs:
            write_hospital(spec, staged / spec.name, progress=progress)
            planned = plan(spec)
            made.append(
                {
                    "name": spec.name,
                    "layout": spec.layout,
                    "path": str(out / spec.name),
                    "pictures": len(planned),
                    "patients": len({p.patient for p in planned}),
                    "labels": dict(sorted(Counter(p.label for p in planned).items())),
                    "shift": spec.shift,
                    "shortcut": spec.shortcut,
                    "planted": dict(
                        sorted(Counter(p.how or p.defect for p in planned if p.how or p.defect).items())
                    ),
                }
            )
        write_json({"hospitals": made}, staged / MARK)
    return Phantoms(hospitals=tuple(made), path=out, seconds=time.perf_counter() - start)


def specifications(
    hospitals: Sequence[str],
    layouts: Sequence[str],
    *,
    shortcut: str | None = None,
    plant: Mapping[str, int] | None = None,
    **shared: Any,
) -> list[Hospital]:
    """Specify the hospitals of a world: each has its own scanner, in turn.

    Args:
        hospitals: The names of the hospitals.
        layouts: The layout of each hospital, one for all, or empty to use the known layouts in turn.
        shortcut: The hospital that marks its malignant pictures; None for none.
        plant: Faults to plant in the last hospital, with how many of each; None for none.
        **shared: Further fields of `Hospital`, the same for all.

    Returns:
        The specifications, in the order of the names.

    Raises:
        UserError: Two hospitals have the same name, the number of layouts does not fit, or there is no
            hospital of the name in `shortcut`.

    Example:
        >>> [made.name for made in specifications(("Alder", "Birch"), (), patients=4)]
        ['Alder', 'Birch']
    """
    if not hospitals or len({name.casefold() for name in hospitals}) != len(hospitals):
        raise UserError(
            "every hospital needs a name of its own", where="--hospitals", fix="E.g. Alder,Birch."
        )
    layouts = tuple(layouts) or tuple(LAYOUTS[at % len(LAYOUTS)] for at in range(len(hospitals)))
    if len(layouts) not in (1, len(hospitals)):
        raise UserError(
            f"{len(layouts)} layouts for {len(hospitals)} hospitals",
            where="--layout",
            fix=f"Give one for all, or one each: {', '.join(LAYOUTS)}.",
        )
    if shortcut is not None and shortcut not in hospitals:
        raise UserError(
            f"there is no hospital '{shortcut}'", where="--shortcut", fix=f"Known: {', '.join(hospitals)}."
        )
    if len(layouts) == 1:
        layouts = tuple(layouts) * len(hospitals)
    last = len(hospitals) - 1
    return [
        Hospital(
            name=name,
            layout=layout,
            scanner=at % len(SCANNERS),
            shortcut=0.9 if name == shortcut else 0.0,
            plant=dict(plant or {}) if at == last else {},
            **shared,
        )
        for at, (name, layout) in enumerate(zip(hospitals, layouts, strict=True))
    ]


@dataclass(frozen=True, kw_only=True)
class MriPhantoms:
    """Synthetic MRI sites that were written, and the command that reads them.

    Args:
        sites: The name, counts, view and scanner of each site.
        path: The folder that was written.
        seconds: How long it took.
    """

    sites: tuple[dict[str, Any], ...]
    path: Path
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `sites`, `path` and `seconds`.
        """
        return {"sites": list(self.sites), "path": str(self.path), "seconds": self.seconds}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        for made in self.sites:
            grid = " x ".join(str(n) for n in made["shape"])
            fat = "" if made["fat_suppressed"] else ", fat not suppressed"
            yield (
                f"{made['name']}: {made['patients']} patients, {made['pcr']} of {made['pcr'] + made['no_pcr']} with pCR, {made['view']}, {grid}, "
                f"{made['vendor']} {made['field_strength']:g} T{fat}"
            )
            if made["in_gap"]:
                yield f"  {made['in_gap']} in the planted gap"
            if not made["pcr"] or not made["no_pcr"]:
                yield (
                    f"  warning: {made['name']} has one outcome only, so that response cannot be tested there; "
                    "more patients or another --seed"
                )
        yield f"written: {self.path}, in {self.seconds:.0f} s"
        yield f"next: elsewhere cohort read mama-mia {self.path} --out {self.path.name}-cohort"


def mri(
    out: str | Path,
    *,
    replace: bool = False,
    patients: int = 24,
    size: int = 64,
    sites: int | Sequence[str] = 3,
    gap: str | None = None,
    blind: str | None = None,
    workers: int = 1,
    progress: Report | None = None,
    **shared: Any,
) -> MriPhantoms:
    """Make a world of synthetic MRI sites in the layout of MAMA-MIA.

    Args:
        out: The folder to write.
        replace: Whether files that exist may be replaced.
        patients: How many patients all sites have together.
        size: Voxels along a side.
        sites: How many sites, or their names.
        gap: A group with less contrast, as 'breast_density=D:1.0'; None for none.
        blind: A group that is hardly visible, in the same form; None for none.
        workers: How many processes.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.
        **shared: Further fields of `HospitalSpec`, the same for all sites, such as `seed`.

    Returns:
        The sites that were written.

    Raises:
        UserError: The sites or a group do not fit, or the folder may not be replaced.
    """
    from elsewhere.phantom.mri_layout import write_world
    from elsewhere.phantom.mri_sites import Gap, hospitals
    from elsewhere.tables import read_table

    if "seed" in shared:
        check_seed(shared["seed"])
    start = time.perf_counter()
    planted = {
        "gap": Gap.parse(gap, where="--gap") if gap else None,
        "blind": Gap.parse(blind, where="--blind") if blind else None,
    }
    world = hospitals(sites, patients=patients, size=size, **planted, **shared)
    out = Path(out)
    check_out(out, replace=replace)
    write_world(world, out, replace=replace, workers=workers, progress=progress)
    rows = read_table(out / "clinical_and_imaging_info.xlsx", sheet="dataset_info")
    truth = read_table(out / "truth.csv")
    made = []
    for spec in world:
        mine, true = rows[rows["dataset"] == spec.name], truth[truth["dataset"] == spec.name]
        first = mine.iloc[0]
        made.append(
            {
                "name": spec.name,
                "patients": len(mine),
                "pcr": int((mine["pcr"] == "1").sum()),
                "no_pcr": int((mine["pcr"] == "0").sum()),
                "view": str(first["view"]),
                "shape": [int(first[key]) for key in ("image_columns", "image_rows", "num_slices")],
                "vendor": str(first["manufacturer"]),
                "field_strength": float(first["field_strength"]),
                "fat_suppressed": first["fat_suppressed"] == "1",
                "in_gap": int((true["gap"].astype(float) > 0).sum()),
                "subtypes": dict(sorted(Counter(mine["tumor_subtype"].dropna()).items())),
            }
        )
    return MriPhantoms(sites=tuple(made), path=out, seconds=time.perf_counter() - start)


@dataclass(frozen=True, kw_only=True)
class TomosynthesisPhantoms:
    """Synthetic tomosynthesis volumes that were written, and the commands that read and score them.

    Args:
        vendors: The name, counts and volume sizes of each vendor.
        planted: What was planted, as in `planted.json`, without the lesions.
        protocol: The scoring rules whose radius fits the size of the volumes.
        path: The folder that was written.
        seconds: How long it took.
    """

    vendors: tuple[dict[str, Any], ...]
    planted: dict[str, Any]
    protocol: str
    path: Path
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            Plain values by name.
        """
        return {
            "vendors": list(self.vendors),
            "planted": self.planted,
            "protocol": self.protocol,
            "path": str(self.path),
            "seconds": self.seconds,
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        for made in self.vendors:
            counts = ", ".join(f"{n} {label}" for label, n in made["findings"].items())
            yield (
                f"{made['name']}: {made['patients']} patients, {made['volumes']} volumes ({counts}), {made['boxes']} boxes, "
                f"{made['rows']} rows, {made['slices'][0]} to {made['slices'][1]} slices"
            )
        drop = self.planted["drop"]
        if drop["share"]:
            yield (
                f"planted: {len(drop['volumes'])} volumes of vendor B with dense breasts, where lesions have "
                f"{drop['share']:.0%} less contrast"
            )
        for name, what in self.planted["faults"].items():
            if what:
                yield f"planted {name.replace('_', ' ')}: {len(what)}"
        yield f"written: {self.path}, in {self.seconds:.0f} s"
        yield f"next: elsewhere cohort read bcs-dbt {self.path} --out {self.path.name}-cohort"
        yield f"scoring rules for volumes of this size: {self.protocol}"


def tomosynthesis(
    out: str | Path,
    *,
    replace: bool = False,
    faults: bool = True,
    syntax: str | None = "jpeg-ls",
    workers: int = 1,
    progress: Report | None = None,
    **world: Any,
) -> TomosynthesisPhantoms:
    """Make a world of synthetic tomosynthesis volumes in the layout of BCS-DBT.

    Args:
        out: The folder to write.
        replace: Whether files that exist may be replaced.
        faults: Whether faults are planted.
        syntax: The encoding of the DICOM files; None to describe volumes that are drawn when they are read.
        workers: How many processes.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.
        **world: Fields of `World`, such as `vendors`, `patients` and `seed`.

    Returns:
        The vendors that were written.

    Raises:
        UserError: A value is not allowed, a library is missing, or the folder may not be replaced.
    """
    import json

    from elsewhere.phantom.tomosynthesis_layout import PLANTED, write_world
    from elsewhere.phantom.tomosynthesis_patients import SIZES, World
    from elsewhere.tables import read_table

    if "seed" in world:
        check_seed(world["seed"])
    start = time.perf_counter()
    spec = World(**world)
    out = Path(out)
    check_out(out, replace=replace)
    write_world(spec, out, replace=replace, faults=faults, syntax=syntax, workers=workers, progress=progress)
    truth = read_table(out / "truth.csv")
    planted = json.loads((out / PLANTED).read_text(encoding="utf-8"))
    boxes = Counter(lesion["vendor"] for lesion in planted.pop("lesions"))
    made = []
    for name in spec.vendors:
        mine = truth[truth["vendor"] == name]
        slices = mine["slices"].astype(int)
        made.append(
            {
                "name": name,
                "manufacturer": str(mine["manufacturer"].iloc[0]),
                "patients": int(mine["patient_id"].nunique()),
                "volumes": len(mine),
                "findings": dict(sorted(Counter(mine["finding"]).items())),
                "splits": dict(sorted(Counter(mine["split"]).items())),
                "boxes": boxes[name],
                "rows": int(mine["rows"].astype(int).max()),
                "slices": [int(slices.min()), int(slices.max())],
            }
        )
    return TomosynthesisPhantoms(
        vendors=tuple(made),
        planted=planted,
        protocol=SIZES[spec.size].protocol,
        path=out,
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True, kw_only=True)
class ReaderStudyPhantom:
    """A synthetic reader study.

    Args:
        path: The workbook that was written.
        counts: Numbers of cases, lesions, readers, treatments and marks.
    """

    path: Path
    counts: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            Plain values by name.
        """
        return {"path": str(self.path), "counts": self.counts}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        yield ", ".join(f"{count} {name}" for name, count in self.counts.items())
        yield f"written: {self.path}"
        yield f"next: elsewhere readers {self.path}"


def reader_study(
    out: str | Path, *, replace: bool = False, form: str = "newer", seed: int = 1, **world: Any
) -> ReaderStudyPhantom:
    """Make a synthetic reader study as the workbook of a JAFROC study.

    Args:
        out: The workbook to write (.xlsx).
        replace: Whether a file that exists may be replaced.
        form: 'newer' or 'older', the published forms of the workbook.
        seed: The seed of every draw.
        **world: Fields of `ReaderWorld`, such as `readers` and `effect`.

    Returns:
        The workbook and its counts.

    Raises:
        UserError: A value is not allowed, or the file may not be replaced.
    """
    import numpy as np

    from elsewhere.phantom.reader_study import ReaderWorld, draw_reader_study, write_reader_study

    check_seed(seed)
    if form not in ("newer", "older"):
        raise unknown_name("form", form, ["newer", "older"])
    spec = ReaderWorld(**world)
    study = draw_reader_study(spec, np.random.default_rng(seed))
    path = write_reader_study(study, out, form="older" if form == "older" else "newer", replace=replace)
    marks = [*study.marks.values(), *[*study.model_marks.values()][:1]]
    return ReaderStudyPhantom(
        path=path,
        counts={
            "cases": study.truth.n_cases,
            "lesions": len(study.truth.case),
            "readers": spec.readers,
            "treatments": len(spec.treatments),
            "marks": sum(one.case.size for one in marks),
        },
    )
