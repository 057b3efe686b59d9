"""The page: its sections, its size, its silence on the network, and that it names nobody."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.report.page.shell import MOST_BYTES
from elsewhere.report.result.prepare import prepare
from elsewhere.report.result.subgroups import fairness_table
from elsewhere.report.summary import build_sections, render_report, write_report
from worlds.result_summaries import TASKS, WORDS, entry, make_summary

ALWAYS = {"who", "discrimination", "methods", "checklist", "provenance", "audit"}
RICH = ALWAYS | {"subgroups", "sites", "case-mix", "worst-cases"}
OF_TASK = {
    "classification": {"calibration", "operating-point", "clinical", "comparison", "ranking"},
    "detection": {"difficulty"},
    "segmentation": {"size"},
    "response": {"operating-point", "calibration"},
    "slides": set(),
}
SLOW = ("groups", "sites", "curves", "ranking", "comparison", "case_mix", "clinical")
VOID = {"meta", "link", "br", "img", "input", "hr", "circle", "path", "use", "rect"}


class Reader(HTMLParser):
    """Checks that tags close, ids are unique and links inside the page have a target."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self._attributes(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self._attributes(tag, attrs)

    def _attributes(self, tag, attrs):
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            if name == "id":
                self.ids.append(value)
            if name == "href" and value.startswith("#"):
                self.targets.append(value[1:])

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style",):
            self.text.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {task: render_report(make_summary(task)) for task in TASKS}


@pytest.mark.parametrize("task", TASKS)
def test_every_section_of_the_task_is_there(pages, task):
    reader = read(pages[task])
    assert RICH | OF_TASK[task] <= set(reader.ids)
    assert len(reader.ids) == len(set(reader.ids))
    assert set(reader.targets) <= set(reader.ids)
    assert "BELOW" in "".join(reader.text)


@pytest.mark.parametrize("task", TASKS)
def test_absent_parts_are_left_out(task):
    sections = {s.id for s in build_sections(prepare(make_summary(task, word=None, rich=False)))}
    assert sections >= ALWAYS
    assert not sections & {
        "subgroups",
        "sites",
        "case-mix",
        "clinical",
        "ranking",
        "comparison",
        "worst-cases",
    }
    read(render_report(make_summary(task, word=None, rich=False)))


@pytest.mark.parametrize(
    "summary",
    [{}, {"task": "classification"}, {"metrics": {}}, {"task": "new", "metrics": {"m": {"value": None}}}],
)
def test_a_poor_summary_still_makes_a_page(summary):
    assert "<h1" in render_report(summary)


def test_what_is_no_summary_is_a_user_error():
    with pytest.raises(UserError):
        render_report(["not", "a", "summary"])


@pytest.mark.parametrize("word", WORDS)
def test_the_verdict_is_a_word_with_an_icon_never_a_colour_alone(word):
    summary = {k: v for k, v in make_summary("classification", word=word).items() if k not in SLOW}
    html = render_report(summary)
    first = html[html.index('id="verdict"') : html.index('id="contents"')]
    assert f'<p class="word">{word}</p>' in first
    assert '<svg class="icon"' in first
    for expected in (
        "Margin",
        "Smallest detectable drop",
        "Smallest provable margin",
        "declared in the claim",
    ):
        assert expected in first
    assert ("EQUIVALENT was out of reach" in first) == (word == "INCONCLUSIVE")
    assert "grade B" in first


