"""The report of a recipe study: one HTML file that opens offline, and its tables as csv beside it (MRI-08 to MRI-12).

The look, the templates and the privacy rules are those of `elsewhere.report`. It names no patient, and holds no
pixel of one unless pictures are asked for.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elsewhere.errors import UserError
from elsewhere.privacy import Redactor, write_key_file
from elsewhere.report.page.blocks import Facts, Note, Pair, Picture, Section, Table, Text, cnt, text
from elsewhere.report.page.numbers import ABSENT, count
from elsewhere.report.page.shell import MOST_BYTES, environment, with_pictures
from elsewhere.report.page.slider import script
from elsewhere.study import recipe_report_board as board_part
from elsewhere.study import recipe_report_cases as cases_part
from elsewhere.study import recipe_report_groups as groups_part
from elsewhere.study.recipe_figures import inline_figures, recipe_figures
from elsewhere.study.recipe_report_first import first_page
from elsewhere.study.recipe_report_pictures import gallery
from elsewhere.study.report import write_tables
from elsewhere.study.report_sections import rows_of
from elsewhere.tables.writing import write_json, write_text

if TYPE_CHECKING:
    from elsewhere.study.recipe_analysis import RecipeSummary
    from elsewhere.study.recipe_results import RecipeResults

MOST_LOST = 30
KEY_FILE = "case_key.csv"
PRIVATE = ("runs",)
"""Tables that the study writes itself."""
_CSS = """
.pair{grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr))}
.pair.one{grid-template-columns:minmax(0,520px)}
tbody th{min-width:7.6em}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));gap:22px;margin-top:clamp(20px,3vw,34px)}
.cards .card{margin-top:0;align-content:start}
.card .verdict-word{font-size:clamp(24px,4vw,36px);margin-top:.5rem}
.card .sentence{font-size:15px}
.steps{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,150px),1fr));gap:0 22px;margin-top:.9rem}
.steps>div{border-top:1px solid var(--line);padding:.5rem 0 .6rem;min-width:0}
.steps dt{font-size:13.5px;color:var(--muted);line-height:1.3}
.steps dd .v{font:500 25px/1.25 var(--serif);font-variant-numeric:tabular-nums lining-nums}
.steps dd .sub{display:block;font-size:13.5px;color:var(--muted)}
.weights{margin-top:.4rem}
.weights-control{display:flex;flex-wrap:wrap;align-items:center;gap:.4rem 1rem;font-weight:600}
.weights-control input{flex:1 1 220px;min-width:0;max-width:560px;height:32px;accent-color:var(--accent)}
.weights-control output{font:500 25px/1 var(--serif);font-variant-numeric:tabular-nums lining-nums;min-width:2.6em}
.weights-ends{display:flex;justify-content:space-between;max-width:720px;font-size:13.5px;color:var(--muted)}
.weights-said{margin-top:.5rem;font-size:15px;min-height:1.5em}
.w-ranks{white-space:nowrap}
.track{display:inline-block;position:relative;width:88px;height:12px;margin:0 12px 0 6px;vertical-align:-1px;border-bottom:1px solid var(--line)}
.track i{position:absolute;top:3px;height:6px;min-width:6px;margin-left:-3px;border-radius:3px;background:var(--accent);opacity:.35}
.track b{position:absolute;top:1px;width:10px;height:10px;margin-left:-5px;border-radius:50%;background:var(--accent)}
.w-spread,.w-rank,.w-change,.w-score{font-variant-numeric:tabular-nums lining-nums}
table.stacked td.n .sub{display:block;margin-left:0;white-space:pre}
table.stacked td,table.stacked th{padding-right:.42rem}
table.stacked th:last-child,table.stacked td:last-child{padding-right:0}
table.stacked td.k-undefined .sub{white-space:normal}
details{margin-top:1.2rem}
td code,th code{white-space:nowrap}
.prose+.prose{margin-top:.8em}
figure img{display:block;width:100%;height:auto;max-width:640px}
@media print{.weights-control,.weights-ends{display:none}.cards{grid-template-columns:1fr 1fr;gap:12px}.steps dd .v{font-size:13pt}}
"""


def render_recipe_report(
    summary: RecipeSummary, results: RecipeResults, *, title: str | None = None, pictures: bool = False
) -> str:
    """The page as text."""
    redact = Redactor(summary.ids)
    specs = recipe_figures(summary)
    drawn = inline_figures(summary)
    shown = gallery(summary, results) if pictures and "segmentation" in summary.headline["tasks"] else {}
    blocks = [Pair(pictures=[Picture(name=n, caption=n, alt=n) for n in shown])] if shown else []
    warnings = [redact.text(w) for w in summary.warnings]
    made: list[Section | None] = [cases_part.who(summary, specs)]
    for task in summary.headline["tasks"]:
        made += [
            board_part.board(summary, specs, task),
            board_part.tests(summary, specs, task),
            groups_part.elsewhere(summary, specs, task),
            groups_part.groups(summary, specs, task),
            board_part.weighting(summary, specs, task),
            cases_part.sizes(summary, specs, task),
            cases_part.reliability(summary, specs) if task == "response" else None,
            cases_part.hardest(summary, task, blocks if task == "segmentation" else []),
        ]
    made += [_audit(summary, warnings, redact), _how(summary), _provenance(summary)]
    sections = [with_pictures(s, drawn | shown) for s in made if s is not None and s.blocks]
    css = resources.files("elsewhere.report").joinpath("templates", "style.css").read_text(encoding="utf-8")
    moving = any(getattr(b, "type", "") == "weights" for s in sections for b in s.blocks)
    page = (
        environment()
        .get_template("page.html.j2")
        .render(
            first=first_page(summary, title=title, warnings=warnings),
            verdict_figure="",
            verdict_alt="",
            sections=sections,
            css=css + _CSS,
            version=str(summary.provenance.get("elsewhere") or ""),
            created="",
            cohort=str(summary.provenance.get("cohort_hash") or "")[:12],
            script=script() if moving else "",
        )
    )
    return "\n".join(line.rstrip() for line in page.splitlines() if line.strip()) + "\n"


def _audit(summary: RecipeSummary, warnings: list[str], redact: Redactor) -> Section:
    runs = summary.of("runs")
    lost = rows_of(runs[runs["status"] != "done"])
    blocks: list[Any] = [Note(text=w, tone="warn") for w in warnings]
    if lost:
        blocks.append(
            Table(
                name="lost",
                caption="Runs without a score",
                columns=["Scenario", "Recipe", "Task", "Status", "Why"],
                rows=[
                    [
                        text(r["scenario"]),
                        text(r["recipe"]),
                        text(r["task"]),
                        text(r["status"]),
                        text(redact.text(str(r["reason"]))),
                    ]
                    for r in lost[:MOST_LOST]
                ],
                note=f"{len(lost) - MOST_LOST} more in runs.csv." if len(lost) > MOST_LOST else "",
            )
        )
    if not blocks:
        blocks.append(Note(text="Every planned run is done, and nothing was left out."))
    return Section(id="audit", title="What to know before believing it", short="Audit", blocks=blocks)


def _how(summary: RecipeSummary) -> Section:
    head = summary.headline
    protocols = ", ".join(dict.fromkeys(f"{b['protocol']} {b['protocol_version']}" for b in head["boards"]))
    return Section(
        id="how",
        title="How it was computed",
        short="Methods",
        blocks=[
            Text(
                paragraphs=[
                    f"Every recipe's predictions were written to files and scored by protocol {protocols}. All intervals resample patients "
                    f"({count(summary.provenance['resamples'])} times, seed {summary.provenance['seed']}), and all recipes of a board share the "
                    "resamples. Scenarios of a kind that test no case twice are pooled into one board; every other scenario is a board of its own. "
                    "Seeds of a recipe are averaged within each resample.",
                    "Performance is (Dice + 1 − NormHD)/2 of the means, or balanced accuracy; fairness is 1 less the mean gap over age, "
                    "menopausal status and breast density; combined weighs both (MRI-03 to MRI-07). A group that is empty, or lacks a class, leaves "
                    "the range that it cannot have. What is not estimable is said so, and not filled in.",
                    "Ranks are parted by simultaneous intervals of all pairwise differences; a group's gap is held against permuted attributes. "
                    "At home and elsewhere are compared in Dice and AUC, since a range over groups has no interval to judge by.",
                ]
            ),
            *_told(summary),
        ],
    )


def _told(summary: RecipeSummary) -> list[Any]:
    rows = rows_of(summary.of("recipes"))
    if not rows:
        return []
    cells = [
        [text(r["recipe"]), text(r["beyond"] or ABSENT), text(r["follows"]), text(r["notes"])] for r in rows
    ]
    return [
        Table(
            name="recipes",
            caption="What each recipe was told of a tested case beside its volumes, and what it says of itself",
            columns=["Recipe", "Told beside volumes", "Follows", "Says"],
            rows=cells,
            note="No recipe is given a tested case's mask or outcome. The challenge's test withholds clinical columns, and gives the box of the "
            "affected breast for training alone (MRI-02): a recipe that is told either has an easier task than one that is not.",
        )
    ]


def _provenance(summary: RecipeSummary) -> Section:
    told = summary.provenance
    items = [
        ("Cohort", text(str(told["cohort_hash"]), kind="code")),
        ("Protocols", text(", ".join(f"{k} {v}" for k, v in told["protocols"].items()))),
        ("Resamples", cnt(told["resamples"])),
        ("Seed", cnt(told["seed"])),
        ("Trainings", cnt(told["trainings"])),
        ("Elsewhere", text(told["elsewhere"])),
        ("Python, numpy", text(f"{told['python']}, {told['numpy']}")),
    ]
    return Section(id="provenance", title="Provenance", short="Provenance", blocks=[Facts(items=items)])


def write_recipe_report(
    summary: RecipeSummary,
    results: RecipeResults,
    out: str | Path,
    *,
    pictures: bool = False,
    title: str | None = None,
) -> Path:
    """`report.html`, `summary.json`, `tables/*.csv` and the key file under `out`; returns the report's path."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    html = render_recipe_report(summary, results, title=title, pictures=pictures)
    size = len(html.encode())
    if size > MOST_BYTES:
        raise UserError(
            f"the report would have {size / 1e6:.1f} MB, and its limit is {MOST_BYTES / 1e6:.0f}",
            where=str(folder / "report.html"),
            fix="Leave the pictures out, or rank fewer recipes at once.",
        )
    shown = {name: table for name, table in summary.tables.items() if name not in PRIVATE}
    write_tables(shown, folder / "tables")
    write_json(summary.to_dict(), folder / "summary.json")
    ids = [pick.case for picks in summary.chosen.values() for pick in picks]
    if ids or summary.originals:
        write_key_file(folder / KEY_FILE, ids, summary.salt, originals=summary.originals)
    write_text(html, folder / "report.html")
    return folder / "report.html"
