"""Parts of a study's report by themselves: the first page, or some sections, without drawing a figure."""

from __future__ import annotations

from html import unescape

from elsewhere.analysis.study.summary import StudySummary
from elsewhere.privacy import Redactor
from elsewhere.report.page.shell import environment, with_pictures
from elsewhere.report.result.first_page import FirstPage
from elsewhere.report.study.first_page import first_page
from elsewhere.report.study.page import StudyPage
from elsewhere.report.study.pictures import CasePictures
from elsewhere.report.study.registry import sections


def page_of(summary: StudySummary, *, task: str = "", pictures: CasePictures | None = None) -> StudyPage:
    """What a section reads; without figures."""
    return StudyPage(
        summary=summary, task=task, pictures=pictures or CasePictures(), redact=Redactor(summary.ids)
    )


def first_of(summary: StudySummary) -> FirstPage:
    """What the first page says."""
    return first_page(page_of(summary), drawn={}, title=None)


def html_of(summary: StudySummary, *names: str, pictures: CasePictures | None = None) -> str:
    """The first page and some sections as HTML, for every task of the study; entities are resolved."""
    made = []
    for name in names:
        entry = sections.get(name)
        tasks = [""] if entry.whole_study else list(summary.headline["tasks"])
        pages = [page_of(summary, task=task, pictures=pictures) for task in tasks]
        made += [section for page in pages if (section := entry.function(page)) is not None]
    shown = (pictures or CasePictures()).elements()
    template = environment().get_template("page.html.j2")
    nothing = dict.fromkeys(
        ("css", "version", "created", "cohort", "script", "verdict_figure", "verdict_alt"), ""
    )
    drawn = [with_pictures(one, shown) for one in made]
    return unescape(template.render(first=first_of(summary), sections=drawn, **nothing))


def table_of(page: str, caption: str) -> str:
    """One table of the page, from its caption to its end."""
    return page.split(caption, 1)[1].split("</table>", 1)[0]


def first_part(page: str) -> str:
    """The page up to its contents."""
    return page.split('id="contents"')[0]
