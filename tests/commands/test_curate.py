"""`elsewhere curate`: sets from a table and features, from a store, leaks, bad input, and the same hashes again."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort.patch_table import read_patch_table, write_patch_table
from elsewhere.commands.curate.inputs import read_cluster_numbers, read_feature_specs
from elsewhere.commands.curate.run import CurateInputs, CurateSettings, curate, estimate
from elsewhere.commands.slide_patches import CutSettings, cut_patches
from elsewhere.commands.slide_store import StoreSettings, pack_patches
from elsewhere.curation.clusters import ClusterSettings
from elsewhere.curation.features import NETWORKS
from elsewhere.curation.sets import SetSettings
from elsewhere.errors import UserError
from elsewhere.report.page.shell import MOST_BYTES
from worlds.patch_rows import patch_rows, write_features, write_rows, write_slides

FEW = CurateSettings(seeds=2, clusters=ClusterSettings(most=5), sets=SetSettings(size=120))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table with two kinds of features: one of hospitals, one of tissue."""
    made = tmp_path_factory.mktemp("curated")
    rows = patch_rows()
    write_rows(rows, made / "patches.parquet")
    write_features(rows, made / "site.parquet", site=8.0)
    write_features(rows, made / "tissue.parquet", tissue=8.0)
    return made


def inputs(folder, **more):
    features = (str(folder / "site.parquet"), f"kinds={folder / 'tissue.parquet'}")
    return CurateInputs(**{"table": folder / "patches.parquet", "features": features} | more)


@pytest.fixture(scope="module")
def made(folder):
    return curate(inputs(folder), out=folder / "out", settings=FEW)


def test_sets_are_patch_tables_with_their_hash(folder, made):
    assert len(made.sets) == 21
    for one in made.sets:
        table = read_patch_table(folder / "out" / "sets" / f"{one.name}.parquet")
        about = json.loads((folder / "out" / "sets" / f"{one.name}.json").read_text())
        assert table.hash == one.hash == about["hash"] and len(table.rows) == 120 == about["patches"]
        assert table.provenance["set"]["name"] == one.name
        assert table.rows["training"].all()
    listed = pd.read_csv(folder / "out" / "sets.csv")
    assert listed["name"].tolist() == [one.name for one in made.sets]
    clusters = pd.read_parquet(folder / "out" / "clusters.parquet")
    assert len(clusters) == 1000 and clusters["site_cluster"].min() == 1
    one = next(one for one in made.sets if one.name == "kinds-20")
    held = one.rows.merge(clusters, on=["case_id", "i", "j"])
    counts = held[held["group_x"] == "NN"]["kinds_cluster"].value_counts().sort_index().tolist()
    assert tuple(counts) == one.clusters["NN"]


def test_the_sentences_of_hospitals_and_tissue(made):
    text = "\n".join(made.lines())
    assert text.count("are hospitals: knowing the cluster") >= 1
    by_name = {one.name: one for one in made.clusterings}
    assert all(row.information > 0.9 for row in by_name["site"].audit if row.attribute == "site")
    assert all(row.information < 0.1 for row in by_name["kinds"].audit if row.attribute == "site")
    assert all("not hospitals" in line for line in by_name["kinds"].sentences()[:3])


def test_the_same_again_in_another_order_and_with_other_threads(folder, made, tmp_path):
    rows = pd.read_parquet(folder / "patches.parquet").sample(frac=1, random_state=5)
    write_patch_table(rows, tmp_path / "patches.parquet", provenance={})
    again = curate(inputs(folder, table=tmp_path / "patches.parquet"), out=tmp_path / "out", settings=FEW)
    assert [one.hash for one in again.sets] == [one.hash for one in made.sets]
    assert [one.hash for one in again.clusterings] == [one.hash for one in made.clusterings]
    other = curate(inputs(folder), out=tmp_path / "other", settings=CurateSettings(
        seeds=1, clusters=ClusterSettings(most=5, seed=1), sets=SetSettings(size=120, seed=1)
    ))  # fmt: skip
    assert not {one.hash for one in other.sets} & {one.hash for one in made.sets}


def test_the_page_names_no_patient_and_no_hospital(folder, made):
    page = (folder / "out" / "curation.html").read_text()
    assert len(page) < MOST_BYTES and "data:image/jpeg" not in page
    assert page.count("<svg") >= 12 and "Indices by number of clusters" in page
    for name in ("slide_00", "p0<", ">s1<"):
        assert name not in page


def test_site_means_can_be_removed(folder, tmp_path):
    found = curate(
        inputs(folder, features=(str(folder / "site.parquet"),)),
        out=tmp_path / "out",
        settings=CurateSettings(
            remove_site_mean=True, seeds=1, clusters=ClusterSettings(most=4), sets=SetSettings(size=120)
        ),
    )
    assert all(row.information < 0.1 for row in found.clusterings[0].audit if row.attribute == "site")
    assert found.settings["remove_site_mean"] is True


