"""`slides stain`: a picture, a folder of pictures, or a slide with the stains of another (LN-03)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.commands.output import Report
from elsewhere.commands.slide_store import stain_spec
from elsewhere.errors import EXIT_INCOMPLETE, EXIT_OK, UserError
from elsewhere.files import check_out, check_out_file, replacing, staged_directory
from elsewhere.inputs.patches.spec import StainSpec, fit_to_dict
from elsewhere.inputs.slides.grid.geometry import PATCH_MPP, PATCH_PX, lay_grid
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.slide import Slide
from elsewhere.inputs.slides.stain_target import fit_stain, is_picture, open_picture, read_around
from elsewhere.inputs.slides.stained_slide import COMPRESSIONS, write_stained
from elsewhere.inputs.slides.tissue import saturation
from elsewhere.inputs.stain.fits import STATUSES
from elsewhere.inputs.stain.normalise import COUNTED, METHODS, Fit, fit_slide, normalise

PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
SAMPLES = 8
SAMPLE_PX = 256
LEAST_SATURATION = 20
_MOST_SHOWN = 40
_AS_EXPECTED = ("normalised", "background pixels")
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class StainSettings:
    """How stains are normalised.

    Attributes:
        target: The name of a target such as "study", or a picture or slide.
        method: "macenko", "vahadane" or "reinhard".
        fit: "slide": one fit for the slide, or for all pictures together; "patch": each picture its own; "" for "slide"
            of a slide and "patch" of pictures.
        background: "keep" or "transform".
        mpp: Microns per pixel of level 0 of a slide, where the file states none or a wrong one.
        out_mpp: Microns per pixel of the slide that is written; None for those of the slide.
        compression: Of the slide that is written: "jpeg" or "deflate".
    """

    target: str = "study"
    method: str = "macenko"
    fit: str = ""
    background: str = "keep"
    mpp: float | None = None
    out_mpp: float | None = None
    compression: str = "jpeg"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """A part before and after, for the page.

    Attributes:
        before: Its pixels.
        after: Its pixels with the stains of the target.
        fit: Its fit before; that of the slide where there is one.
        fit_after: Its own fit after.
    """

    before: Pixels
    after: Pixels
    fit: Fit
    fit_after: Fit


@dataclass(frozen=True, kw_only=True)
class StainReport:
    """What was normalised.

    Attributes:
        samples: Parts before and after, for the page.
        out: What was written.
        kind: "picture", "folder" or "slide".
        spec: The method and its target.
        counts: How often each thing of `COUNTED` happened.
        fit: The fit of the slide, or of all pictures together; None where each has its own.
        refused: Pictures that cannot be read, with the reason.
        size_px: Width and height of the slide that was written; None for pictures.
        lossy: Whether it was written with loss.
        page: The page that was written; None where none was.
        ignored: Files of the folder that are no pictures by their ending.
    """

    out: Path
    kind: str
    spec: StainSpec
    counts: Mapping[str, int]
    fit: Fit | None = None
    refused: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    size_px: tuple[int, int] | None = None
    lossy: bool = False
    page: Path | None = None
    ignored: int = 0
    samples: tuple[Sample, ...] = field(default=(), repr=False)

    @property
    def words(self) -> str:
        """The method and its target in a few words."""
        shown = self.spec.words()
        return (
            shown
            if self.kind == "slide"
            else shown.replace("per patch", "per picture").replace("per slide", "for all pictures")
        )

    def counted(self) -> list[tuple[str, str]]:
        """Say what was counted, without the zeros.

        Returns:
            The name in `COUNTED` and a line for each.
        """
        return [(name, f"{n:,} {_words(name, self.kind)}") for name, n in self.counts.items() if n]

    @property
    def exit_code(self) -> int:
        """0, or 5 where some pictures could not be read."""
        return EXIT_INCOMPLETE if self.refused else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The counts, the fit, and what was refused.
        """
        return {
            "out": str(self.out),
            "kind": self.kind,
            "stain": self.spec.to_dict(),
            "counts": dict(self.counts),
            "fit": None if self.fit is None else fit_to_dict(self.fit),
            "size_px": None if self.size_px is None else list(self.size_px),
            "lossy": self.lossy,
            "ignored": self.ignored,
            "refused": [{"file": name, **error} for name, error in self.refused],
            "page": None if self.page is None else str(self.page),
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        yield f"stain: {self.words}"
        if self.fit is not None:
            yield from _fit_lines(self.fit)
        for _, line in self.counted():
            yield line
        if self.ignored:
            yield f"{self.ignored:,} files of other kinds were left alone"
        for name, error in self.refused[:_MOST_SHOWN]:
            yield f"{name}: not read: {error['error']}" + (f"\n  {error['fix']}" if error["fix"] else "")
        if self.size_px is not None:
            loss = (
                ", JPEG of quality 95 (lossy; --compression deflate keeps every byte)" if self.lossy else ""
            )
            yield f"written: {self.out} ({self.size_px[0]:,} x {self.size_px[1]:,} px{loss})"
        else:
            yield f"written: {self.out}"
        if self.page is not None:
            yield f"page: {self.page} (it holds parts of the pictures)"


def stain(
    source: Path,
    *,
    out: Path,
    settings: StainSettings | None = None,
    page: Path | None = None,
    replace: bool = False,
    progress: Report | None = None,
) -> StainReport:
    """Give a picture, the pictures of a folder, or a slide the stains of a target.

    Args:
        source: A picture, a folder of pictures, or a slide.
        out: What to write: a .png file, a folder, or a .tif file.
        settings: How stains are normalised; None for the defaults.
        page: A page to write that shows parts before and after; None for none.
        replace: Whether what exists may be replaced.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        What was done.

    Raises:
        UserError: The input or the target cannot be used, a slide has no two stains, or a file may not be written.
        FileSystemError: The disk is full or refuses.
    """
    settings = settings or StainSettings()
    check_out_file(page, replace=replace, inputs=[source])
    if settings.compression not in COMPRESSIONS:
        raise UserError(
            f"compression is '{settings.compression}'", fix=f"Give one of: {', '.join(COMPRESSIONS)}."
        )
    if not source.exists():
        raise UserError("there is no such picture, folder or slide", where=str(source))
    if source.is_dir():
        made = _folder(source, out, settings, replace, progress)
    elif is_picture(source):
        made = _picture(source, out, settings, replace)
    else:
        made = _slide(source, out, settings, replace, progress)
    if page is None:
        return made
    from dataclasses import replace as changed

    from elsewhere.report.stain import StainedPart, write_page

    write_page(
        [
            StainedPart(
                before=sample.before,
                after=sample.after,
                fit=fit_to_dict(sample.fit),
                fit_after=fit_to_dict(sample.fit_after),
            )
            for sample in made.samples
        ],
        page,
        title=made.words,
        counts=[line for name, line in made.counted() if name in _AS_EXPECTED],
        warnings=[line for name, line in made.counted() if name not in _AS_EXPECTED],
    )
    return changed(made, page=page)


def _spec_of(settings: StainSettings, fit: str) -> StainSpec:
    found = stain_spec(settings.target, method=settings.method, fit=settings.fit or fit)
    if found is None:
        raise UserError("the target is 'none'", fix="Name a target: study, or a picture, or a slide.")
    return found


def _picture(source: Path, out: Path, settings: StainSettings, replace: bool) -> StainReport:
    _check_ending(out, ".png", "a normalised picture")
    check_out_file(out, replace=replace, inputs=[source, settings.target])
    spec = _spec_of(settings, "patch")
    pixels = open_picture(source)
    done = normalise([pixels], spec.target, fit="patch", method=spec.method, background=settings.background)
    _save(done.patches[0], out)
    sample = Sample(
        before=pixels,
        after=done.patches[0],
        fit=done.fits[0],
        fit_after=METHODS[spec.method](done.patches[0]),
    )
    return StainReport(
        out=out, kind="picture", spec=spec, counts=done.counts, fit=done.fits[0], samples=(_cut(sample),)
    )


def _folder(
    source: Path, out: Path, settings: StainSettings, replace: bool, progress: Report | None
) -> StainReport:
    check_out(out, replace=replace, inputs=[source, settings.target])
    spec = _spec_of(settings, "patch")
    entries = [path for path in sorted(source.rglob("*")) if path.is_file() and not path.name.startswith(".")]
    files = [path for path in entries if path.suffix.lower() in PICTURE_ENDINGS]
    names = {path: path.relative_to(source).as_posix() for path in files}
    if not files:
        raise UserError(
            "there are no pictures in this folder",
            where=str(source),
            fix=f"Known endings: {', '.join(PICTURE_ENDINGS)}.",
        )
    stems = Counter(path.with_suffix("") for path in files)
    twice = [names[path] for path in files if stems[path.with_suffix("")] > 1]
    if twice:
        raise UserError(
            f"several pictures have one name but for the ending: {', '.join(twice[:4])}",
            where=str(source),
            fix="Rename them: each is written as NAME.png.",
        )
    refused: dict[str, UserError] = {}
    shared = _shared_fit(names, spec, refused) if spec.fit == "slide" else None
    counts: Counter[str] = Counter()
    samples: list[Sample] = []
    wanted = set(np.linspace(0, len(files) - 1, min(SAMPLES, len(files))).astype(int).tolist())
    with staged_directory(out, replace=replace, inputs=[source]) as staged:
        for number, path in enumerate(files):
            if names[path] not in refused:
                try:
                    pixels = open_picture(path)
                except UserError as error:
                    refused[names[path]] = error
                    continue
                done = normalise(
                    [pixels],
                    spec.target,
                    fit="patch" if shared is None else shared,
                    method=spec.method,
                    background=settings.background,
                )
                counts.update(done.counts)
                _save(done.patches[0], (staged / names[path]).with_suffix(".png"))
                if number in wanted:
                    after = METHODS[spec.method](done.patches[0])
                    samples.append(
                        _cut(Sample(before=pixels, after=done.patches[0], fit=done.fits[0], fit_after=after))
                    )
            if progress is not None:
                progress("pictures", number + 1, len(files))
        if len(refused) == len(files):
            name, first = next(iter(refused.items()))
            raise UserError(
                f"no picture can be read; the first, {name}: {first.what}", where=str(source), fix=first.fix
            )
    return StainReport(
        out=out,
        kind="folder",
        spec=spec,
        counts=dict(counts),
        fit=shared,
        refused=tuple((name, error.to_dict()) for name, error in refused.items()),
        samples=tuple(samples),
        ignored=len(entries) - len(files),
    )


def _shared_fit(files: Mapping[Path, str], spec: StainSpec, refused: dict[str, UserError]) -> Fit:
    def pictures() -> Iterator[Pixels]:
        for path, name in files.items():
            try:
                yield open_picture(path)
            except UserError as error:
                refused[name] = error

    return fit_slide(pictures(), method=spec.method)


def _slide(
    source: Path, out: Path, settings: StainSettings, replace: bool, progress: Report | None
) -> StainReport:
    _check_ending(out, ".tif", "a normalised slide")
    check_out_file(out, replace=replace, inputs=[source, settings.target])
    spec = _spec_of(settings, "slide")
    if spec.fit == "patch":
        raise UserError(
            "a slide is normalised by one fit: fits of its patches would leave seams",
            fix="Leave --fit out, or pack its patches: elsewhere slides pack --stain-fit patch.",
        )
    with open_slide(source, mpp=settings.mpp) as slide:
        grid = lay_grid(slide, mpp=max(PATCH_MPP, slide.mpp), size_px=PATCH_PX)
        fit = fit_stain(slide, grid, method=spec.method)
        if not fit.is_fitted:
            raise UserError(
                f"the slide cannot be normalised: {STATUSES[fit.status]}",
                where=str(source),
                fix="Look at it with elsewhere slides show; a slide without tissue keeps its colours.",
            )
        counts: Counter[str] = Counter()

        def change(pixels: Pixels) -> Pixels:
            done = normalise(
                [pixels], spec.target, fit=fit, method=spec.method, background=settings.background
            )
            counts["background pixels"] += done.counts["background pixels"]
            counts["weak stain"] = done.counts["weak stain"]
            return done.patches[0]

        size = write_stained(
            slide,
            out,
            change,
            mpp=settings.out_mpp,
            compression=settings.compression,
            progress=progress,
        )
        samples = tuple(_slide_samples(slide, spec, fit, settings))
    return StainReport(
        out=out,
        kind="slide",
        spec=spec,
        counts={name: n for name, n in counts.items() if n},
        fit=fit,
        size_px=size,
        lossy=settings.compression == "jpeg",
        samples=samples,
    )


def _slide_samples(slide: Slide, spec: StainSpec, fit: Fit, settings: StainSettings) -> Iterator[Sample]:
    """Patches of tissue, evenly over the slide."""
    grid = lay_grid(slide, mpp=max(PATCH_MPP, slide.mpp), size_px=SAMPLE_PX)
    wanted = np.zeros((grid.rows, grid.columns), bool)
    wanted.flat[np.linspace(0, wanted.size - 1, min(8 * SAMPLES, wanted.size)).astype(int)] = True
    shown = 0
    for patch in read_around(slide, grid, wanted, []):
        if shown == SAMPLES or (saturation(patch.pixels) > LEAST_SATURATION).mean() < 0.1:
            continue
        shown += 1
        done = normalise(
            [patch.pixels], spec.target, fit=fit, method=spec.method, background=settings.background
        )
        yield Sample(
            before=patch.pixels,
            after=done.patches[0],
            fit=fit,
            fit_after=METHODS[spec.method](done.patches[0]),
        )


def _cut(sample: Sample) -> Sample:
    """The middle of a large picture."""
    height, width = sample.before.shape[:2]
    top, left = max(0, (height - SAMPLE_PX) // 2), max(0, (width - SAMPLE_PX) // 2)
    part = np.s_[top : top + SAMPLE_PX, left : left + SAMPLE_PX]
    return Sample(
        before=sample.before[part].copy(),
        after=sample.after[part].copy(),
        fit=sample.fit,
        fit_after=sample.fit_after,
    )


def _save(pixels: Pixels, path: Path) -> None:
    from PIL import Image

    with replacing(path) as temporary:
        Image.fromarray(pixels).save(temporary, format="PNG")


def _check_ending(out: Path, ending: str, what: str) -> None:
    known = (ending, ".tiff") if ending == ".tif" else (ending,)
    if out.suffix.lower() not in known:
        raise UserError(
            f"{what} is written as {ending}", where=str(out), fix=f"Give a name that ends in {ending}."
        )


def _words(name: str, kind: str) -> str:
    words = COUNTED[name]
    return words if kind == "slide" else words.replace("patches", "pictures")


def _fit_lines(fit: Fit) -> Iterator[str]:
    plain = fit_to_dict(fit)
    if not fit.is_fitted:
        yield f"no stains were found: {STATUSES[fit.status]}"
        return
    for name in ("haematoxylin", "eosin", "concentrations", "mean", "sd"):
        if isinstance(plain.get(name), list):
            yield f"{name}: " + ", ".join(f"{value:.3f}" for value in plain[name])