def test_a_changed_claim_and_every_status_word_are_on_the_page():
    """What changed stands on the first page, field by field; the words of the status column where cases are counted."""
    many = [{"field": f"field {i}", "before": None, "now": i} for i in range(9)]
    summary = make_summary("classification", word="EQUIVALENT") | {
        "claim_lock": {
            "changed": True,
            "changed_since": {
                "when": "2026-01-02 03:04:05 UTC",
                "verdict": "BELOW",
                "claim_file": "c.toml",
            },
            "changes": [{"field": "auroc margin", "before": 0.05, "now": 0.15}],
            "reading_changes": many,
        },
        "score_extras": {
            "status_words": [
                {"word": "Abbruch", "rows": 12, "rows_with_a_score": 9, "meaning": "not known: score used"}
            ]
        },
    }
    html = render_report(summary)
    first = html[html.index('id="verdict"') : html.index('id="contents"')]
    assert "changed after the verdict BELOW of 2026-01-02" in first
    for expected in ("auroc margin", "0.05", "0.15", "2 more changes"):
        assert expected in first
    assert "Abbruch" in html
    assert "not known: score used" in html
    assert "What changed since" not in render_report(make_summary("classification", word="EQUIVALENT"))


def test_without_a_claim_the_headline_metric_leads():
    html = render_report(make_summary("classification", word=None))
    first = html[html.index('id="verdict"') : html.index('id="contents"')]
    assert "0.842" in first
    assert "[0.799, 0.881]" in first
    assert not any(f">{word}<" in first for word in WORDS)


def test_nothing_is_fetched(pages):
    for html in pages.values():
        assert "<script" not in html
        assert "@import" not in html
        assert not re.search(r"https?:|//[a-z0-9-]+\.[a-z]{2,}", html)
        assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", html))
        for tag, name, value in read(html).attributes:
            assert name != "src", tag
            assert name != "href" or value.startswith("#") or value == "data:,", value


def test_a_million_points_and_rows_stay_under_two_megabytes():
    summary = make_summary("classification")
    x = np.linspace(0, 1, 1_000_000)
    y = x**0.2
    for name in ("roc", "pr"):
        summary["curves"][name] = {
            "x": x,
            "y": y,
            "lo": y - 0.01,
            "hi": y + 0.01,
            "x_label": "x",
            "y_label": "y",
        }
    summary["worst_cases"] *= 500
    summary["warnings"] = [f"warning {i}" for i in range(5000)]
    summary["groups"]["site"] = {
        f"g{i}": {"cases": 50 + i, "patients": 50 + i, "metrics": {"auroc": entry(0.8)}} for i in range(900)
    }
    summary["something_new"] = {"long": list(range(100_000)), "rows": [{"a": i} for i in range(100_000)]}
    html = render_report(summary)
    assert len(html.encode()) < MOST_BYTES
    assert "points drawn" in html
    assert "25 of 6" in html
    assert "largest of 900 rows" in html
    assert "of 5\u202f000" in html


def test_unknown_parts_are_shown_not_lost():
    summary = make_summary("detection")
    summary["lesions"] = {
        "strata": {"cancer": {"lesions": 31, "found_within": {"1": 0.5161, "2": 0.7419}}},
        "note": "counted",
    }
    html = render_report(summary)
    assert 'id="more"' in html
    assert "0.742" in html
    assert "Found within 2" in html


def test_text_of_the_summary_is_escaped():
    summary = make_summary("classification")
    summary["warnings"] = ["<script>alert(1)</script> & <b>"]
    summary["sites"] = {'<img src="x">': summary["sites"]["Harbour"]}
    html = render_report(summary, title='A "title" <i>')
    assert "<script" not in html
    assert "<img" not in html
    assert "<i>" not in html
    read(html)


def test_digits_in_pictures_are_not_cut():
    html = render_report(make_summary("classification"))
    forest = html[html.index('id="fig-forest-age"') :]
    assert ">0.759<" in forest[: forest.index("</figure>")]


