"""The page of a recipe study: whole, offline, small, and without a name of anybody."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from recipe_worlds import make_results, segmentation_scores

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions.masks import mask_file_name
from elsewhere.study import recipe_report
from elsewhere.study.recipe_analysis import analyse_recipes
from elsewhere.study.recipe_report import render_recipe_report, write_recipe_report
from elsewhere.study.recipe_report_pictures import gallery, picture

FIVE = {"EQUIVALENT", "BELOW", "ABOVE", "INCONCLUSIVE", "NOT ASSESSED"}


@pytest.fixture(scope="module")
def folder(summary, results, tmp_path_factory):
    made = tmp_path_factory.mktemp("recipes")
    write_recipe_report(summary, results, made)
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
        self.links += [held[n] for n in ("href", "src", "xlink:href") if held.get(n)]


def test_a_transfer_that_is_not_compared_has_its_reason_and_no_nan(page):
    made = make_results(sizes={"A": 16, "B": 60}, kinds=("internal", "leave-one-dataset-out"), segmenters={})
    told = render_recipe_report(analyse_recipes(made, resamples=20), made)
    assert "not compared" in told
    for shown in (told, page):
        assert not re.search(r">\s*nan\s*<", shown)
    assert "Lower NormHD is better" not in told and "Lower NormHD is better" in page


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


def test_it_names_nobody(page, folder, results):
    for name in results.cohort.cases["patient_id"]:
        assert name not in page
    for file in (folder / "tables").glob("*.csv"):
        text = file.read_text()
        assert not [n for n in results.cohort.cases["patient_id"] if n in text], file.name
    assert "ISPY2_032" not in (folder / "summary.json").read_text()


def test_the_first_page_answers_for_each_task(page, summary):
    first = page.split('id="contents"')[0]
    for task, word in (("segmentation", "Tumour segmentation"), ("response", "Response to treatment (pCR)")):
        told = summary.headline["tasks"][task]
        assert word in first and told["best"] in first
        assert f"{told['home']:.3f}" in first and f"{told['elsewhere']:.3f}" in first
    assert first.count("What it could have seen:") == 2 and "seen: a drop of" in first
    assert max(summary.headline["tasks"]["segmentation"]["smallest_drop"]) <= 1
    words = set(re.findall(r'<p class="word">([^<]+)</p>', first))
    assert words and words <= FIVE
    assert "cannot be estimated" in first and "breast density" in first


def test_every_word_of_the_page_is_one_of_five(page):
    chips = re.findall(r'<span class="chip[^>]*>.*?</svg>\s*([A-Z ]+)</span>', page, flags=re.S)
    assert chips and set(chips) <= FIVE


def test_no_margin_no_word(results):
    made = replace(results, settings=results.settings | {"analyses": {}})
    few = replace(
        made, scores={k: v for k, v in made.scores.items() if k[1] in ("subtraction", "residual-unet")}
    )
    page = render_recipe_report(analyse_recipes(few, resamples=20), few)
    assert 'class="word"' not in page and 'class="chip' not in page
    assert "No margin is declared, so there is no verdict." in page


def test_every_section_is_there(page):
    for task in ("segmentation", "response"):
        for part in ("board", "tests", "elsewhere", "groups", "weights", "sizes", "hardest"):
            assert f'id="{task}-{part}"' in page, (task, part)
    for name in ("who", "response-reliability", "audit", "how", "provenance"):
        assert f'id="{name}"' in page, name
    assert "mamamia-paper 1.0" in page and "share the same resamples" in page
    assert page.count('type="range"') == 2 and page.count("<script>") == 1


def test_costs_and_the_limit_of_five_minutes(page):
    table = page.split("What a case costs", 1)[1].split("</table>", 1)[0]
    assert "Over 5 min" in table and "40.0" in table


def test_tables_and_key_file_stand_beside(folder, summary):
    written = {p.stem for p in (folder / "tables").glob("*.csv")}
    assert written == set(summary.tables) - {"runs"}
    board = pd.read_csv(folder / "tables" / "leaderboard.csv")
    assert board["combined"].tolist() == summary.tables["leaderboard"]["combined"].tolist(), "full precision"
    held = json.loads((folder / "summary.json").read_text())
    assert (
        held["headline"]["tasks"]["segmentation"]["best"] == summary.headline["tasks"]["segmentation"]["best"]
    )
    key = pd.read_csv(folder / "case_key.csv")
    assert set(summary.tables["hardest"]["case"]) == set(key["hash"])
    assert stat.S_IMODE((folder / "case_key.csv").stat().st_mode) == 0o600


def test_the_same_summary_gives_the_same_bytes(summary, results, page):
    assert render_recipe_report(summary, results) == page


def test_ids_in_warnings_are_taken_out(summary, results):
    name = results.cohort.cases["patient_id"].iloc[0]
    made = render_recipe_report(replace(summary, warnings=(f"patient {name} has two phases",)), results)
    assert name not in made and "[id 1] has two phases" in made


def test_too_large_a_page_is_refused(summary, results, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe_report, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match="its limit is"):
        write_recipe_report(summary, results, tmp_path / "out")
    assert not (tmp_path / "out" / "report.html").exists()


def test_a_page_without_a_slider_has_no_script():
    made = make_results(
        kinds=("internal",), sizes={"A": 40, "B": 40}, segmenters={"residual-unet": 0.7}, predictors={}
    )
    page = render_recipe_report(analyse_recipes(made, resamples=20), made)
    assert "<script" not in page and "nothing was tested elsewhere" not in page.split('id="contents"')[1]
    assert "fewer than two recipes" in page


@pytest.fixture
def imaged(tmp_path):
    """Six patients with volumes, and what two recipes drew."""
    import nibabel as nib

    shape = (40, 36, 8)
    grid = np.indices(shape)
    rng = np.random.default_rng(5)
    rows, runs = [], []
    affine = np.diag([-0.8, 0.8, 2.0, 1.0])
    for k in range(6):
        name = f"P{k:03d}"
        centre = np.array([12 + k, 15 + k, 4])
        truth = ((grid - centre[:, None, None, None]) ** 2 * np.array([1, 1, 4])[:, None, None, None]).sum(
            0
        ) < 20
        folder = tmp_path / "images" / name
        folder.mkdir(parents=True)
        for phase in range(3):
            volume = rng.normal(100, 5, shape) + 80.0 * phase * truth
            nib.save(
                nib.Nifti1Image(volume.astype(np.float32), affine), folder / f"{name}_{phase:04d}.nii.gz"
            )
        (tmp_path / "masks").mkdir(exist_ok=True)
        nib.save(nib.Nifti1Image(truth.astype(np.uint8), affine), tmp_path / "masks" / f"{name}.nii.gz")
        for recipe, shift in (("residual-unet", 0), ("subtraction", 3)):
            out = tmp_path / "predictions" / "segmentation" / recipe / "A" / "seed-1"
            out.mkdir(parents=True, exist_ok=True)
            moved = np.roll(truth, shift, axis=0)
            nib.save(nib.Nifti1Image(moved.astype(np.uint8), affine), out / mask_file_name(name))
        rows.append(
            {"case_id": name, "patient_id": name, "dataset": "A", "site": "A", "image": f"images/{name}"}
            | {"mask": f"masks/{name}.nii.gz", "pcr": k % 2, "age": 40 + 5 * k, "clip": int(k == 2)}
        )
    cohort = Cohort.from_frame(pd.DataFrame(rows), root=tmp_path)
    held = make_results(kinds=("internal",), sizes={"A": 6}, predictors={})
    scores = {
        ("segmentation", r, "A", 1): segmentation_scores(cohort, rng, dice=d)
        for r, d in (("residual-unet", 0.8), ("subtraction", 0.6))
    }
    for recipe in ("residual-unet", "subtraction"):
        runs.append(
            {
                "run": recipe,
                "scenario": "A",
                "kind": "internal",
                "source": "A",
                "target": "A",
                "recipe": recipe,
            }
            | {"task": "segmentation", "seed": 1, "unit": recipe, "status": "done", "reason": ""}
            | {"predictions": f"segmentation/{recipe}/A/seed-1"}
        )
    return replace(
        held,
        cohort=cohort,
        scores=scores,
        runs=pd.DataFrame(runs),
        predictions_folder=tmp_path / "predictions",
    )


def test_pictures_only_on_request(imaged, tmp_path):
    summary = analyse_recipes(imaged, resamples=10)
    assert "base64" not in render_recipe_report(summary, imaged)
    page = write_recipe_report(summary, imaged, tmp_path / "out", pictures=True).read_text()
    assert page.count("data:image/png;base64") == 6 and "What the recipes drew" in page
    assert len(page.encode()) < 2_000_000
    shown = gallery(summary, imaged)
    assert any(", clip: mean Dice" in caption for caption in shown) and not any("P00" in c for c in shown)


def test_a_case_without_a_volume_says_so(imaged):
    for file in (imaged.cohort.root / "images" / "P001").glob("*.nii.gz"):
        file.unlink()
    summary = analyse_recipes(imaged, resamples=0)
    made = [v for v in gallery(summary, imaged).values() if "No picture" in v]
    assert len(made) == 1 and "P001" not in made[0]


def test_a_picture_holds_the_slice_and_the_contours():
    truth = np.zeros((30, 20), dtype=bool)
    truth[10:16, 5:9] = True
    image = np.random.default_rng(0).normal(size=(30, 20)).astype(np.float32)
    plain = picture(image, truth, {})
    drawn = picture(image, truth, {"a": np.roll(truth, 4, axis=0), "b": np.zeros_like(truth)})
    assert plain.startswith(b"\x89PNG") and drawn.startswith(b"\x89PNG") and plain != drawn


def test_the_page_says_what_a_recipe_was_told_and_what_it_says_of_itself(tmp_path):
    made = make_results(
        kinds=("leave-one-dataset-out",),
        segmenters={"residual-unet": 0.7, "masked-autoencoder": 0.7},
        predictors={"random": 0.0, "clinical": 0.9, "radiomics": 0.1},
    )
    unit = made.runs.loc[made.runs["recipe"] == "radiomics", "unit"].iloc[0]
    case = str(made.cohort.cases["case_id"].iloc[0])
    notes = ["regions are automatic", f"{case}: no breast box"]
    units = pd.DataFrame({"unit": [unit], "notes": [notes]})
    asks = {"masked-autoencoder": {"settings": {"test_box": "given"}}}
    settings = made.settings | {"recipes": made.settings.get("recipes", {}) | asks}
    summary = analyse_recipes(replace(made, units=units, settings=settings), resamples=30)
    told = summary.of("recipes").set_index("recipe")
    assert told["beyond"].to_dict() == {
        "residual-unet": "",
        "masked-autoencoder": "the expert's box of the affected breast",
        "random": "",
        "clinical": "clinical columns",
        "radiomics": "",
    }
    page = write_recipe_report(summary, made, tmp_path / "report").read_text()
    assert "Regions are automatic." in page and "Told beside volumes" in page and case not in page
