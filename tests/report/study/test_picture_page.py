"""The page and the bundle: whole, silent, small, and without a name of anybody."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from worlds import World, make_results

from elsewhere.errors import UserError
from elsewhere.study.analysis import analyse
from elsewhere.study.bundle import write_bundle
from elsewhere.study.figures import study_figures, write_study_figures
from elsewhere.study.relevance import Relevance, RunMaps
from elsewhere.study.report import render_study_report, write_study_report


@pytest.fixture(scope="module")
def folder(summary, tmp_path_factory):
    made = tmp_path_factory.mktemp("study")
    write_study_report(summary, made)
    return made


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "report.html").read_text()


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


def test_it_names_no_case_and_no_patient(page, results):
    for column in ("case", "case_id", "patient"):
        for name in results.table[column].unique():
            assert name not in page
            assert name.split("/")[-1] not in page


def test_ids_in_warnings_are_taken_out(half, tmp_path):
    """Of the page, of summary.json and of every table; the key file alone has them, and a bundle has no key file."""
    name = half.table["patient"].iloc[0]
    told = half.audit | {
        "warnings": [f"patient {name} has 2 boxes"],
        "left_out": [
            {"dataset": "BUSI", "reason": f"case {half.table['case_id'].iloc[3]} is empty", "rows": 1}
        ],
    }
    summary = analyse(replace(half, audit=told), resamples=0)
    made = render_study_report(summary)
    assert name not in made and half.table["case_id"].iloc[3] not in made
    write_study_report(replace(summary, warnings=(*summary.warnings, f"patient {name} twice")), tmp_path)
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name != "case_key.csv":
            assert name not in file.read_text(), file.name
    assert name in (tmp_path / "case_key.csv").read_text()
    write_study_report(summary, tmp_path / "bundle", key_file=False)
    assert not (tmp_path / "bundle" / "case_key.csv").exists()
    assert "[id 1]" in made and "has 2 boxes" in made


def test_a_list_of_names_becomes_its_count(half):
    """Numbers of three digits are names too: the redactor cannot know them, so the list goes."""
    told = half.audit | {
        "warnings": [
            "BUS-BRA: cases with more than one birads: 1 (856)",
            "BUSI: pictures with the same pixels and different labels: 1 (benign (433) = malignant (145))",
        ]
    }
    made = unescape(render_study_report(analyse(replace(half, audit=told), resamples=0)))
    assert "(856)" not in made and "(433)" not in made
    assert "cases with more than one birads: 1<" in made
    first = made.split('id="contents"')[0]
    assert first.index("different labels: 1") < first.index("birads: 1"), (
        "what bears on the numbers comes first"
    )


def test_near_duplicates_are_counted_by_dataset_and_kind(page, half):
    table = table_of(page, "Pairs of pictures that show one scene")
    assert ">across patients and labels<" in table and ">4<" in table
    assert "1 pairs of near-duplicate pictures carry different labels" in page
    unseen = half.audit | {"duplicates": {"kept_together": False, "why": "nobody looked"}}
    assert "Nobody looked" in render_study_report(analyse(replace(half, audit=unseen), resamples=0))


def test_the_answer_is_on_the_first_page(page, summary):
    first = page.split('id="contents"')[0]
    difference = f"{abs(summary.headline['difference']):.3f}"
    assert (
        difference in first and "No margin is declared, so there is no verdict. Declared in advance," in first
    )
    assert "the study cannot tell" in first and "the word would be" not in first
    assert "grade C" in first and "BUS-UCLM: 7 patients carry both labels" in first


def test_every_section_is_there(page):
    for name in (
        "who",
        "home-and-away",
        "transfers",
        "comparisons",
        "without",
        "calibration",
        "normal",
        "abstention",
        "paper",
        "audit",
        "how",
        "provenance",
    ):
        assert f'id="{name}"' in page, name
    assert "Unweighted mean" in page or "unweighted mean" in page
    assert "seed-level standard" in page and "smallest p that this test can give is 0.125" in page
    assert "NVIDIA H200" in page and "95 % t interval over scenarios" in page
    assert "Leaks: none" in page


def test_the_paper_is_beside(page, half):
    assert "0.719" in page and "10.3390/diagnostics16101537" in page
    plain = render_study_report(
        analyse(replace(half, settings=half.settings | {"analyses": {}}), resamples=0)
    )
    assert 'id="paper"' not in plain and "Paper" not in plain and "diagnostics16101537" not in plain


def test_a_margin_gives_a_word(half):
    settings = half.settings | {"analyses": {"verdict_margin": 0.3}}
    made = render_study_report(analyse(replace(half, settings=settings), resamples=0))
    assert '<p class="word">EQUIVALENT</p>' in made and "declared in the study file" in made
    assert "tone-equivalent" in made


@pytest.mark.parametrize("analyses", [{}, {"verdict_margin": 0.3}])
def test_two_hospitals_have_no_word(analyses):
    """The transfers keep theirs, which rest on patients."""
    sizes = {"Harbour": (60, 50, 0, 100), "Hill": (60, 50, 0, 100)}
    world = World(sizes=sizes, seeds=(1, 2), models=("cnn",), inputs=("whole",), analyses=analyses)
    made = analyse(make_results(world), resamples=0)
    first = render_study_report(made).split('id="contents"')[0]
    assert (
        made.headline["word"] == "NOT ASSESSED" and "2 sources: a word over sources takes at least 4" in first
    )
    assert "spread" in first and "95 %" not in first and "Declared in advance" not in first
    words = set(made.tables["transfers"]["word"])
    assert words & {"EQUIVALENT", "INCONCLUSIVE", "BELOW"} if analyses else words == {""}


def test_a_leak_is_an_alarm(half):
    def outputs(run):
        held = half.outputs(run)
        return held | {"validation": held["test"].iloc[:50]}

    made = render_study_report(analyse(replace(half, outputs=outputs), resamples=0))
    assert "Alarm." in made.split('id="contents"')[0] and "Leaks: none" not in made


def test_tables_and_summary_stand_beside(folder, summary):
    written = {p.stem for p in (folder / "tables").glob("*.csv")}
    assert written == set(summary.tables)
    runs = pd.read_csv(folder / "tables" / "runs.csv")
    assert runs["auroc"].tolist() == summary.tables["runs"]["auroc"].tolist(), "full precision"
    held = json.loads((folder / "summary.json").read_text())
    assert held["headline"]["difference"] == summary.headline["difference"]


def test_tables_of_an_earlier_run_do_not_stay(summary, tmp_path):
    write_study_report(summary, tmp_path, maps=relevance())
    fewer = {name: table for name, table in summary.tables.items() if name != "paired"}
    write_study_report(replace(summary, tables=fewer), tmp_path)
    assert {path.stem for path in (tmp_path / "tables").glob("*.csv")} == set(fewer)


def test_a_strangers_csv_among_the_tables_stays(summary, tmp_path):
    """Every csv that was not of this run was deleted."""
    write_study_report(summary, tmp_path)
    (tmp_path / "tables" / "mine.csv").write_text("a")
    (tmp_path / "tables" / "overall.csv").write_text("changed by hand")
    write_study_report(summary, tmp_path)
    assert (tmp_path / "tables" / "mine.csv").read_text() == "a"
    assert (tmp_path / "tables" / "overall.csv").read_text() != "changed by hand"


def test_the_same_summary_gives_the_same_bytes(summary, page):
    assert render_study_report(summary) == page


def relevance(*, passed=True, content=b"\xff\xd8jpeg"):
    summary = {
        "run": "BUS-BRA>BUSI|cnn|roi|1",
        "method": "grad-cam",
        "cases": 20,
        "with_region": 18,
        "share_inside": 0.61,
        "area_inside": 0.42,
        "hits": 0.83,
        "sanity": {"passed": passed, "rank_correlation": 0.04, "reason": "much the same map"},
        "warnings": ["probabilities computed here differ"],
    }
    picture = ("Malignant, answered wrongly: 0.12 for malignant", content)
    return Relevance(
        runs=(RunMaps(name="CNN, ROI, BUS-BRA>BUSI", summary=summary, pictures=(picture,)),), left=3
    )


def test_relevance_maps_stand_in_the_report_on_request_with_what_they_are_worth(summary, page, tmp_path):
    assert 'id="relevance"' not in page and "data:image" not in page
    made = unescape(render_study_report(summary, maps=relevance()))
    section = made.split('<section class="part" id="relevance"')[1].split("</section>")[0]
    assert "data:image/jpeg;base64" in section and "Malignant, answered wrongly: 0.12" in section
    for told in ("61", "42", "83", "0.04", "passed", "Probabilities computed here differ.", "3 more runs"):
        assert told in section, told
    assert "Do not read these maps" not in section
    assert "Do not read these maps" in render_study_report(summary, maps=relevance(passed=False))
    write_study_report(summary, tmp_path / "out", maps=relevance())
    row = pd.read_csv(tmp_path / "out" / "tables" / "relevance.csv").iloc[0]
    assert row["share_inside"] == 0.61 and row["sanity_passed"]
    with pytest.raises(UserError, match="limit is 2"):
        write_study_report(summary, tmp_path / "none", maps=relevance(content=b"0" * 2_000_000))


def test_a_margin_study_and_several_sources_have_their_sections(results):
    names = {"roi-00": 0.0, "roi-10": 0.1, "roi-12": 0.12, "roi-20": 0.2}
    four = ["BUS-UCLM>BUSI", "BUSI>BUS-BRA", "BUS-BRA>BUSI", "BrEaST>BUS-UCLM"]
    made = make_results(
        World(kinds=("external",), inputs=tuple(names), margins=names, seeds=(1, 2), models=("cnn",)),
        analyses={"reference": "ultrasound", "margin_reference": 0.12},
    )
    made = replace(made, runs=made.runs[made.runs["scenario"].isin(four)].reset_index(drop=True))
    summary = analyse(made, resamples=0)
    assert summary.tables["margins"].set_index("margin").loc[0.0, "paper_auroc"] == 0.778
    page = render_study_report(summary)
    assert 'id="margins"' in page and "its smallest possible p is 0.125" in page
    assert "not assessed" in page.split('id="contents"')[0]
    several = make_results(
        World(kinds=("external", "leave-one-dataset-out"), seeds=(1, 2), models=("cnn",), inputs=("roi",))
    )
    assert 'id="sources"' in render_study_report(analyse(several, resamples=0))


def test_a_study_of_found_boxes_leads_with_what_they_cost():
    world = World(kinds=("external",), inputs=("roi", "found"), models=("cnn",), seeds=(1, 2), analyses={})
    made = analyse(make_results(world), resamples=0)
    paired = made.tables["paired"]
    cost = paired[(paired["what"] == "boxes") & (paired["metric"] == "auroc")]["difference"].iloc[0]
    first = render_study_report(made).split('id="contents"')[0]
    assert "AUROC with found boxes" in first and f"{abs(cost):.3f}" in first and "not assessed" not in first


def test_a_method_chosen_on_the_sources_leads(tmp_path):
    """ST-12: nested runs choose and stand in no average; what was chosen is the headline, all attempts are shown."""
    made = analyse(
        make_results(
            World(
                kinds=("leave-one-dataset-out", "nested"), seeds=(1, 2), inputs=("whole", "roi"), analyses={}
            )
        ),
        resamples=0,
    )
    assert set(made.tables["runs"]["kind"]) == {"leave-one-dataset-out"}
    assert len(made.tables["selection"]) == 5 and len(made.tables["selection_attempts"]) == 16
    page = render_study_report(made)
    first = page.split('id="contents"')[0]
    assert "4 scenarios and 12 to choose by" in first
    assert "AUROC at hospitals left out" in first and f"{made.headline['chosen_auroc']:.3f}" in first
    assert "Every attempt" in page and "may not be claimed" in page


def test_a_choice_without_the_annotated_outline_stands_beside_it():
    world = World(kinds=("leave-one-dataset-out", "nested"), seeds=(1,), inputs=("whole", "roi"), analyses={})
    results = make_results(world)
    page = render_study_report(analyse(results, resamples=0))
    assert "do not see the annotated outline" not in page
    drawn = replace(results, settings={**results.settings, "inputs": {"roi": {"outline": True}, "whole": {}}})
    made = analyse(drawn, resamples=0)
    assert not made.tables["selection_without_outline"]["members"].str.contains("roi").any()
    page = render_study_report(made)
    plain = made.tables["selection_without_outline"]["ensemble_auroc"].iloc[-1]
    first = page.split('id="contents"')[0]
    assert "do not see the annotated outline" in page
    assert f"the same choice without them gives {plain:.3f}" in first, "the headline says what it rests on"


def table_of(page, caption):
    """One table of the page, from its caption to its end."""
    return page.split(caption, 1)[1].split("</table>", 1)[0]


def test_a_configuration_with_fewer_seeds_says_so():
    """Nested runs too: a mean over fewer seeds is a weaker ensemble."""
    world = World(kinds=("leave-one-dataset-out", "nested"), seeds=(1, 2, 3), inputs=("roi",), analyses={})
    whole = make_results(world)
    page = render_study_report(analyse(whole, resamples=0))
    assert " of 3</" not in page and "Fewer seeds than the others" not in page
    gone = (whole.runs["model"] == "vit") & (whole.runs["kind"] == "nested") & (whole.runs["seed"] == 3)
    fewer = analyse(replace(whole, runs=whole.runs[~gone].reset_index(drop=True)), resamples=0)
    attempts = fewer.tables["selection_attempts"].set_index("model")
    assert set(attempts.loc["vit", "nested_seeds"]) == {2} and set(attempts.loc["vit", "seeds"]) == {3}
    assert set(attempts.loc["cnn", "nested_seeds"]) == {3}
    page = render_study_report(fewer)
    assert table_of(page, "Every attempt").count("2 of 3") == 4
    assert "judged less surely: ViT, ROI." in page
    assert "2 to 3 seeds: their means differ in weight (fewer: ViT, ROI)" in page.split('id="contents"')[0]
    gone = (whole.runs["kind"] == "nested") & (whole.runs["seed"] != 1)
    one = render_study_report(
        analyse(replace(whole, runs=whole.runs[~gone].reset_index(drop=True)), resamples=0)
    )
    attempts = table_of(one, "Every attempt")
    assert " of 3" not in attempts and attempts.count(">3<") == attempts.count(">1<") == 8
    assert "Fewer seeds than the others" not in one, "all were chosen by one seed and tested with three"
    assert "differ in weight" not in one


def test_a_mean_over_targets_needs_every_target():
    world = World(kinds=("leave-one-dataset-out", "nested"), seeds=(1,), inputs=("roi",), analyses={})
    whole = make_results(world)
    gone = (
        (whole.runs["model"] == "vit") & (whole.runs["kind"] != "nested") & (whole.runs["target"] == "BUSI")
    )
    made = analyse(replace(whole, runs=whole.runs[~gone].reset_index(drop=True)), resamples=0)
    table = table_of(render_study_report(made), "AUROC where all other datasets train")
    cnn, vit = (row for row in table.split("<tr>") if "ROI" in row)
    assert cnn.count("—") == 0 and vit.count("—") == 1
    assert "Single source" not in table, "no single source was trained"


def test_an_attempt_that_could_not_be_weighed_is_shown():
    world = World(kinds=("leave-one-dataset-out", "nested"), seeds=(1,), inputs=("roi",), analyses={})
    whole = make_results(world)
    gone = (whole.runs["model"] == "vit") & (whole.runs["scenario"] == "nested BrEaST+BUS-UCLM>BUSI")
    assert gone.sum() == 1
    made = analyse(replace(whole, runs=whole.runs[~gone].reset_index(drop=True)), resamples=0)
    attempts = made.tables["selection_attempts"].set_index(["target", "model"])
    assert len(attempts) == 8 and attempts.loc[("BUS-BRA", "vit"), "left_out"] == "2 of 3 choices done"
    assert not attempts.loc[("BUS-BRA", "vit"), "chosen"]
    assert table_of(render_study_report(made), "Every attempt").count("2 of 3 choices done") == 1


def test_nested_runs_alone_have_a_name():
    made = analyse(
        make_results(World(kinds=("nested",), seeds=(1,), models=("cnn",), inputs=("roi",), analyses={})),
        resamples=0,
    )
    assert made.design.kinds == ("nested",)
    assert "a source left out, to choose" in render_study_report(made)


def test_another_network_than_the_papers_is_said_beside_its_numbers(page, half):
    assert "another network" not in page
    settings = half.settings | {"models": {"cnn": {"network": "efficientnet-lite0"}}}
    made = unescape(render_study_report(analyse(replace(half, settings=settings), resamples=0)))
    said = "Our CNN is another network than the paper's: EfficientNet-Lite0 instead of EfficientNet-B0."
    for caption in ("AUROC, mean over scenarios", "The transfers that the paper lists"):
        after = made.split(caption, 1)[1]
        assert said in after[: after.index("<table", after.index("</table>"))], caption
    assert said in made.split('id="paper"')[1]
    bare = replace(half, settings=settings | {"analyses": {}})
    assert "another network" not in render_study_report(analyse(bare, resamples=0))


def test_a_model_that_starts_from_scratch_is_said_beside_the_papers_numbers(page, half):
    assert "starts from" not in page
    settings = half.settings | {"models": {"cnn": {"network": "efficientnet-b0", "weights": "none"}}}
    made = unescape(render_study_report(analyse(replace(half, settings=settings), resamples=0)))
    said = "Our CNN starts from random weights, the paper's from ImageNet's"
    for caption in ("AUROC, mean over scenarios", "The transfers that the paper lists"):
        after = made.split(caption, 1)[1]
        assert said in after[: after.index("<table", after.index("</table>"))], caption
    assert said in made.split('id="paper"')[1] and "another network" not in made


def test_small_cells_of_a_hospital_are_suppressed_and_public_counts_are_not(summary):
    table = summary.tables["datasets"].set_index("dataset")
    assert table.loc["BrEaST", "normal"] == 4, "a public set's count is public"
    sizes = {"Harbour": (40, 30, 3, 60), "Hill": (40, 30, 0, 60)}
    made = analyse(
        make_results(World(sizes=sizes, seeds=(1,), models=("cnn",), inputs=("whole",), analyses={})),
        resamples=0,
    )
    assert made.tables["datasets"].set_index("dataset").loc["Harbour", "normal"] == "<5"


def test_figures_as_files(summary, tmp_path):
    names = set(study_figures(summary))
    assert {
        "cohorts",
        "drop",
        "home-and-away-auroc",
        "transfer-auroc-cnn-roi",
        "transfer-bacc-vit-whole",
        "paired",
        "calibration-ece",
        "calibration-nll",
        "reliability-external",
        "normal-auroc",
        "risk-cnn-roi",
    } <= names
    few = replace(
        summary, tables={k: v for k, v in summary.tables.items() if k in ("datasets", "drop")}, curves={}
    )
    written = write_study_figures(few, tmp_path, formats=("svg",))
    assert {p.name for p in written} == {"cohorts.svg", "drop.svg"} and all(
        p.stat().st_size > 1000 for p in written
    )
    with pytest.raises(UserError, match="gif"):
        write_study_figures(few, tmp_path, formats=("gif",))


def test_the_bundle_is_whole_and_its_digests_hold(half, tmp_path):
    made = analyse(half, resamples=0)
    out = write_bundle(half, made, tmp_path / "bundle")
    held = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert {
        "manifest.csv",
        "outputs.parquet",
        "splits.parquet",
        "runs.csv",
        "trainings.csv",
        "audit.json",
        "study.json",
        "environment.json",
        "report.html",
        "summary.json",
        "tables/overall.csv",
        "README.md",
        "SHA256SUMS",
        "bundle.json",
    } <= held
    for line in (out / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ", 1)
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    outputs = pd.read_parquet(out / "outputs.parquet")
    one = outputs[(outputs["run"] == half.runs["run"].iloc[7]) & (outputs["part"] == "test")]
    assert (
        one["logit_malignant"].tolist()
        == half.outputs(half.runs["run"].iloc[7])["test"]["logit_malignant"].tolist()
    )
    assert "image" not in pd.read_csv(out / "manifest.csv").columns, "no path of this machine"
    assert write_bundle(half, made, out, replace=True) == out, "an earlier bundle is replaced"


def test_a_bundle_with_a_salt_holds_no_id(half, tmp_path):
    few = replace(half, runs=half.runs.iloc[:4].reset_index(drop=True))
    out = write_bundle(few, analyse(few, resamples=0), tmp_path / "bundle", salt="a secret salt")
    outputs, manifest = pd.read_parquet(out / "outputs.parquet"), pd.read_csv(out / "manifest.csv")
    assert set(outputs["case"]) <= set(manifest["case"]), "the same name has the same hash in every file"
    names = set(half.table["case"]) | set(half.table["patient"]) | set(half.table["case_id"])
    assert not (set(outputs["case"]) | set(outputs["patient"]) | set(manifest["case_id"])) & names
    for path in out.rglob("*"):
        if path.is_file() and path.suffix in (".json", ".csv", ".html", ".md"):
            text = path.read_text()
            assert not [n for n in list(names)[:200] if n in text], path
    with pytest.raises(UserError, match="folder of splits"):
        write_bundle(few, analyse(few, resamples=0), tmp_path / "b", splits=tmp_path / "none")


def test_exported_splits_are_copied(half, tmp_path):
    (tmp_path / "splits").mkdir()
    (tmp_path / "splits" / "index.json").write_text("{}")
    few = replace(half, runs=half.runs.iloc[:4].reset_index(drop=True))
    out = write_bundle(few, analyse(few, resamples=0), tmp_path / "bundle", splits=tmp_path / "splits")
    assert (Path(out) / "splits" / "index.json").is_file() and not (Path(out) / "splits.parquet").exists()
