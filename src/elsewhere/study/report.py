"""The report of a study: one HTML file that opens offline, and its tables as csv beside it (US-24, US-25).

The look, the templates and the privacy rules are those of `elsewhere.report`. No pixel of a patient is in it
unless pictures are given (relevance maps, on request), and no name of a case or patient ever.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elsewhere.errors import UserError
from elsewhere.files import staged_directory
from elsewhere.privacy import KEY_FILE, Redactor, write_pairs
from elsewhere.report.page.blocks import Heading, Note, Pair, Picture, Section, Table, cnt, num, pct, text
from elsewhere.report.page.shell import MOST_BYTES, environment, with_pictures
from elsewhere.study.figures import inline_figures, study_figures
from elsewhere.study.recipe_privacy import redacted_table
from elsewhere.study.report_back import audit, how, paper, provenance
from elsewhere.study.report_compare import comparisons, margins, multi_source, without
from elsewhere.study.report_first import first_page, told_warnings
from elsewhere.study.report_sections import home_and_away, transfers, who
from elsewhere.study.report_trust import abstention, calibration, normal
from elsewhere.tables.writing import to_jsonable, write_json, write_table, write_text

if TYPE_CHECKING:
    import pandas as pd

    from elsewhere.study.analysis import StudySummary
    from elsewhere.study.relevance import Relevance

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
table.stacked td.n .sub{display:block;margin-left:0}
figure img{display:block;width:100%;height:auto;max-width:560px}
"""


def render_study_report(
    summary: StudySummary, *, title: str | None = None, maps: Relevance | None = None
) -> str:
    """The page as text. `maps`: relevance maps (US-23), which are pixels of patients."""
    redact = Redactor(summary.ids)
    specs = study_figures(summary)
    drawn = inline_figures(summary)
    relevance, looked = _relevance(maps)
    first = first_page(summary, title=title, clean=redact.text)
    made: list[Section | None] = [make(summary, specs) for make in _ORDER]
    made += [
        relevance,
        paper(summary, specs),
        audit(summary, specs, redact.tree),
        how(summary, specs),
        provenance(summary, specs),
    ]
    sections = [with_pictures(s, drawn | looked) for s in made if s is not None and s.blocks]
    css = resources.files("elsewhere.report").joinpath("templates", "style.css").read_text(encoding="utf-8")
    page = (
        environment()
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


def _relevance(maps: Relevance | None) -> tuple[Section | None, dict[str, str]]:
    """The section, and the pictures of it by name."""
    if maps is None or not maps.runs:
        return None, {}
    drawn: dict[str, str] = {}
    blocks: list[Any] = [_numbers(maps)]
    for one in maps.runs:
        check = one.summary["sanity"]
        blocks.append(Heading(text=one.name))
        if not check["passed"]:
            blocks.append(
                Note(text=f"The sanity check failed: {check['reason']}. Do not read these maps.", tone="warn")
            )
        blocks += [Note(text=_capital(told) + ".", tone="warn") for told in one.summary["warnings"]]
        shown = []
        for at, (caption, content) in enumerate(one.pictures):
            name = f"relevance, {one.name}, {at}"
            data = base64.b64encode(content).decode()
            drawn[name] = f'<img alt="{escape(caption, quote=True)}" src="data:image/jpeg;base64,{data}">'
            shown.append(Picture(name=name, caption=caption, alt=caption))
        blocks.append(Pair(pictures=shown))
    if maps.left:
        blocks.append(Note(text=f"{maps.left} more runs have kept weights: `elsewhere explain` draws them."))
    return Section(
        id="relevance",
        title="Where the models look",
        short="Relevance maps",
        lead="Grad-CAM for a CNN, occlusion for a transformer, first seed. The cases are chosen by rule: the surest right and "
        "the surest wrong answer on a malignant and on a benign lesion. These are pixels of patients, shown on request.",
        blocks=blocks,
    ), drawn


def _numbers(maps: Relevance) -> Table:
    cells = [
        [
            text(one.name, sub=one.summary["method"]),
            cnt(one.summary["with_region"]),
            pct(one.summary["share_inside"], 0),
            pct(one.summary["area_inside"], 0),
            pct(one.summary["hits"], 0),
            num(one.summary["sanity"]["rank_correlation"], 2),
            text("passed" if one.summary["sanity"]["passed"] else "failed"),
        ]
        for one in maps.runs
    ]
    return Table(
        name="relevance",
        caption="How much of the relevance lies in the lesion",
        columns=[
            "Run",
            "Cases",
            "Relevance inside",
            "Lesion's share of the input",
            "Largest value inside",
            "Likeness to random weights",
            "Sanity check",
        ],
        rows=cells,
        note="A map that knows nothing has as much relevance inside as the lesion covers. Likeness: rank correlation with the maps of "
        "networks with random weights; from 0.5 the check fails. Flat maps have no share and are not counted. A map shows what moved "
        "one answer of one network; it is no evidence that the answer is right.",
    )


def write_study_report(
    summary: StudySummary,
    out: str | Path,
    *,
    maps: Relevance | None = None,
    title: str | None = None,
    key_file: bool = True,
) -> Path:
    """`report.html`, `summary.json` and `tables/*.csv` under `out`; returns the report's path.

    Ids are taken out of all of them; `case_key.csv` says which, unless `key_file` is False (in a bundle).
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    html = render_study_report(summary, title=title, maps=maps)
    if len(html.encode()) > MOST_BYTES:
        raise UserError(
            f"the report would have {len(html.encode()) / 1e6:.1f} MB, and its limit is {MOST_BYTES / 1e6:.0f}",
            where=str(folder / "report.html"),
            fix="Keep the weights of fewer scenarios, or leave --pictures out.",
        )
    tables = dict(summary.tables)
    if maps is not None and maps.runs:
        tables["relevance"] = maps.table()
    redact = Redactor(summary.ids)
    write_tables({name: redacted_table(table, redact) for name, table in tables.items()}, folder / "tables")
    shared = summary.to_dict() | {"warnings": told_warnings(summary, redact.text)}
    write_json(redact.summary(to_jsonable(shared)), folder / "summary.json")
    if key_file and redact.originals:
        write_pairs(folder / KEY_FILE, ("hash", "id"), redact.originals.items())
    write_text(html, folder / "report.html")
    return folder / "report.html"


def write_tables(tables: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """A csv each. Tables of an earlier run that this one does not have go: they would pass for its own. Files that
    Elsewhere did not write there stay."""
    files = [f"{name}.csv" for name in tables]
    with staged_directory(folder, replace=True, owned=lambda _: files) as staged:
        for name, table in tables.items():
            write_table(table, staged / f"{name}.csv")
