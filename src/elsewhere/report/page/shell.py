"""The report: one HTML file that opens offline, on a phone, in the dark and on paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from elsewhere.errors import UserError
from elsewhere.files import write_bytes
from elsewhere.report.page.blocks import Fold, Pair, Picture, Section
from elsewhere.report.page.numbers import count
from elsewhere.report.page.redaction import Redactor
from elsewhere.report.result import sections, sections_more, subgroups
from elsewhere.report.result.figures import figure_specs, inline_figures
from elsewhere.report.result.first_page import first_page
from elsewhere.report.result.prepare import Prepared, prepare

MOST_BYTES = 2_000_000
_ORDER = (
    sections.who,
    sections.discrimination,
    sections.operating_point,
    sections.calibration,
    subgroups.subgroups,
    sections.sites,
    sections.case_mix,
    sections_more.clinical,
    sections_more.size_strata,
    sections_more.difficulty,
    sections.worst_cases,
    sections_more.comparison,
    sections_more.ranking,
    sections_more.more,
    sections_more.audit,
    sections_more.methods,
    sections_more.checklist,
    sections_more.provenance,
)


def build_sections(data: Prepared) -> list[Section]:
    """The sections this summary has, in the order of the page, without their pictures."""
    specs = figure_specs(data)
    return [s for s in (make(data, specs) for make in _ORDER) if s is not None and s.blocks]


def render_report(
    summary: Mapping[str, Any] | Prepared,
    *,
    title: str | None = None,
    redact: Iterable[Any] | Redactor = (),
) -> str:
    """The whole page as text. `redact`: ids of all inputs, taken out of every text that names one."""
    if not isinstance(summary, Mapping | Prepared):
        raise UserError("the report needs a summary", fix="Give the object that summary.json holds.")
    data = prepare(summary, redact=redact)
    drawn = inline_figures(data)
    environment = page_environment()
    page = environment.get_template("page.html.j2").render(
        first=first_page(data, title=title),
        verdict_figure=drawn.get("verdict", ""),
        verdict_alt=figure_specs(data)["verdict"].title if "verdict" in drawn else "",
        sections=[with_pictures(s, drawn) for s in build_sections(data)],
        css=_read("style.css"),
        version=data.data.get("elsewhere") or "",
        created=str(data.data.get("created") or "")[:10],
        cohort=str(data.part("provenance").get("cohort_hash") or "")[:12],
    )
    return "\n".join(line.rstrip() for line in page.splitlines() if line.strip()) + "\n"


def write_report(
    summary: Mapping[str, Any] | Prepared,
    path: str | Path,
    *,
    title: str | None = None,
    redact: Iterable[Any] | Redactor = (),
) -> Path:
    """The page, written whole or not at all."""
    target = Path(path)
    html = render_report(summary, title=title, redact=redact)
    write_bytes(html.encode("utf-8", "backslashreplace"), target)
    return target


def _read(name: str) -> str:
    return resources.files("elsewhere.report").joinpath("templates", name).read_text(encoding="utf-8")


def page_environment() -> Any:
    from jinja2 import DictLoader, Environment, StrictUndefined

    loader = DictLoader({name: _read(name) for name in ("page.html.j2", "blocks.html.j2")})
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["num"] = count
    return environment


def with_pictures(section: Section, drawn: Mapping[str, str]) -> Section:
    return replace(section, blocks=[_filled(block, drawn) for block in section.blocks])


def _filled(block: Any, drawn: Mapping[str, str]) -> Any:
    if isinstance(block, Picture):
        return replace(block, svg=drawn.get(block.name, ""))
    if isinstance(block, Pair):
        return replace(block, pictures=[replace(p, svg=drawn.get(p.name, "")) for p in block.pictures])
    if isinstance(block, Fold):
        return replace(block, blocks=[_filled(b, drawn) for b in block.blocks])
    return block
