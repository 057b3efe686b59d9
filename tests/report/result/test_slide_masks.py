"""The page of masks of slides: recall by diameter, Dice by distance, pictures on request; no id on it (LN-18, LN-26)."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from elsewhere.analysis.result import slide_pictures
from elsewhere.analysis.result.slide_pictures import chosen_slides
from elsewhere.commands.score import score
from elsewhere.errors import UserError
from elsewhere.report.result.prepare import prepare
from elsewhere.report.result.slide_masks import recall_rows
from elsewhere.report.summary import build_sections, figure_specs
from worlds.masked_slides import IDS, write_slides


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slides")
    cohort, said = write_slides(folder)
    result = score(
        "slides", cohort, said, protocol="lymph-nodes", resamples=0, pictures=1, out=folder / "result"
    )
    return folder, result


def tables(summary):
    return {
        block.name: block
        for section in build_sections(prepare(summary))
        for block in section.blocks
        if getattr(block, "type", "") == "table"
    }


def test_the_numbers_of_the_section(scored):
    _, result = scored
    summary = result.to_dict()
    found = tables(summary)
    rows = [[cell.text for cell in row] for row in found["slide-recall"].rows]
    assert rows[1][:4] == ["0.2 to 0.5 mm", "8", "7", "0.875"]
    stages = {row[0].text: row for row in found["slide-stages"].rows}
    assert set(stages) == {"Micro", "Negative"}
    assert stages["Micro"][1].text == "8" and stages["Negative"][1].text == "6"
    values = summary["details"]["slide_scores_by_stage"]["micro"]["metrics"]["slide_dice"]
    assert values["slides"] == 8 and 0.80 < values["value"] < 0.84  # (0 + 2/3 + 6) / 8
    assert {"slide-recall", "slide-dice", "slide-false-positives"} <= set(figure_specs(summary))
    assert "details.lesion_recall_by_diameter" not in found and len([n for n in found if "recall" in n]) == 1


def test_a_class_of_few_lesions_is_withheld():
    rows = [
        {"diameter": "up to 0.2 mm", "lesions": 3, "found": 1, "recall": 1 / 3, "lo": 0.0, "hi": 1.0},
        {"diameter": "0.2 to 0.5 mm", "lesions": 40, "found": 20, "recall": 0.5, "lo": 0.3, "hi": 0.7},
        {"diameter": "over 0.5 mm", "lesions": 90, "found": 45, "recall": 0.5, "lo": 0.3, "hi": 0.7},
    ]
    shown = recall_rows(prepare({"task": "slides", "details": {"lesion_recall_by_diameter": rows}}))
    assert [row["lesions"] for row in shown] == ["<5", "≈40", 90]
    assert [row["recall"] for row in shown] == [None, None, 0.5]


def test_pictures_of_the_worst_median_and_best_and_no_id_on_the_page(scored):
    folder, result = scored
    page = (folder / "result" / "report.html").read_text()
    assert "parts of patients&#39; images" in page or "parts of patients' images" in page
    assert page.count("data:image/jpeg;base64,") >= 4
    for heading in ("Lowest Dice", "Median Dice", "Highest Dice", "Most false positives"):
        assert heading in page
    for name in (*IDS, "patient-0", str(folder)):
        assert name not in page
    key = pd.read_csv(folder / "result" / "case_key.csv")
    of_case = dict(zip(key["case"], key["case_id"], strict=True))
    assert of_case["slide 1"] == "secret-00" and of_case["slide 4"] == "secret-08"
    assert [one.group for one in result.pictured.slides] == list(slide_pictures._GROUPS)
    missed = result.pictured.slides[0]
    assert missed.views[0].truth and not missed.views[0].said
    assert "Dice 0.000" in missed.facts and "0 of 1 lesions touched" in missed.facts


def test_the_contours_lie_where_the_masks_are(scored):
    """The truth of the slide with half of its lesion is a disc of radius 60 px around (180, 200), on cells of 2 px."""
    _, result = scored
    slides = {one.title: one for one in result.pictured.slides}
    key = result.pictured.key
    best = next(one for title, one in slides.items() if one.group == "Highest Dice")
    number = IDS.index(key[best.title.lower()])
    view = best.views[0]
    points = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)", view.truth)]
    xs, ys = [2 * x for x, _ in points], [2 * y for _, y in points]
    assert view.size == (300, 200) and view.width_mm == pytest.approx(2.4)
    assert (min(xs), max(xs)) == (90 + 30 * number, 210 + 30 * number)
    assert (min(ys), max(ys)) == (140, 260)


def test_slides_that_cannot_be_read_have_their_contours_and_the_reason(tmp_path):
    cohort, said = write_slides(tmp_path)
    for file in (tmp_path / "slides").iterdir():
        file.write_bytes(b"no picture")
    result = score("slides", cohort, said, protocol="lymph-nodes", resamples=0, pictures=1)
    assert all(one.problem and one.views and not one.views[0].picture for one in result.pictured.slides)
    assert any("4 of 4 slides could not be read" in text for text in result.summary["warnings"])


def test_without_a_column_of_slides_contours_stand_on_white(tmp_path):
    cohort, said = write_slides(tmp_path, slides=False)
    result = score("slides", cohort, said, protocol="lymph-nodes", resamples=0, pictures=2)
    assert result.pictured.bytes == 0 and "contours alone" in result.pictured.sentence()
    assert "no column slide" in result.pictured.notes[0]
    result.save(tmp_path / "result")
    assert "parts of patients" not in (tmp_path / "result" / "report.html").read_text()


def test_few_slides_are_shared_among_the_groups():
    cases = pd.DataFrame(
        {"status": "scored", "slide_dice": [0.2, 0.4, 0.6, 0.8], "slide_false_positive_rate": None}
    )
    chosen = chosen_slides(cases, 2)
    assert len({row for _, row in chosen}) == 4
    assert chosen[0] == ("Lowest Dice", 0) and ("Highest Dice", 3) in chosen
    assert chosen_slides(cases.assign(status="missing"), 2) == []


def test_stages_have_no_pictures():
    cohort = pd.DataFrame({"case_id": ["a", "b"], "stage": ["macro", "negative"]})
    said = pd.DataFrame({"case_id": ["a", "b"], "stage": ["macro", "negative"]})
    with pytest.raises(UserError, match="predictions are stages or points"):
        score("slides", cohort, said, resamples=0, pictures=1)
    with pytest.raises(UserError, match="pictures are those of detection and of slides"):
        score("response", {"case_id": ["a"]}, {"case_id": ["a"], "probability": [0.5]}, pictures=1)


def test_a_long_contour_is_drawn_coarser(monkeypatch):
    import numpy as np

    mask = np.random.default_rng(0).random((128, 128)) < 0.5
    fine = slide_pictures._contour(mask, 1)
    monkeypatch.setattr(slide_pictures, "MOST_PATH", len(fine) // 3)
    assert len(slide_pictures._contour(mask, 1)) <= len(fine) // 3