def test_a_dry_run_says_what_would_be_and_writes_nothing(folder, tmp_path):
    planned = estimate(inputs(folder), out=tmp_path / "out", settings=FEW)
    text = "\n".join(planned.lines())
    assert "21 sets, for each of site, kinds, single" in text and "nothing was written" in text
    assert planned.to_dict()["sets"]["50"] == {
        "patches": 120,
        "NN": 30,
        "NT": 30,
        "TT": 60,
        "PT": 60,
        "FT": 0,
    }
    assert list(tmp_path.iterdir()) == []


def test_patients_of_the_test_are_caught(folder, tmp_path):
    """Nodes of one patient over training and test (must show 5)."""
    rows = patch_rows()
    test = rows[rows["patient_id"] == "p2"].copy()
    test["case_id"] = "another_node"
    write_rows(test, tmp_path / "test.parquet")
    shared = inputs(folder, tests=(tmp_path / "test.parquet",))
    with pytest.raises(UserError, match=r"1 patients are in training and test: p2 \(patient\)"):
        curate(shared, out=tmp_path / "out", settings=FEW)
    assert not (tmp_path / "out").exists()
    found = curate(shared, out=tmp_path / "out", settings=CurateSettings(
        seeds=1, on_leak="leave-out", clusters=ClusterSettings(most=3), sets=SetSettings(size=60)
    ))  # fmt: skip
    assert all("p2" not in set(one.rows["patient_id"]) for one in found.sets)
    assert found.counts["shared with the test"] == (rows["patient_id"] == "p2").sum()
    text = "\n".join(found.lines())
    assert "1 patients are in training and test: p2" in text and "were not searched" in text
    assert "p2" not in (tmp_path / "out" / "curation.html").read_text()