def test_no_id_of_the_input_is_in_the_page():
    ids = [f"PAT-{i:04d}" for i in range(300)] + ["Study 12/left", "00417"]
    summary = make_summary("classification")
    summary["worst_cases"] = [
        {"case": i, "patient_id": i, "case_id": f"{i}/L", "site": "Harbour", "age": 9917, "auroc": 0.1}
        for i in ids[:30]
    ]
    summary["audit"].append(
        {
            "kind": "x",
            "severity": "error",
            "message": "see PAT-0003, 'PAT-0004' and Study 12/left.",
            "rows": ids,
        }
    )
    summary["warnings"].append("case 00417 (PAT-0009) is odd")
    summary["flow"][1]["why"] = "lost PAT-0010"
    summary["groups"]["patient"] = {"PAT-0011": summary["groups"]["age"]["41–50"]}
    html = render_report(summary, redact=ids)
    assert [i for i in ids if i in html] == []
    assert "9917" not in html
    assert "[id 1]" in html
    assert "ids were removed from messages" in html


def test_small_cells_are_suppressed_everywhere():
    summary = make_summary("classification")
    summary["groups"]["breast_density"]["not recorded"]["metrics"]["auroc"]["value"] = 0.777123
    html = render_report(summary)
    assert "0.777" not in html
    assert "&lt;5" in html
    assert ">31<" not in html
    assert "not recorded 3" not in html
    assert "≤40 41," not in html


def test_colours_of_pictures_follow_the_page(pages):
    svg = re.findall(r"<svg class=\"fig\".*?</svg>", pages["classification"], flags=re.S)
    assert len(svg) > 10
    for picture in svg:
        assert re.findall(r"#[0-9a-fA-F]{6}\b", picture) == []
        assert 'aria-label="' in picture
        assert "var(--" in picture


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def _contrast(a: str, b: str) -> float:
    high, low = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_every_text_colour_in_light_dark_and_print(pages):
    blocks = re.findall(r":root\{([^}]*)\}", pages["classification"])
    assert len(blocks) == 3
    for block in blocks:
        colours = dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", block.replace("#fff;", "#ffffff;")))
        for role in ("ink", "muted", "accent", "second", "good", "bad", "warn", "above"):
            assert _contrast(colours[role], colours["paper"]) >= 4.5, role
            washed = [
                round(0.92 * int(colours["paper"][i : i + 2], 16) + 0.08 * int(colours[role][i : i + 2], 16))
                for i in (1, 3, 5)
            ]
            assert _contrast(colours[role], "#" + "".join(f"{c:02x}" for c in washed)) >= 4.5, role


def test_the_page_is_written_whole_and_is_the_same_twice(tmp_path):
    first = write_report(make_summary("segmentation"), tmp_path / "a" / "report.html")
    second = write_report(make_summary("segmentation"), tmp_path / "b.html")
    assert first.read_bytes() == second.read_bytes()
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["report.html"]


def test_a_ranking_and_a_comparison_have_a_first_page_of_their_own():
    whole = make_summary("classification")
    ranking = {"task": "classification", "metrics": {}, "ranking": whole["ranking"]}
    html = render_report(ranking)
    assert "Which model works best here?" in html
    assert "3 of 6 share the first tier" in html
    entry_of = {
        "label": "Dice",
        "a": 0.7,
        "b": 0.6,
        "difference": 0.1,
        "lo": 0.02,
        "hi": 0.18,
        "tests": {"wilcoxon": {"p": 0.01}},
    }
    pair = {
        "task": "segmentation",
        "metrics": {},
        "comparison": {"a": "/x/one", "b": "/x/two", "metrics": {"dice": entry_of}},
    }
    html = render_report(pair)
    assert "Dice: one − two" in html
    assert "leaves out 0" in html
    assert "p, Wilcoxon" in html


@pytest.mark.parametrize(
    ("gap", "flagged", "said"),
    [(0.2, True, "beyond chance"), (0.2, False, "not beyond, by Holm"), (0.05, False, "within chance")],
)
def test_a_gap_above_its_band_is_never_called_within_chance(gap, flagged, said):
    entry = {"gap": gap, "null_band_upper": 0.1, "p": 0.03, "flagged": flagged, "sizes": {"A": 9, "B": 9}}
    (row,) = fairness_table({"breast_density": entry}).rows
    assert row[1].sub == said
