"""Readers of predictions follow no link out of the prediction folder, and open plain files only.

A mask that is a symbolic link to the truth would score Dice 1.000; a pipe or a device would hang the reader.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from elsewhere.errors import UserError
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.plain_files import check_plain_file, files_inside
from elsewhere.scoring.task import read_predictions

TASK_OF_ENDING = {".nii.gz": "segmentation", ".png": "segmentation", ".tif": "slides", ".csv": "slides"}


def write(path: Path) -> Path:
    """Any mask or points file; what is in it does not matter here, except for pictures and points."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".png", ".tif"):
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(path)
    elif path.suffix == ".csv":
        path.write_text("0.5,1,2\n")
    else:
        path.write_bytes(b"volume")
    return path


@pytest.fixture
def folders(tmp_path):
    (tmp_path / "truth").mkdir()
    (tmp_path / "said").mkdir()
    return tmp_path / "truth", tmp_path / "said"


@pytest.mark.parametrize("ending", TASK_OF_ENDING)
@pytest.mark.parametrize("absolute", [True, False])
def test_a_link_to_a_file_outside_is_refused(folders, ending, absolute):
    truth, said = folders
    write(truth / f"A{ending}")
    write(said / f"B{ending}")
    (said / f"A{ending}").symlink_to(truth / f"A{ending}" if absolute else Path(f"../truth/A{ending}"))
    with pytest.raises(UserError, match="link that leads out of the prediction folder") as error:
        read_predictions(TASK_OF_ENDING[ending], said)
    assert f"A{ending}" in str(error.value)
    assert error.value.fix


def test_a_folder_of_a_case_that_is_a_link_outside_is_refused(folders):
    truth, said = folders
    write(truth / "A" / "mask.nii.gz")
    write(said / "B" / "mask.nii.gz")
    (said / "A").symlink_to(truth / "A", target_is_directory=True)
    with pytest.raises(UserError, match="leads out of the prediction folder"):
        read_predictions("segmentation", said)


def test_a_chain_of_links_is_followed_to_its_end(folders):
    truth, said = folders
    write(truth / "A.nii.gz")
    (said / "later.nii.gz").symlink_to("A.nii.gz")
    (said / "A.nii.gz").symlink_to(truth / "A.nii.gz")
    with pytest.raises(UserError, match="leads out"):
        read_predictions("segmentation", said)


@pytest.mark.parametrize("ending", TASK_OF_ENDING)
def test_links_inside_the_folder_and_a_linked_folder_itself_are_fine(folders, ending, tmp_path):
    _, said = folders
    write(said / "store" / f"A{ending}") if ending == ".nii.gz" else write(said / f"A{ending}")
    (said / f"B{ending}").symlink_to(f"store/A{ending}" if ending == ".nii.gz" else f"A{ending}")
    (tmp_path / "given").symlink_to(said, target_is_directory=True)
    found = read_predictions(TASK_OF_ENDING[ending], tmp_path / "given").table
    assert "B" in set(found["case_id"])


def test_a_linked_folder_inside_is_read_and_a_loop_ends(folders):
    _, said = folders
    write(said / "A" / "mask.nii.gz")
    (said / "B").symlink_to("A", target_is_directory=True)
    (said / "A" / "up").symlink_to("..", target_is_directory=True)
    found = read_predictions("segmentation", said).table
    assert {"A", "B"} <= set(found["case_id"])
    assert len(found) < 10


@pytest.mark.parametrize("ending", TASK_OF_ENDING)
def test_a_pipe_is_refused_and_never_opened(folders, ending):
    _, said = folders
    write(said / f"B{ending}")
    os.mkfifo(said / f"A{ending}")
    with pytest.raises(UserError, match="not a plain file"):
        read_predictions(TASK_OF_ENDING[ending], said)


@pytest.mark.parametrize("ending", [".nii.gz", ".png"])
def test_a_folder_that_is_called_like_a_mask_is_no_mask(folders, ending):
    _, said = folders
    write(said / f"B{ending}")
    (said / f"A{ending}").mkdir()
    with pytest.raises(UserError, match="not a plain file"):
        read_predictions("segmentation", said)


def test_a_link_to_a_device_or_to_nothing_is_refused(folders):
    _, said = folders
    (said / "A.nii.gz").symlink_to("/dev/zero")
    with pytest.raises(UserError, match="leads out"):
        read_predictions("segmentation", said)
    (said / "A.nii.gz").unlink()
    (said / "A.nii.gz").symlink_to("gone.nii.gz")
    with pytest.raises(UserError, match="leads nowhere"):
        read_predictions("segmentation", said)
    (said / "A.nii.gz").unlink()
    (said / "A.nii.gz").symlink_to("A.nii.gz")
    with pytest.raises(UserError, match="leads nowhere"):
        read_predictions("segmentation", said)


@pytest.mark.parametrize("way", ["absolute", "parents", "link"])
def test_a_table_of_paths_names_nothing_outside_its_folder(folders, way):
    """A table is a list of links: what it names lies beside it, whatever `--on-invalid` says."""
    truth, said = folders
    write(truth / "A.nii.gz")
    (said / "A.nii.gz").symlink_to(truth / "A.nii.gz")
    path = {"absolute": str(truth / "A.nii.gz"), "parents": "../truth/A.nii.gz", "link": "A.nii.gz"}[way]
    pd.DataFrame({"case_id": ["A"], "path": [path]}).to_csv(said / "masks.csv", index=False)
    for on_invalid in ("error", "worst"):
        with pytest.raises(UserError, match="prediction folder"):
            read_predictions("segmentation", said / "masks.csv", ReadOptions(on_invalid=on_invalid))


def test_a_table_of_paths_that_stays_inside_is_read(folders):
    _, said = folders
    write(said / "store" / "A.nii.gz")
    table = pd.DataFrame(
        {"case_id": ["A", "B"], "path": ["store/A.nii.gz", str(said / "store" / "A.nii.gz")]}
    )
    table.to_csv(said / "masks.csv", index=False)
    assert len(read_predictions("segmentation", said / "masks.csv").table) == 2


def test_hidden_files_are_not_looked_at(folders):
    _, said = folders
    write(said / "A.nii.gz")
    (said / ".cache.nii.gz").symlink_to("/dev/zero")
    files, others = files_inside(said, wanted=lambda path: path.suffix == ".gz")
    assert ([p.name for p in files], others) == (["A.nii.gz"], 0)


def test_a_file_that_the_user_names_may_be_a_link(folders):
    truth, said = folders
    write(truth / "A.nii.gz")
    (said / "A.nii.gz").symlink_to(truth / "A.nii.gz")
    assert read_predictions("segmentation", said / "A.nii.gz").table["case_id"].tolist() == ["A"]
    check_plain_file(truth / "A.nii.gz", inside=truth)