def test_a_slide_of_the_test_without_patient_is_caught(folder, tmp_path):
    rows = patch_rows()
    test = rows[rows["case_id"] == "slide_03"].copy()
    test["patient_id"] = None
    write_rows(test, tmp_path / "test.parquet")
    with pytest.raises(UserError, match=r"1 slides are in training and test: slide_03 \(slide\)"):
        curate(inputs(folder, tests=(tmp_path / "test.parquet",)), out=tmp_path / "out", settings=FEW)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ("resnet18:none", "no store of patches was named"),
        ("resnet8", "neither an encoder nor a table"),
        ("missing.parquet", "no such file of features"),
    ],
)
def test_features_that_cannot_be_had(folder, tmp_path, features, words):
    with pytest.raises(UserError, match=words):
        curate(inputs(folder, features=(features,)), out=tmp_path / "out", settings=FEW)
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_clustered_or_drawn(folder, tmp_path):
    rows = patch_rows(nn=60)
    write_rows(rows, tmp_path / "few.parquet")
    write_features(rows, tmp_path / "own.parquet")
    few = CurateInputs(table=tmp_path / "few.parquet", features=(str(tmp_path / "own.parquet"),))
    cases = {
        "own, NN: 100 clusters of the group NN were asked for, and it has 60 patches": CurateSettings(
            clusters=ClusterSettings(fixed={"NN": 100}), sets=SetSettings(size=60)
        ),
        "share of 'x'": CurateSettings(sets=SetSettings(of="x")),
    }
    for words, settings in cases.items():
        with pytest.raises(UserError, match=words):
            curate(few, out=tmp_path / "out", settings=settings)
    none = rows.assign(training=False)
    write_rows(none, tmp_path / "none.parquet")
    with pytest.raises(UserError, match="no row of the patch table is drawn for training"):
        curate(CurateInputs(table=tmp_path / "none.parquet"), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_table_of_features_that_does_not_fit(folder, tmp_path):
    frame = pd.read_parquet(folder / "site.parquet")
    cases = {
        "have no features; the first is": frame.iloc[5:],
        "are in the table twice": pd.concat([frame, frame.iloc[:1]]),
        "no column of features": frame[["case_id", "i", "j"]],
        "is no number": frame.assign(f1="a"),
        "whole numbers": frame.assign(i=frame["i"] + 0.5),
    }
    for words, content in cases.items():
        content.to_parquet(tmp_path / "bad.parquet")
        with pytest.raises(UserError, match=words):
            estimate(inputs(folder, features=(str(tmp_path / "bad.parquet"),)), out=tmp_path / "out")


def test_names_and_numbers_that_users_write():
    specs = read_feature_specs(
        ["resnet18", "a=resnet18:none", "histology=resnet18:/x/y.ckpt", "lite=efficientnet-lite0:imagenet"],
        NETWORKS,
    )
    assert [(one.name, one.weights) for one in specs] == [
        ("resnet18-imagenet", "imagenet"), ("a", "none"), ("histology", "/x/y.ckpt"), ("lite", "imagenet"),
    ]  # fmt: skip
    for wrong in (["single=resnet18"], ["resnet18", "resnet18"], ["../x=resnet18"]):
        with pytest.raises(UserError):
            read_feature_specs(wrong, NETWORKS)
    assert read_cluster_numbers("3-7") == (3, 7, {}) and read_cluster_numbers("4")[2] == {
        "NN": 4,
        "NT": 4,
        "TT": 4,
    }
    for text in ("", "a", "NN=", "XX=3", "NN=3,NN=4", "-3"):
        with pytest.raises(UserError, match="no number of clusters"):
            read_cluster_numbers(text)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    made = tmp_path_factory.mktemp("packed slides")
    cohort = write_slides(made, tumour=2, normal=3)
    cut_patches([cohort], out=made / "patches.parquet", settings=CutSettings(size_px=32, least_tissue=0.0))
    pack_patches(made / "patches.parquet", slides=[cohort], out=made / "store", settings=StoreSettings())
    return made


def test_from_a_store_with_a_network_and_sample_patches(packed, tmp_path):
    pytest.importorskip("torch")
    asked = CurateInputs(
        table=packed / "patches.parquet", store=packed / "store", features=("r=mobilenet-v3-small:none",)
    )
    settings = CurateSettings(
        seeds=1,
        device="cpu",
        sample_patches=3,
        clusters=ClusterSettings(most=3),
        sets=SetSettings(size=60, shares=("natural",)),
    )
    planned = estimate(asked, out=tmp_path / "out", settings=settings)
    assert planned.missing["r"] == planned.patches > 50
    found = curate(asked, out=tmp_path / "out", settings=settings)
    assert {row.attribute for row in found.clusterings[0].audit} == {
        "slide", "patient", "site", "sharpness", "stain", "strength",
    }  # fmt: skip
    page = (tmp_path / "out" / "curation.html").read_text()
    assert page.count("data:image/jpeg") == sum(group.number for group in found.clusterings[0].groups)
    assert estimate(asked, out=tmp_path / "other", settings=settings).missing["r"] == 0
    again = curate(asked, out=tmp_path / "again", settings=settings)
    assert [one.hash for one in again.sets] == [one.hash for one in found.sets]


def test_a_store_of_another_grid_or_without_the_patches(packed, tmp_path):
    cut_patches(
        [packed / "cohort.csv"],
        out=tmp_path / "other.parquet",
        settings=CutSettings(size_px=64, least_tissue=0.0),
    )
    with pytest.raises(UserError, match=r"another grid \(32 px at 0.5 .*\) than the table \(64 px at 0.5"):
        curate(CurateInputs(table=tmp_path / "other.parquet", store=packed / "store"), out=tmp_path / "out")
    shutil.copytree(packed / "store", tmp_path / "store")
    shutil.rmtree(next((tmp_path / "store" / "slides").iterdir()))
    with pytest.raises(UserError, match="patches are not in the store"):
        curate(CurateInputs(table=packed / "patches.parquet", store=tmp_path / "store"), out=tmp_path / "out")


def test_a_copied_and_compressed_slide_is_caught(tmp_path):
    """A slide under another name and patient, compressed again, in the test (must show 5)."""
    from PIL import Image

    from elsewhere.inputs.slides.opening import open_slide
    from worlds.slide_files import pyramid, write_tiff

    cohort = write_slides(tmp_path, tumour=1, normal=5)
    with open_slide(tmp_path / "normal_003.tif") as slide:
        pixels = slide.read(0, 0, *slide.size_px)
    Image.fromarray(pixels).save(tmp_path / "again.jpg", quality=60)
    again = np.asarray(Image.open(tmp_path / "again.jpg"))
    (tmp_path / "again.jpg").unlink()
    write_tiff(tmp_path / "holdout_777.tif", pyramid(again, 2), mpp=0.25, tile=128)
    cut_patches(
        [cohort], out=tmp_path / "patches.parquet", settings=CutSettings(size_px=32, least_tissue=0.0)
    )
    cut_patches([tmp_path / "holdout_777.tif"], out=tmp_path / "test.parquet", settings=CutSettings(
        size_px=32, least_tissue=0.0, without_annotation="normal"
    ))  # fmt: skip
    asked = CurateInputs(
        table=tmp_path / "patches.parquet", tests=(tmp_path / "test.parquet",),
        slides=tuple(sorted(tmp_path.glob("*.tif"))),
    )  # fmt: skip
    settings = CurateSettings(sets=SetSettings(size=20, shares=("natural",)))
    with pytest.raises(UserError, match=r"1 pairs of slides.*normal_003 and holdout_777"):
        curate(asked, out=tmp_path / "out", settings=settings)
