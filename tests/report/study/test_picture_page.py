"""The page of a study of pictures as a whole: complete, silent, small, and without a name of anybody."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pandas as pd
import pytest

from elsewhere.analysis.study.summary import analyse
from elsewhere.errors import UserError
from elsewhere.report.study.page import (
    PRIVATE,
    render_study_report,
    study_figures,
    write_study_figures,
    write_study_report,
)
from elsewhere.report.study.pictures import CasePictures, RunMaps
from worlds.picture_results import TASK, make_results, with_settings
from worlds.study_pages import first_part, html_of, table_of


@pytest.fixture
def folder(picture_page_folder):
    return picture_page_folder


@pytest.fixture
def page(folder):
    return (folder / "report.html").read_text()


@pytest.fixture(scope="module")
def small():
    """32 runs: one model with one input, two seeds."""
    return make_results(models=("cnn",), inputs=("roi",), seeds=(1, 2), analyses={})


@pytest.fixture(scope="module")
def small_summary(small):
    return analyse(small, resamples=0)


class Ids(HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.links = [], []

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        self.ids += [held["id"]] if held.get("id") else []
        for name in ("href", "src", "xlink:href"):
            if held.get(name):
                self.links.append(held[name])


def test_one_file_without_requests(page):
    assert len(page.encode()) < 1_000_000
    found = Ids()
    found.feed(page)
    assert [link for link in found.links if not link.startswith(("#", "data:,"))] == []
    assert len(found.ids) == len(set(found.ids)), "an id stands twice"
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    assert not re.search(r"https?://(?!www\.w3\.org)", page), "no address in the page"
    assert "<script" not in page and "base64" not in page, "no script, and no pixel unless asked for"


def test_it_names_no_case_and_no_patient(folder, page, pictures):
    names = {name for column in ("case", "case_id", "patient") for name in pictures.table[column]}
    names |= {name.split("/")[-1] for name in names}
    texts = {"report.html": page, "summary.json": (folder / "summary.json").read_text()}
    texts |= {path.name: path.read_text() for path in (folder / "tables").glob("*.csv")}
    for file, text in texts.items():
        assert not [name for name in names if name in text], file


def test_ids_in_warnings_are_taken_out(small, tmp_path):
    """Of the page, of summary.json and of every table; the key file alone has them, and a bundle has no key file."""
    patient, case = small.table["patient"].iloc[0], small.table["case_id"].iloc[3]
    audit = small.audit | {
        "warnings": [f"patient {patient} has 2 boxes"],
        "left_out": [{"dataset": "BUSI", "reason": f"case {case} is empty", "rows": 1}],
    }
    summary = analyse(replace(small, audit=audit), resamples=0)
    made = render_study_report(summary)
    assert patient not in made and case not in made
    assert "[id " in made and "has 2 boxes" in made, "a mark stands where the id was"
    write_study_report(summary, tmp_path)
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name != "case_key.csv":
            assert patient not in file.read_text(), file.name
    assert patient in (tmp_path / "case_key.csv").read_text()
    write_study_report(summary, tmp_path / "bundle", key_file=False)
    assert not (tmp_path / "bundle" / "case_key.csv").exists()


def test_a_list_of_names_becomes_its_count(small_summary):
    """Numbers of three digits are names too: the redactor cannot know them, so the list goes."""
    warnings = (
        "BUS-BRA: cases with more than one birads: 1 (856).",
        "BUSI: pictures with the same pixels and different labels: 1 (benign (433) = malignant (145)).",
    )
    made = html_of(replace(small_summary, warnings=warnings), "audit")
    assert "(856)" not in made and "(433)" not in made
    assert "cases with more than one birads: 1.<" in made
    first = first_part(made)
    assert first.index("different labels: 1") < first.index("birads: 1"), (
        "what bears on the numbers comes first"
    )


def test_near_duplicates_are_counted_by_dataset_and_kind(page, small_summary):
    table = table_of(page, "Pairs of cases that show the same")
    assert ">across patients and labels<" in table and ">4<" in table
    assert "1 pairs of near-duplicate pictures carry different labels" in page
    unseen = small_summary.audit | {"duplicates": {"kept_together": False}}
    assert "Not searched for" in html_of(replace(small_summary, audit=unseen), "audit")


def test_every_section_is_there(page):
    whole = ("who", "audit", "how", "provenance")
    of_task = (
        "board", "tests", "transfers", "matrix", "comparisons", "without", "calibration", "recall", "normal",
        "abstention", "hardest", "published",
    )  # fmt: skip
    for name in (*whole, *(f"{TASK}-{one}" for one in of_task)):
        assert f'id="{name}"' in page, name
    assert "unweighted mean" in page and "standard deviations over seeds" in page
    assert "smallest possible value is 0.125" in page
    assert "NVIDIA H200" in page and "95 % t interval over scenarios" in page
    assert "No data leakage:" in page


def test_the_published_numbers_are_there_only_where_they_were_asked_for(page, small_summary):
    assert "0.719" in page and "10.3390/diagnostics16101537" in page
    plain = render_study_report(small_summary)
    assert "-published" not in plain and "Published" not in plain and "diagnostics16101537" not in plain


def test_another_network_than_the_published_one_is_named_beside_its_numbers(page, pictures):
    assert "another network" not in page and "starts from" not in page
    small = make_results(models=("cnn",), inputs=("roi",), seeds=(1,))
    for model, sentence in (
        (
            {"network": "efficientnet-lite0"},
            "Our CNN is another network than the paper's: EfficientNet-Lite0 instead of EfficientNet-B0.",
        ),
        ({"weights": "none"}, "Our CNN starts from random weights, the paper's from ImageNet's"),
    ):
        summary = analyse(with_settings(small, models={"cnn": model}), resamples=0)
        made = html_of(summary, "internal and external", "transfer matrix", "published comparison")
        for caption in ("AUROC, mean over scenarios", "The transfers that the published study lists"):
            after = made.split(caption, 1)[1]
            assert sentence in after[: after.index("<table", after.index("</table>"))], caption
        assert sentence in made.split(f'id="{TASK}-published"')[1]
    bare = analyse(with_settings(small, models={"cnn": model}, analyses={}), resamples=0)
    assert "starts from" not in render_study_report(bare)


def test_tables_and_summary_stand_beside(folder, picture_summary):
    written = {path.stem for path in (folder / "tables").glob("*.csv")}
    assert written == set(picture_summary.tables) - set(PRIVATE)
    runs = pd.read_csv(folder / "tables" / "run_metrics.csv")
    assert runs["auroc"].tolist() == picture_summary.tables["run_metrics"]["auroc"].tolist(), "full precision"
    content = json.loads((folder / "summary.json").read_text())
    told = picture_summary.headline["tasks"][TASK]
    assert content["headline"]["tasks"][TASK]["difference"] == told["difference"]


def test_tables_of_an_earlier_run_do_not_stay(small_summary, tmp_path):
    write_study_report(small_summary, tmp_path, pictures=relevance())
    assert (tmp_path / "tables" / "relevance.csv").is_file()
    fewer = {name: table for name, table in small_summary.tables.items() if name != "abstention"}
    write_study_report(replace(small_summary, tables=fewer), tmp_path)
    written = {path.stem for path in (tmp_path / "tables").glob("*.csv")}
    assert written == set(fewer) - set(PRIVATE)


def test_a_strangers_csv_among_the_tables_stays(small_summary, tmp_path):
    """Every csv that was not of this run was deleted."""
    write_study_report(small_summary, tmp_path)
    (tmp_path / "tables" / "mine.csv").write_text("a")
    (tmp_path / "tables" / "overall.csv").write_text("changed by hand")
    write_study_report(small_summary, tmp_path)
    assert (tmp_path / "tables" / "mine.csv").read_text() == "a"
    assert (tmp_path / "tables" / "overall.csv").read_text() != "changed by hand"


def test_the_same_summary_gives_the_same_bytes(picture_summary, page, drawn):
    assert render_study_report(picture_summary) == page


def relevance(*, passed=True, content=b"\xff\xd8jpeg"):
    summary = {
        "run": "BUS-BRA>BUSI|cnn-roi|classification|1",
        "method": "grad-cam",
        "cases": 20,
        "with_region": 18,
        "share_inside": 0.61,
        "area_inside": 0.42,
        "hits": 0.83,
        "sanity": {"passed": passed, "rank_correlation": 0.04, "reason": "much the same map"},
        "warnings": ["probabilities computed here differ"],
    }
    picture = ("Malignant, wrong answer: probability of malignancy 0.12", content)
    run = RunMaps(name="CNN, ROI, BUS-BRA>BUSI", task=TASK, summary=summary, pictures=(picture,))
    return CasePictures(maps=(run,), runs_left=3)


def test_relevance_maps_stand_in_the_report_on_request_with_what_they_are_worth(
    small_summary, page, tmp_path
):
    assert "-relevance" not in page and "data:image" not in page
    made = unescape(render_study_report(small_summary, pictures=relevance()))
    section = made.split(f'<section class="part" id="{TASK}-relevance"')[1].split("</section>")[0]
    assert "data:image/jpeg;base64" in section and "Malignant, wrong answer" in section
    for shown in ("61", "42", "83", "0.04", "passed", "Probabilities computed here differ.", "3 more runs"):
        assert shown in section, shown
    assert "Do not read these maps" not in section
    failing = html_of(small_summary, "relevance", pictures=relevance(passed=False))
    assert "Do not read these maps" in failing
    write_study_report(small_summary, tmp_path / "out", pictures=relevance())
    row = pd.read_csv(tmp_path / "out" / "tables" / "relevance.csv").iloc[0]
    assert row["share_inside"] == 0.61 and row["sanity_passed"]
    with pytest.raises(UserError, match="limit is 2"):
        write_study_report(small_summary, tmp_path / "none", pictures=relevance(content=b"0" * 2_000_000))


def test_figures_as_files(picture_summary, small_summary, tmp_path):
    names = {name.removeprefix(f"{TASK}-") for name in study_figures(picture_summary)}
    assert {
        "cohorts",
        "drop",
        "internal-external-auroc",
        "transfer-auroc-cnn-roi",
        "transfer-bacc-vit-whole",
        "paired",
        "calibration-ece",
        "calibration-nll",
        "reliability-external",
        "normal-auroc",
        "risk-cnn-roi",
    } <= names
    few = {name: small_summary.tables[name] for name in ("datasets", "drop", "runs")}
    few_figures = replace(small_summary, tables=few)
    written = write_study_figures(few_figures, tmp_path, formats=("svg",))
    assert {path.name for path in written} == {"cohorts.svg", f"{TASK}-drop.svg"}
    assert all(path.stat().st_size > 1000 for path in written)
    with pytest.raises(UserError, match="gif"):
        write_study_figures(few_figures, tmp_path, formats=("gif",))


def test_small_cells_of_a_hospital_are_suppressed_and_public_counts_are_not(picture_summary):
    table = picture_summary.tables["datasets"].set_index("dataset")
    assert table.loc["BrEaST", "normal"] == 4, "a public set's count is public"
    sizes = {"Harbour": (40, 30, 3, 60), "Hill": (40, 30, 0, 60)}
    made = analyse(
        make_results(sizes=sizes, seeds=(1,), models=("cnn",), inputs=("whole",), analyses={}), resamples=0
    )
    assert made.tables["datasets"].set_index("dataset").loc["Harbour", "normal"] == "<5"
    assert "<5" in html_of(made, "who was tested")
