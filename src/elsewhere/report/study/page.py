"""The report of a study: one HTML file that opens offline, and its tables as csv files (US-24, US-25).

The page names no patient, and holds no pixels of a patient unless pictures were asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.analysis.study.design import Design, configuration
from elsewhere.analysis.study.summary import StudySummary
from elsewhere.errors import UserError
from elsewhere.files import staged_directory
from elsewhere.privacy import KEY_FILE, Redactor, write_key_file
from elsewhere.report.page.blocks import Pair, Picture, Section
from elsewhere.report.page.figures import FigureSpec, inline_figures, save_figures
from elsewhere.report.page.shell import MOST_BYTES, environment, read_template, with_pictures
from elsewhere.report.page.slider import script
from elsewhere.report.study.cells import Rows, rows_of, task_label
from elsewhere.report.study.pictures import CasePictures
from elsewhere.report.study.registry import figures, ordered_sections
from elsewhere.tables.writing import write_json, write_table, write_text

PRIVATE = ("runs",)
"""Tables that the study writes itself, outside of the report."""
_LISTS = re.compile(r": (\d+) \(.*\)(\.?)$")
_WEIGHTY = (" runs ", " seeds", "label", "network", "same pixels", "intervals", "invalid", "not ranked")


@dataclass(frozen=True, kw_only=True)
class StudyPage:
    """What a section of a study's report reads: the numbers, seen from one task or from the whole study.

    Args:
        summary: The numbers of the study.
        specs: The figures that the study has, by name.
        task: The task of the section; empty for a section of the whole study.
        pictures: Pictures of patients, where they were asked for.
        redact: Takes names of cases and patients out of texts.
    """

    summary: StudySummary
    specs: Mapping[str, FigureSpec] = field(default_factory=dict)
    task: str = ""
    pictures: CasePictures = field(default_factory=CasePictures)
    redact: Redactor = field(default_factory=Redactor)

    @property
    def headline(self) -> dict[str, Any]:
        """What the first page says of the task."""
        return dict(self.summary.headline["tasks"][self.task])

    @property
    def design(self) -> Design:
        """What varies in the task."""
        return self.summary.designs[self.task]

    @cached_property
    def board(self) -> dict[str, Any]:
        """The leading board of the task, as the headline lists it."""
        return next(b for b in self.summary.headline["boards"] if b["task"] == self.task and b["leading"])

    @property
    def metric(self) -> str:
        """What transfers and centres are compared by."""
        return str(self.headline["metric"])

    @cached_property
    def _configurations(self) -> dict[str, str]:
        runs = self.summary.tables["runs"].drop_duplicates("method")
        return {str(r["method"]): configuration(str(r["model"]), str(r["input"])) for r in rows_of(runs)}

    def method(self, name: Any) -> str:
        """Name a method for readers: 'CNN, ROI' for the pair 'cnn-roi', a recipe by its own name.

        Args:
            name: The method in the tables; 'overall' is the mean over all of them.

        Returns:
            The name.
        """
        return self._configurations.get(str(name), "All" if name == "overall" else str(name))

    def of(self, table: str, **where: Any) -> pd.DataFrame:
        """Find rows of a table, of the page's task where the table has tasks.

        Args:
            table: The name of the table.
            **where: Columns and the values they must have.

        Returns:
            The rows; an empty table where the study has no such table.
        """
        found = self.summary.tables.get(table, pd.DataFrame())
        if self.task and "task" in found.columns:
            where = {"task": self.task} | where
        return self.summary.of(table, **where)

    def rows(self, table: str, **where: Any) -> Rows:
        """Find rows of a table, as a list.

        Args:
            table: The name of the table.
            **where: Columns and the values they must have.

        Returns:
            One dictionary per row.
        """
        return rows_of(self.of(table, **where))

    def on_board(self, table: str, **where: Any) -> Rows:
        """Find rows of a table that belong to the leading board of the task.

        Args:
            table: The name of the table.
            **where: Columns and the values they must have.

        Returns:
            One dictionary per row.
        """
        return self.rows(table, board=self.board["board"], **where)

    def name(self, of: str) -> str:
        """Name a figure, a table or a section of the task, unique on the page.

        Args:
            of: The name within the task.

        Returns:
            The name, with the task before it where the page has a task.
        """
        return f"{self.task}-{of}" if self.task else of

    def pair(self, *names: str) -> list[Pair]:
        """Put figures side by side.

        Args:
            *names: The figures, by their names within the task.

        Returns:
            One block with those that the study has; an empty list where it has none of them.
        """
        made = [
            Picture(name=spec.name, caption=spec.title, alt=spec.alt)
            for spec in (self.specs.get(self.name(n)) for n in names)
            if spec is not None
        ]
        return [Pair(pictures=made)] if made else []

    def figures_like(self, start: str) -> list[str]:
        """List the figures of the task whose name begins with a text.

        Args:
            start: The beginning, within the task.

        Returns:
            The names within the task, in the order of the page.
        """
        whole = self.name(start)
        return [
            n.removeprefix(f"{self.task}-") if self.task else n for n in self.specs if n.startswith(whole)
        ]

    def section(
        self, name: str, title: str, blocks: Sequence[Any], *, short: str = "", lead: str = ""
    ) -> Section | None:
        """Make a section; its title names the task where the study has several.

        Args:
            name: The name of the section within the task.
            title: A noun phrase.
            blocks: The content; a section without any is left out.
            short: The title in the table of contents; empty for `title`.
            lead: One or two sentences below the title.

        Returns:
            The section; None where there are no blocks.
        """
        if not blocks:
            return None
        before = ""
        if self.task and len(self.summary.headline["tasks"]) > 1:
            before = f"{task_label(self.task)}: "
            title = title[:1].lower() + title[1:] if not title[:2].isupper() else title
        return Section(
            id=self.name(name),
            title=f"{before}{title}",
            short=f"{before}{(short or title)[:1].lower() if before else (short or title)[:1]}{(short or title)[1:]}",
            lead=lead,
            blocks=list(blocks),
        )

    def warnings(self) -> list[str]:
        """List the study's warnings for the page, those that bear on every number first.

        Counts stay and lists of names are left out (`study.json` has them).

        Returns:
            The warnings, without names of cases and patients.
        """
        found = [self.redact.text(_LISTS.sub(r": \1\2", one)) for one in self.summary.warnings]
        return sorted(found, key=lambda one: not any(word in one for word in _WEIGHTY))


def pages_of(summary: StudySummary) -> list[StudyPage]:
    """Make the pages of a study: one for the whole study, and one per task that has a headline.

    Args:
        summary: The numbers of the study.

    Returns:
        The pages, that of the whole study first; without figures.
    """
    whole = StudyPage(summary=summary)
    return [whole, *(replace(whole, task=task) for task in summary.headline["tasks"])]


def study_figures(summary: StudySummary) -> dict[str, FigureSpec]:
    """Find the figures that a study can have.

    Args:
        summary: The numbers of the study.

    Returns:
        The figures by name.
    """
    found: dict[str, FigureSpec] = {}
    for page in pages_of(summary):
        for _, entry in figures:
            if entry.whole_study == bool(page.task) or any(page.of(t).empty for t in entry.tables):
                continue
            for spec in entry.function(page):
                name = page.name(spec.name)
                found[name] = replace(spec, name=name)
    return found


def write_study_figures(
    summary: StudySummary,
    directory: str | Path,
    formats: Sequence[str] = ("svg", "pdf"),
    *,
    replace: bool = False,
) -> list[Path]:
    """Write each figure as `<name>.<format>`.

    Args:
        summary: The numbers of the study.
        directory: The folder to write to.
        formats: Any of svg, pdf and png.
        replace: Whether files of these names that are there already may be replaced.

    Returns:
        The files.

    Raises:
        UserError: There is no such format, or a file exists and `replace` is not set.
    """
    return save_figures(study_figures(summary), directory, formats, replace=replace)


def study_sections(page: StudyPage) -> list[Section]:
    """Write every section that has something to show.

    The sections on the cohort come first, then those of each task, then the other sections of the whole
    study, such as the audit.

    Args:
        page: The page of the whole study.

    Returns:
        The sections in the order of the report, without their figures.
    """
    entries = ordered_sections()
    tasks = [replace(page, task=task) for task in page.summary.headline["tasks"]]

    def made(some: list[Any], of: StudyPage) -> list[Section]:
        shown = [e for e in some if not e.tables or any(not of.of(t).empty for t in e.tables)]
        return [s for s in (entry.function(of) for entry in shown) if s is not None]

    whole = [entry for entry in entries if entry.whole_study]
    first = [entry for entry in whole if entry.place == "cohort"]
    found = made(first, page)
    for one in tasks:
        found += made([entry for entry in entries if not entry.whole_study], one)
    return found + made([entry for entry in whole if entry not in first], page)


def render_study_report(
    summary: StudySummary, *, title: str | None = None, pictures: CasePictures | None = None
) -> str:
    """Write the page.

    Args:
        summary: The numbers of the study.
        title: A title; None for the study's name.
        pictures: Pictures of patients; None for none.

    Returns:
        The HTML.
    """
    from elsewhere.report.study.first_page import first_page

    specs = study_figures(summary)
    drawn = inline_figures(specs)
    page = StudyPage(
        summary=summary, specs=specs, pictures=pictures or CasePictures(), redact=Redactor(summary.ids)
    )
    shown = drawn | page.pictures.elements()
    sections = [with_pictures(s, shown) for s in study_sections(page)]
    moving = any(getattr(b, "type", "") == "weights" for s in sections for b in s.blocks)
    css = read_template("style.css") + read_template("study.css")
    html = (
        environment()
        .get_template("page.html.j2")
        .render(
            first=first_page(page, drawn=drawn, title=title),
            verdict_figure="",
            verdict_alt="",
            sections=sections,
            css=css,
            version=str(summary.provenance.get("elsewhere") or ""),
            created="",
            cohort=str(summary.provenance.get("cohort_hash") or "")[:12],
            script=script() if moving else "",
        )
    )
    return "\n".join(line.rstrip() for line in html.splitlines() if line.strip()) + "\n"


def write_study_report(
    summary: StudySummary,
    out: str | Path,
    *,
    pictures: CasePictures | None = None,
    title: str | None = None,
    key_file: bool = True,
    html: str | None = None,
) -> Path:
    """Write `report.html`, `summary.json`, `tables/*.csv` and the key file.

    Args:
        summary: The numbers of the study.
        out: The folder to write; it is made where it does not exist.
        pictures: Pictures of patients; None for none.
        title: A title; None for the study's name.
        key_file: Whether to write the file that says which case each hash stands for; not in a bundle.
        html: The page, where it was rendered before; None renders it.

    Returns:
        The path of `report.html`.

    Raises:
        UserError: The page would be larger than 2 MB.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    if html is None:
        html = render_study_report(summary, title=title, pictures=pictures)
    size = len(html.encode())
    if size > MOST_BYTES:
        raise UserError(
            f"the report would have {size / 1e6:.1f} MB, and its limit is {MOST_BYTES / 1e6:.0f}",
            where=str(folder / "report.html"),
            fix="Leave --pictures out, keep the weights of fewer scenarios, or rank fewer methods at once.",
        )
    tables = {name: table for name, table in summary.tables.items() if name not in PRIVATE}
    if pictures is not None:
        tables |= pictures.tables()
    write_tables(tables, folder / "tables")
    write_json(summary.to_dict(), folder / "summary.json")
    ids = [pick.case for picks in summary.chosen.values() for pick in picks]
    if key_file and (ids or summary.originals):
        write_key_file(folder / KEY_FILE, ids, summary.salt, originals=summary.originals)
    write_text(html, folder / "report.html")
    return folder / "report.html"


def write_tables(tables: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Write one csv per table.

    Tables of an earlier run that this one does not have are removed; files that Elsewhere did not write stay.

    Args:
        tables: The tables by name.
        folder: The folder to write.
    """
    files = [f"{name}.csv" for name in tables]
    with staged_directory(folder, replace=True, owned=lambda _: files) as staged:
        for name, table in tables.items():
            write_table(table, staged / f"{name}.csv")
