"""One small study of pictures for the tests that only read it."""

from __future__ import annotations

import pytest

from elsewhere.report.study.page import write_study_report
from worlds.drawn_figures import build_without_drawing
from worlds.picture_results import cnn_alone, small_results


@pytest.fixture(scope="session")
def picture_page_folder(picture_summary, made_once):
    """The whole report of the small study of pictures, with its figures; tests only read it."""
    return made_once("picture-page", lambda folder: write_study_report(picture_summary, folder))


@pytest.fixture(scope="session")
def mri_page_folder(mri_summary, made_once):
    """The whole report of the small study of published methods, with its figures; tests only read it."""
    return made_once("mri-page", lambda folder: write_study_report(mri_summary, folder))


@pytest.fixture
def drawn():
    """For tests whose pages have their figures; those of the session always have them."""


@pytest.fixture(autouse=True)
def _figures_not_drawn(request, monkeypatch):
    """Most tests read tables and sentences of a page: its figures are built from its numbers and not drawn."""
    if "drawn" not in request.fixturenames:
        build_without_drawing(monkeypatch)


@pytest.fixture(scope="session")
def pictures():
    """Two models, two inputs, three seeds, four datasets."""
    return small_results()


@pytest.fixture(scope="session")
def half():
    """The CNN alone: for tests that change something and analyse again."""
    return cnn_alone()
