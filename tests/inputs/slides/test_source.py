"""The source 'slides': opened lazily, the stated scale holds, the truth of predicted cases is hidden."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("tifffile", reason="needs the extra 'slides'")
pytest.importorskip("imagecodecs", reason="needs the extra 'slides'")

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.inputs.slides.source import SlideCase, SlidesSource
from elsewhere.inputs.source import sources
from elsewhere.study.case_rows import case_rows
from worlds.hospital_slides import asap_xml, box, compressed_again, piece_of_tissue, write_slide


@pytest.fixture(scope="session")
def folder(made_once):
    def make(folder):
        picture = piece_of_tissue(3)
        write_slide(folder / "a.tif", picture, mpp=0.5)
        write_slide(folder / "same.tif", picture, mpp=None)
        write_slide(folder / "poor.tif", compressed_again(picture), mpp=0.5)
        (folder / "a.xml").write_text(asap_xml([box(10, 20, 300, 200)]))
        (folder / "poor.xml").write_text(asap_xml([box(5000, 20, 300, 200)]))

    return made_once("source_slides", make)


@pytest.fixture
def source(folder):
    table = pd.DataFrame(
        {
            "case_id": ["a", "same", "poor", "none"],
            "patient_id": list("pqrs"),
            "dataset": "X",
            "slide": ["a.tif", "same.tif", "poor.tif", None],
            "annotation": ["a.xml", None, "poor.xml", None],
            "stage": ["macro", None, "micro", "itc"],
            "mpp": [None, 0.25, None, None],
        }
    )
    return sources.get("slides").of_cases(case_rows(Cohort.from_frame(table, root=folder)))


def test_rows_without_a_slide_are_no_case_and_nothing_is_opened(source):
    assert isinstance(source, SlidesSource)
    assert source.cases == ("X/a", "X/same", "X/poor") and "X/none" not in source
    assert not source._open and source.nbytes() == 0


def test_the_scale_of_the_table_overrides_that_of_the_file(source):
    view = source.view(cases=frozenset(source.cases), hidden=frozenset(), sees=frozenset())
    assert (view.mpp("X/a"), view.mpp("X/same")) == (0.5, 0.25)
    assert view.size_px("X/a") == (1000, 760) and len(view.levels("X/a")) == 2
    assert source.shape("X/a") == (760, 1000) and source.shape("X/none") is None
    assert view.read_mpp("X/same", (0, 0, 20, 10), mpp=0.5).shape == (10, 20, 3)
    strips = list(view.strips("X/a", mpp=2.0, height=100))
    assert [strip.pixels.shape for strip in strips] == [(100, 250, 3), (90, 250, 3)]


def test_what_a_recipe_is_shown(source):
    cases, hidden = frozenset({"X/a", "X/same"}), frozenset({"X/a"})
    view = source.view(cases=cases, hidden=hidden, sees=frozenset())
    assert "X/a" in view and "X/poor" not in view
    assert view.annotations("X/a") is None and view.stage("X/a") is None
    with pytest.raises(KeyError, match="not a case of this training"):
        view.size_px("X/poor")
    shown = source.view(cases=cases, hidden=hidden, sees=frozenset({"outline", "stage"}))
    assert shown.stage("X/a") == "macro" and len(shown.annotations("X/a").outlines) == 1
    assert shown.annotations("X/same") is None and shown.stage("X/same") is None
    assert "a.tif" not in repr(vars(type(view))) and not hasattr(view, "__dict__")


def test_annotations_of_another_slide_are_a_problem(source):
    problems = source.problems(source.cases)
    assert list(problems) == ["X/poor"] and "lie outside of the slide" in problems["X/poor"]


def test_a_slide_that_is_not_there_is_a_problem_and_the_others_go_on(tmp_path):
    source = SlidesSource({"X/gone": SlideCase(path=tmp_path / "gone.svs")})
    assert list(source.problems(["X/gone"])) == ["X/gone"]
    with pytest.raises(UserError, match="Did you mean X/gone"):
        source.files("X/gon")


def test_digests(source):
    """The key of a training follows bytes and scale; the identity follows pixels alone."""
    assert len({source.digest(case) for case in source.cases}) == 3
    files = source.files("X/a")
    stated = SlidesSource({"X/a": SlideCase(path=files.path, mpp=0.4)})
    assert stated.digest("X/a") != source.digest("X/a") and stated.identity("X/a") == source.identity("X/a")
    assert source.identity("X/a") == source.identity("X/same") != source.identity("X/poor")
    assert source.truth_digest("X/same") == ""
    other = SlidesSource({"X/a": SlideCase(path=files.path, annotation=files.annotation, stage="micro")})
    assert other.truth_digest("X/a") != source.truth_digest("X/a") != ""
    assert [path.name for path in source.truth_files()] == ["a.xml", "poor.xml"]


def test_it_travels_as_paths_and_is_not_packed(source, tmp_path):
    source.slide("X/a")
    again = pickle.loads(pickle.dumps(source.portable(["X/a", "X/none"])))
    assert again.cases == ("X/a",) and again.slide("X/a").size_px == (1000, 760)
    with pytest.raises(UserError, match="cannot be packed"):
        source.pack(tmp_path, [], with_truth=False)
    with pytest.raises(UserError, match="never packed"):
        SlidesSource.unpack(Path(tmp_path))
    with pytest.raises(TypeError):
        source.write_mask(tmp_path / "m.tif", np.zeros((2, 2), bool), like="X/a")
    assert source.boxes([]).shape == (0, 4)


def test_few_slides_stay_open(folder, monkeypatch):
    monkeypatch.setattr("elsewhere.inputs.slides.source.MOST_OPEN", 2)
    source = SlidesSource({f"X/{n}": SlideCase(path=folder / "a.tif") for n in range(5)})
    first = source.slide("X/0")
    for case in source.cases:
        source.slide(case)
    assert list(source._open) == ["X/3", "X/4"] and first.read(0, 0, 4, 4).shape == (4, 4, 3)
