"""The page of a study of published methods: whole, offline, small, and without a name of anybody."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest

from elsewhere.analysis.study.summary import analyse
from elsewhere.errors import UserError
from elsewhere.report.study import page as study_page
from elsewhere.report.study.leaderboard import slider
from elsewhere.report.study.page import PRIVATE, StudyPage, render_study_report, write_study_report
from worlds.recipe_results import LODO, make_results, published, with_margin

FIVE = {"EQUIVALENT", "BELOW", "ABOVE", "INCONCLUSIVE", "NOT ASSESSED"}


@pytest.fixture
def folder(mri_page_folder):
    return mri_page_folder


@pytest.fixture
def page(folder):
    return (folder / "report.html").read_text()


class Ids(HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.links = [], []

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        self.ids += [held["id"]] if held.get("id") else []
        self.links += [held[n] for n in ("href", "src", "xlink:href") if held.get(n)]


def test_a_transfer_that_is_not_compared_has_its_reason_and_no_nan(page):
    made = make_results(sizes={"A": 16, "B": 60}, kinds=("internal", LODO), segmenters={})
    other = render_study_report(analyse(made, resamples=20))
    assert "not compared" in other
    for shown in (other, page):
        assert not re.search(r">\s*nan\s*<", shown)
    assert "lower NormHD is better" not in other and "lower NormHD is better" in page


def test_one_file_without_requests(page):
    assert len(page.encode()) < 1_000_000
    found = Ids()
    found.feed(page)
    assert [link for link in found.links if not link.startswith(("#", "data:,"))] == []
    assert len(found.ids) == len(set(found.ids)), "an id stands twice"
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    assert not re.search(r"https?://(?!www\.w3\.org)", page)
    assert "base64" not in page, "no pixel unless asked for"
    assert "fetch(" not in page and "XMLHttpRequest" not in page


def test_it_names_nobody(page, folder, mri_results):
    names = list(mri_results.cohort.cases["patient_id"])
    for file in [folder / "report.html", folder / "summary.json", *(folder / "tables").glob("*.csv")]:
        text = file.read_text()
        assert not [name for name in names if name in text], file.name


def test_the_first_page_answers_for_each_task(page, mri_summary):
    first = page.split('id="contents"')[0]
    for task, title in (("segmentation", "Tumour segmentation"), ("response", "Response to treatment")):
        told = mri_summary.headline["tasks"][task]
        assert title in first and told["best"] in first
        assert f"{told['internal']:.3f}" in first and f"{told['external']:.3f}" in first
    assert first.count("Smallest detectable drop") == 2 and first.count("80 % power at 5 %") == 2
    assert first.count("mamamia-paper") >= 2 and first.count("declared in the study file") == 2
    assert max(mri_summary.headline["tasks"]["segmentation"]["smallest_detectable_drop"]) <= 1
    verdicts = set(re.findall(r'<p class="word">([^<]+)</p>', first))
    assert verdicts and verdicts <= FIVE
    assert "cannot be estimated" in first and "breast density" in first


def test_every_verdict_of_the_page_is_one_of_five(page):
    chips = re.findall(r'<span class="chip[^>]*>.*?</svg>\s*([A-Z ]+)</span>', page, flags=re.S)
    assert chips and set(chips) <= FIVE


def test_no_margin_no_verdict(mri_results):
    made = with_margin(
        make_results(
            margin=0.05,
            predictors={},
            segmenters={"subtraction": 0.72, "residual-unet": 0.68},
            kinds=("internal", LODO),
        ),
        None,
    )
    page = render_study_report(analyse(made, resamples=20))
    assert 'class="word"' not in page and 'class="chip' not in page
    assert "The study declares no margin, so there is no verdict." in page


def test_every_section_is_there(page):
    for task in ("segmentation", "response"):
        for part in ("board", "tests", "transfers", "groups", "weights", "sizes", "hardest"):
            assert f'id="{task}-{part}"' in page, (task, part)
    for name in ("who", "response-recall", "response-calibration", "audit", "how", "provenance"):
        assert f'id="{name}"' in page, name
    assert "mamamia-paper 1.0" in page and "all methods share the same resamples" in page
    assert page.count('type="range"') == 2 and page.count("<script>") == 1


def test_costs_and_the_limit_of_five_minutes(page):
    table = page.split("Cost per case", 1)[1].split("</table>", 1)[0]
    assert "Over 5 min" in table and "40.0" in table


def test_tables_and_key_file_stand_beside(folder, mri_summary):
    written = {p.stem for p in (folder / "tables").glob("*.csv")}
    assert written == set(mri_summary.tables) - set(PRIVATE)
    board = pd.read_csv(folder / "tables" / "leaderboard.csv")
    assert board["combined"].tolist() == mri_summary.tables["leaderboard"]["combined"].tolist(), (
        "full precision"
    )
    held = json.loads((folder / "summary.json").read_text())
    best = {task: told["best"] for task, told in mri_summary.headline["tasks"].items()}
    assert {task: told["best"] for task, told in held["headline"]["tasks"].items()} == best
    key = pd.read_csv(folder / "case_key.csv")
    assert set(mri_summary.tables["hardest"]["case"]) == set(key["hash"])
    assert stat.S_IMODE((folder / "case_key.csv").stat().st_mode) == 0o600


def test_the_same_summary_gives_the_same_bytes(mri_summary, page, drawn):
    assert render_study_report(mri_summary) == page


def test_ids_in_warnings_are_taken_out(mri_summary, mri_results):
    name = mri_results.cohort.cases["patient_id"].iloc[0]
    made = render_study_report(replace(mri_summary, warnings=(f"patient {name} has two phases",)))
    assert name not in made and "[id 1] has two phases" in made


def test_too_large_a_page_is_refused(mri_summary, tmp_path, monkeypatch):
    monkeypatch.setattr(study_page, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match="its limit is"):
        write_study_report(mri_summary, tmp_path / "out")
    assert not (tmp_path / "out" / "report.html").exists()


def test_a_page_without_a_slider_has_no_script():
    made = make_results(
        kinds=("internal",), sizes={"A": 40, "B": 40}, segmenters={"residual-unet": 0.7}, predictors={}
    )
    page = render_study_report(analyse(made, resamples=20))
    assert "<script" not in page and 'id="transfers"' not in page
    assert "fewer than two methods" in page
    assert "no external scenario" in page


def test_the_slider_holds_every_step(mri_summary):
    boards = [
        {
            "task": "response",
            "leading": True,
            "baseline": "Baseline",
            "protocol": "mamamia-paper",
            "board": "",
        }
    ]
    summary = replace(
        mri_summary,
        headline={**mri_summary.headline, "boards": boards},
        tables={"runs": pd.DataFrame(columns=["method", "model", "input"])},
    )
    made = slider(StudyPage(summary=summary, task="response"), published(), reference=0.5)
    assert made.steps == 100 and made.reference == 50 and len(made.models) == 15
    assert [m.note for m in made.models if m.name == "Baseline"] == ["baseline"]
    assert made.at_reference[0].name == "pimed-lab" and "</" not in made.data


def test_the_page_says_what_a_method_was_given_and_what_it_reports_of_itself(tmp_path):
    made = make_results(
        kinds=(LODO,),
        segmenters={"residual-unet": 0.7, "masked-autoencoder": 0.7},
        predictors={"random": 0.0, "clinical": 0.9, "radiomics": 0.1},
    )
    training = made.runs.loc[made.runs["method"] == "radiomics", "training"].iloc[0]
    case = str(made.cohort.cases["case_id"].iloc[0])
    notes = ["regions are automatic", f"{case}: no breast box"]
    recipes = dict(made.study.recipes)
    recipes["masked-autoencoder"] = recipes["masked-autoencoder"].model_copy(
        update={"settings": {"test_box": "given"}}
    )
    made = replace(
        made,
        trainings=pd.DataFrame({"training": [training], "notes": [notes]}),
        study=made.study.model_copy(update={"recipes": recipes}),
    )
    summary = analyse(made, resamples=30)
    table = summary.of("disclosure").set_index("method")
    assert table["given"].to_dict() == {
        "residual-unet": "",
        "masked-autoencoder": "the expert's box of the affected breast",
        "random": "",
        "clinical": "clinical columns",
        "radiomics": "",
    }
    page = write_study_report(summary, tmp_path / "report").read_text()
    assert "Regions are automatic." in page and "Given besides the image" in page and case not in page
