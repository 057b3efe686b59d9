"""Figures by name: how a page refers to them, and how they become SVG elements or files.

matplotlib is imported at the first figure, never at import. Output is the same byte for byte for the same
input: the hash salt is fixed and no date is written.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elsewhere.errors import UserError
from elsewhere.files import staged_files
from elsewhere.report.page import canvas
from elsewhere.report.page.blocks import Picture
from elsewhere.report.page.canvas import Palette
from elsewhere.untrusted import file_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "pdf", "png")


@dataclass(frozen=True, kw_only=True)
class FigureSpec:
    """One figure: what it is called, what it says, and how it is drawn.

    Attributes:
        name: Its name on the page and its file name.
        title: The caption.
        alt: What the figure shows, with its numbers, for a reader who does not see it.
        build: Draws it in the given colours.
    """

    name: str
    title: str
    alt: str
    build: Callable[[Palette], Figure]


Specs = Mapping[str, FigureSpec]


def picture(specs: Specs, name: str, caption: str = "", *, wide: bool = False) -> Picture | None:
    """Place a figure in a section.

    Args:
        specs: The figures of the page.
        name: The figure's name.
        caption: Another caption than the figure's own title.
        wide: Whether it takes the whole width.

    Returns:
        The block, or None where the page has no such figure.
    """
    spec = specs.get(name)
    return Picture(name=name, caption=caption or spec.title, alt=spec.alt, wide=wide) if spec else None


def pictures(specs: Specs, prefix: str) -> list[Picture]:
    """Place every figure whose name begins with `prefix`.

    Args:
        specs: The figures of the page.
        prefix: The beginning of their names.

    Returns:
        Their blocks, in the order of `specs`.
    """
    return [p for p in (picture(specs, name) for name in specs if name.startswith(prefix)) if p]


def inline_figures(specs: Specs, *, skip: Sequence[str] = ()) -> dict[str, str]:
    """Draw figures as SVG elements in the page's own colours.

    Args:
        specs: The figures of the page.
        skip: Names that the page shows in another form.

    Returns:
        The SVG element of each figure by name.
    """
    out: dict[str, str] = {}
    for name, spec in specs.items():
        if name in skip:
            continue
        with canvas.drawing():
            out[name] = canvas.inline(spec.build(canvas.STAND_IN), name, spec.alt)
    return out


def save_figures(
    specs: Specs, directory: str | Path, formats: Sequence[str] = FORMATS, *, replace: bool = False
) -> list[Path]:
    """Write each figure as `<name>.<format>`, all or none.

    Args:
        specs: The figures to write.
        directory: The folder to write to.
        formats: Any of svg, pdf and png.
        replace: Whether files of these names that are there already may be replaced.

    Returns:
        The paths that were written.

    Raises:
        UserError: A format is not known, or a file exists and `replace` is not set.
    """
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise UserError(f"unknown figure format '{unknown[0]}'", fix=f"Known: {', '.join(FORMATS)}.")
    folder = Path(directory)
    written: list[Path] = []
    with staged_files(folder, replace=replace) as staged:
        for name, spec in specs.items():
            for kind in formats:
                with canvas.drawing():
                    save_figure(spec.build(canvas.LIGHT), staged / f"{file_name(name)}.{kind}", kind)
                written.append(folder / f"{file_name(name)}.{kind}")
    return written


def save_figure(figure: Figure, path: Path, kind: str) -> None:
    """Write one figure on white, without a date.

    Args:
        figure: The figure as it was drawn.
        path: The file to write.
        kind: svg, pdf or png.
    """
    figure.patch.set_alpha(1)
    figure.patch.set_facecolor("#ffffff")
    by_kind: dict[str, dict[str, Any]] = {
        "svg": {"Date": None, "Creator": "elsewhere"},
        "pdf": {"CreationDate": None, "Creator": "elsewhere", "Producer": "elsewhere"},
        "png": {"Software": None},
    }
    # Drawn in memory first: the pdf writer hides the system's own error where the disk is full.
    drawn = io.BytesIO()
    figure.savefig(drawn, format=kind, metadata=by_kind[kind])
    path.write_bytes(drawn.getvalue())
