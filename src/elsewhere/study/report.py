"""The report of a study: one HTML file that opens offline, and its tables as csv beside it (US-24, US-25).

The look, the templates and the privacy rules are those of `elsewhere.report`. No pixel of a patient is in it
unless pictures are given (relevance maps, on request), and no name of a case or patient ever.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from elsewhere.errors import UserError
from elsewhere.report.blocks import Note, Pair, Picture, Section
from elsewhere.report.page import MOST_BYTES, _environment, _with_pictures
from elsewhere.report.privacy import Redactor
from elsewhere.study.figures import inline_figures, study_figures
from elsewhere.study.report_back import audit, how, paper, provenance
from elsewhere.study.report_compare import comparisons, margins, multi_source, without
from elsewhere.study.report_first import first_page
from elsewhere.study.report_sections import home_and_away, transfers, who
from elsewhere.study.report_trust import abstention, calibration, normal
from elsewhere.tables.writing import write_json, write_table, write_text

if TYPE_CHECKING:
    from elsewhere.study.analysis import StudySummary

Pictures = Sequence[str | Path] | Mapping[str, str | Path]
_ORDER = (
    who,
    home_and_away,
    transfers,
    comparisons,
    without,
    margins,
    multi_source,
    calibration,
    normal,
    abstention,
)
_CSS = """
.pair{grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr))}
.pair.one{grid-template-columns:minmax(0,520px)}
tbody th{min-width:7.6em}
.prose+.prose{margin-top:.8em}
figure img{display:block;width:100%;height:auto;max-width:560px}
"""


def render_study_report(
    summary: StudySummary, *, title: str | None = None, pictures: Pictures | None = None
) -> str:
    """The page as text. `pictures`: PNG files by caption, shown as relevance maps (US-23)."""
    redact = Redactor(summary.ids)
    specs = study_figures(summary)
    drawn = inline_figures(summary)
    relevance = _images(pictures)
    warnings = [redact.text(w) for w in summary.warnings]
    first = first_page(summary, title=title, warnings=[_capital(w) for w in warnings])
    made: list[Section | None] = [make(summary, specs) for make in _ORDER]
    made += [
        _relevance(relevance),
        paper(summary, specs),
        audit(summary, specs, redact.tree),
        how(summary, specs),
        provenance(summary, specs),
    ]
    sections = [_with_pictures(s, drawn | relevance) for s in made if s is not None and s.blocks]
    css = resources.files("elsewhere.report").joinpath("templates", "style.css").read_text(encoding="utf-8")
    page = (
        _environment()
        .get_template("page.html.j2")
        .render(
            first=first,
            verdict_figure=_again(drawn.get("drop", "")),
            verdict_alt=specs["drop"].title if "drop" in specs else "",
            sections=sections,
            css=css + _CSS,
            version=str(summary.provenance.get("elsewhere") or ""),
            created="",
            cohort=str(summary.provenance.get("study_table") or "")[:12],
        )
    )
    return "\n".join(line.rstrip() for line in page.splitlines() if line.strip()) + "\n"


def _again(svg: str) -> str:
    """The same picture a second time on the page: its ids must differ."""
    return svg.replace('"drop-', '"first-drop-').replace("#drop-", "#first-drop-")


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _images(pictures: Pictures | None) -> dict[str, str]:
    """The given PNG files as elements of the page, by caption."""
    if not pictures:
        return {}
    given = (
        {str(k): Path(v) for k, v in pictures.items()}
        if isinstance(pictures, Mapping)
        else {Path(p).stem.replace("_", " "): Path(p) for p in pictures}
    )
    out = {}
    for caption, path in given.items():
        if not path.is_file():
            raise UserError("there is no such picture", where=str(path), fix="Make the relevance maps first.")
        content = path.read_bytes()
        if not content.startswith(b"\x89PNG"):
            raise UserError("this picture is no PNG", where=str(path))
        data = base64.b64encode(content).decode()
        out[caption] = f'<img alt="{escape(caption, quote=True)}" src="data:image/png;base64,{data}">'
    return out


def _relevance(images: Mapping[str, str]) -> Section | None:
    if not images:
        return None
    return Section(
        id="relevance",
        title="Where the models look",
        short="Relevance maps",
        lead="Grad-CAM for the CNN, occlusion for the ViT, on chosen cases. They hold pixels of patients, on request.",
        blocks=[
            Pair(pictures=[Picture(name=name, caption=name, alt=name) for name in images]),
            Note(
                text="A map shows what moved one answer of one network. It is no evidence that the answer is right."
            ),
        ],
    )


def write_study_report(
    summary: StudySummary, out: str | Path, *, pictures: Pictures | None = None, title: str | None = None
) -> Path:
    """`report.html`, `summary.json` and `tables/*.csv` under `out`; returns the report's path."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    html = render_study_report(summary, title=title, pictures=pictures)
    if len(html.encode()) > MOST_BYTES:
        raise UserError(
            f"the report would have {len(html.encode()) / 1e6:.1f} MB, and its limit is {MOST_BYTES / 1e6:.0f}",
            where=str(folder / "report.html"),
            fix="Give fewer or smaller pictures.",
        )
    for name, table in summary.tables.items():
        write_table(table, folder / "tables" / f"{name}.csv")
    write_json(summary.to_dict(), folder / "summary.json")
    write_text(html, folder / "report.html")
    return folder / "report.html"
