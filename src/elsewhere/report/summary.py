"""The report of a summary: one HTML file that opens offline, on a phone, in the dark and on paper.

A summary is of one model, of two that are compared, or of many that are ranked or merged. The page has the sections
of every part that the summary has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elsewhere.analysis.result.pictured import PicturedDetections
from elsewhere.analysis.result.pictured_slides import PicturedSlides
from elsewhere.errors import UserError
from elsewhere.files import write_bytes
from elsewhere.privacy import Redactor
from elsewhere.report.generalise import sections as domains
from elsewhere.report.generalise.figures import generalise_figures
from elsewhere.report.generalise.kinds import model_kinds
from elsewhere.report.generalise.plain_words import plain_words
from elsewhere.report.generalise.printed_rates import printed_rates
from elsewhere.report.generalise.shift import divided_drop, shift_figures
from elsewhere.report.generalise.strata import model_strata
from elsewhere.report.generalise.trade_off import trade_off
from elsewhere.report.leaderboard import curves, lesions
from elsewhere.report.leaderboard import sections as many
from elsewhere.report.leaderboard.figures import leaderboard_figures
from elsewhere.report.leaderboard.merging import merging
from elsewhere.report.page import strips
from elsewhere.report.page.blocks import Section
from elsewhere.report.page.figures import FORMATS, FigureSpec, inline_figures, save_figures
from elsewhere.report.page.shell import environment, read_template, with_pictures
from elsewhere.report.readers import sections as readers
from elsewhere.report.readers.figures import reader_figures
from elsewhere.report.result import cases, performance, provenance, sites, slide_masks, subgroups, thresholds
from elsewhere.report.result.figures import result_figures
from elsewhere.report.result.first_page import first_page
from elsewhere.report.result.prepare import Prepared, prepare
from elsewhere.report.result.slide_pictures import slides_section
from elsewhere.report.result.strips import pictures_section
from elsewhere.report.slide_ensembles import sections as slides
from elsewhere.report.slide_ensembles.figures import ensemble_figures

_ORDER = (
    merging,
    cases.who,
    performance.discrimination,
    slide_masks.slide_masks,
    performance.operating_point,
    thresholds.thresholds,
    thresholds.carried_threshold,
    performance.calibration,
    subgroups.subgroups,
    sites.sites,
    cases.case_mix,
    performance.clinical,
    sites.size_strata,
    many.ranking,
    curves.ranking_curves,
    lesions.published,
    many.comparison,
    lesions.hit_rules,
    lesions.who_finds_what,
    lesions.lesions_paired,
    many.difficulty,
    cases.worst_cases,
    plain_words,
    trade_off,
    domains.model_verdicts,
    model_strata,
    model_kinds,
    domains.by_fold,
    printed_rates,
    domains.operating_points,
    domains.model_ensembles,
    divided_drop,
    slides.slide_ensembles,
    slides.slide_random,
    slides.slide_confusion,
    slides.slide_published,
    readers.reader_study,
    readers.reader_panel,
    readers.reader_variance,
    provenance.more,
    provenance.audit,
    provenance.methods,
    provenance.checklist,
    provenance.provenance,
)


def figure_specs(summary: Mapping[str, Any] | Prepared) -> dict[str, FigureSpec]:
    """List the figures that a summary can have.

    Args:
        summary: The content of summary.json, or the same as `prepare` returned it.

    Returns:
        The figures by name, in the order of the page.
    """
    data = prepare(summary)
    return {
        spec.name: spec
        for spec in (
            *result_figures(data),
            *slide_masks.slide_mask_figures(data),
            *leaderboard_figures(data),
            *generalise_figures(data),
            *shift_figures(data),
            *ensemble_figures(data),
            *reader_figures(data),
        )
    }


def write_figures(
    summary: Mapping[str, Any] | Prepared,
    directory: str | Path,
    formats: Sequence[str] = FORMATS,
    *,
    replace: bool = False,
) -> list[Path]:
    """Write each figure of a summary as `<name>.<format>`, all or none.

    Args:
        summary: The content of summary.json, or the same as `prepare` returned it.
        directory: The folder to write to.
        formats: Any of svg, pdf and png.
        replace: Whether files of these names that are there already may be replaced.

    Returns:
        The paths that were written.

    Raises:
        UserError: A format is not known, or a file exists and `replace` is not set.

    Example:
        Write the figures of a result as SVG::

            write_figures(result.to_dict(), "figures", ("svg",))
    """
    return save_figures(figure_specs(summary), directory, formats, replace=replace)


def build_sections(
    data: Prepared, pictured: PicturedDetections | PicturedSlides | None = None
) -> list[Section]:
    """Make the sections that this summary has, in the order of the page, without their pictures.

    Args:
        data: The summary as it may be printed.
        pictured: Lesions and false positives in their slices, or slides, which stand before the worst cases; None for none.

    Returns:
        The sections that have content.
    """
    specs = figure_specs(data)
    found = []
    for make in _ORDER:
        if make is cases.worst_cases and pictured is not None:
            found.append(
                slides_section(pictured)
                if isinstance(pictured, PicturedSlides)
                else pictures_section(pictured)
            )
        found.append(make(data, specs))
    return [s for s in found if s is not None and s.blocks]


def render_report(
    summary: Mapping[str, Any] | Prepared,
    *,
    title: str | None = None,
    redact: Iterable[Any] | Redactor = (),
    pictured: PicturedDetections | PicturedSlides | None = None,
) -> str:
    """Render the whole page as text.

    Args:
        summary: The content of summary.json, or the same as `prepare` returned it.
        title: The title of the page; None for the question that the result answers.
        redact: Ids of all inputs, which are taken out of every text that names one.
        pictured: Lesions and false positives in their slices, or slides, as they may be shown; None for none. With them
            the page holds parts of patients' images.

    Returns:
        The HTML.

    Raises:
        UserError: What was given is no summary.

    Example:
        >>> html = render_report({"task": "classification", "metrics": {}})
        >>> html.lower().startswith("<!doctype html>")
        True
    """
    if not isinstance(summary, Mapping | Prepared):
        raise UserError("the report needs a summary", fix="Give the object that summary.json holds.")
    data = prepare(summary, redact=redact)
    specs = figure_specs(data)
    drawn = inline_figures(specs, skip=("flow",))
    template = environment().get_template("page.html.j2")
    page = template.render(
        first=first_page(data, title=title),
        verdict_figure=drawn.get("verdict", ""),
        verdict_alt=specs["verdict"].title if "verdict" in drawn else "",
        sections=[with_pictures(s, drawn) for s in build_sections(data, pictured)],
        css=read_template("style.css") + _picture_style(pictured),
        script=strips.script() if isinstance(pictured, PicturedDetections) else "",
        version=data.data.get("elsewhere") or "",
        created=str(data.data.get("created") or "")[:10],
        cohort=str(data.part("provenance").get("cohort_hash") or "")[:12],
    )
    return "\n".join(line.rstrip() for line in page.splitlines() if line.strip()) + "\n"


def _picture_style(pictured: PicturedDetections | PicturedSlides | None) -> str:
    if pictured is None:
        return ""
    return read_template("slides.css") if isinstance(pictured, PicturedSlides) else strips.style()


def write_report(
    summary: Mapping[str, Any] | Prepared,
    path: str | Path,
    *,
    title: str | None = None,
    redact: Iterable[Any] | Redactor = (),
    pictured: PicturedDetections | PicturedSlides | None = None,
) -> Path:
    """Write the page, whole or not at all.

    Args:
        summary: The content of summary.json, or the same as `prepare` returned it.
        path: The file to write.
        title: The title of the page; None for the question that the result answers.
        redact: Ids of all inputs, which are taken out of every text that names one.
        pictured: Lesions and false positives in their slices, or slides, as they may be shown; None for none. With them
            the page holds parts of patients' images.

    Returns:
        The path that was written.

    Raises:
        UserError: What was given is no summary.

    Example:
        Write the page of a result::

            write_report(result.to_dict(), "report.html")
    """
    target = Path(path)
    html = render_report(summary, title=title, redact=redact, pictured=pictured)
    write_bytes(html.encode("utf-8", "backslashreplace"), target)
    return target
