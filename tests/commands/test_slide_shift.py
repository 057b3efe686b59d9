"""`slides rerender` and `slides shift`: end to end, resumed, from a store, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort.patch_table import COLUMNS, typed_rows, write_patch_table
from elsewhere.inputs.patches.packing import pack
from elsewhere.predictions import rendered_patches
from elsewhere.predictions.rendered_patches import open_rendered
from worlds.patch_stores import SPEC_32, rows_of, write_outline, write_slide

SIZE = 64


@pytest.fixture(scope="module")
def patches(tmp_path_factory):
    """Two laboratories of four patients each: cells of two colours, half as strong and a little blurred elsewhere."""
    folder = tmp_path_factory.mktemp("shift") / "patches"
    folder.mkdir()
    rng = np.random.default_rng(1)
    stains = np.array([[0.56, 0.74, 0.36], [0.30, 0.89, 0.36]])
    pixels, truth, rows = [], [], []
    for word in ("ID", "OOD"):
        for patient in range(4):
            for number in range(6):
                cells = np.kron(
                    rng.gamma([1.2, 2.0], [0.8, 0.3], (SIZE // 4, SIZE // 4, 2)), np.ones((4, 4, 1))
                )
                cells *= 1.0 if word == "ID" else 0.45
                cells *= 1 + 0.05 * patient
                made = 245 * np.exp(-cells @ stains) + rng.normal(0, 2, (SIZE, SIZE, 1))
                pixels.append(np.clip(made, 0, 255).astype(np.uint8))
                mask = np.zeros((SIZE, SIZE), bool)
                mask[:32] = number % 2
                truth.append(mask)
                rows.append(
                    {
                        "case_id": f"{word}slide{patient}", "patient_id": f"{word}patient{patient}", "site": word.lower(),
                        "stage": "macro" if patient % 2 else "micro", "mpp": 0.5,
                    }
                )  # fmt: skip
    np.save(folder / "pixels.npy", np.stack(pixels))
    np.save(folder / "truth.npy", np.stack(truth))
    pd.DataFrame(rows).to_csv(folder / "patches.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def rendered(patches, tmp_path_factory, run):
    out = tmp_path_factory.mktemp("shift") / "rendered"
    done = run("slides", "rerender", patches, "--out", out, "--id", "site=id")
    assert done.code == 0, done.said
    assert "internal: 24 patches (12 with tumour) of 4 slides of 4 patients" in done.out
    assert "stain: external haematoxylin" in done.out and f"written: {out}" in done.out
    return out


def predict(rendered, out, change=lambda name, values: values, *, pixels=True):
    """Tumour where a patch is pale: worse where stain is."""
    out.mkdir(parents=True)
    for file in sorted(rendered.glob("*.npy")):
        dark = 1 - np.load(file).astype(np.float32).mean(axis=3) / 255
        values = np.clip(0.5 + 3 * (0.32 - dark), 0, 1).astype(np.float32)
        values = values if pixels else values.mean(axis=(1, 2))
        changed = change(file.stem, values)
        if changed is not None:
            np.save(out / file.name, changed)
    return out


def test_masks_end_to_end(run, rendered, tmp_path):
    predict(rendered, tmp_path / "predictions" / "pale" / "1")
    predict(rendered, tmp_path / "predictions" / "pale" / "2", lambda name, values: np.sqrt(values))
    predict(rendered, tmp_path / "predictions" / "strict", lambda name, values: values**2)
    out = tmp_path / "why"
    done = run(
        "slides", "shift", rendered, tmp_path / "predictions", "--thresholds", "0.3,0.5,0.7", "--standardise", "stage",
        "--resamples", 200, "--out", out,
    )  # fmt: skip
    assert done.code == 0, done.said
    for line in (
        "2 models; internal: 24 patches of 4 patients, external: 24 patches of 4 patients;",
        "operating point of pale: threshold",
        "pale, Dice, tumour patches: internal",
        "  stain          ",
        "  left over ",
        "  drop at the internal mix of stage: ",
        "note: The parts describe",
    ):
        assert line in done.out, line
    assert {file.name for file in out.iterdir()} >= {
        "summary.json", "report.html", "parts.csv", "versions.csv", "standardised.csv",
    }  # fmt: skip
    page = (out / "report.html").read_text()
    assert "Where the drop comes from" in page and "IDpatient" not in page and "OODslide" not in page
    summary = json.loads((out / "summary.json").read_text())
    rows = pd.DataFrame(summary["shift"]["rows"])
    for (_, _), part in rows.groupby(["model", "metric"]):
        parts = part[part["quantity"] == "part"]["value"].sum()
        drop, left = (part[part["quantity"] == name]["value"].iloc[0] for name in ("drop", "left over"))
        assert parts + left == pytest.approx(drop, abs=1e-9)


def test_one_number_per_patch_end_to_end(run, rendered, tmp_path):
    predict(rendered, tmp_path / "q", pixels=False)
    done = run("slides", "shift", rendered, tmp_path / "q", "--resamples", 0)
    assert done.code == 0, done.said
    assert "model, Sensitivity, tumour patches: internal" in done.out


def test_equal_predictions_in_three_kinds_of_numbers_give_equal_answers(run, rendered, tmp_path):
    def rows(name, change):
        predict(rendered, tmp_path / name, change)
        done = run("slides", "shift", rendered, tmp_path / name, "--resamples", 0, "--json")
        assert done.code == 0, done.said
        return [r for r in json.loads(done.out)["shift"]["rows"] if r["metric"] != "brier"]

    kinds = (
        lambda _, v: v > 0.5,
        lambda _, v: (v > 0.5).astype(np.uint8),
        lambda _, v: (v > 0.5).astype(np.uint8) * 255,
    )
    first, second, third = (rows(f"kind{at}", change) for at, change in enumerate(kinds))
    assert first == second == third


def one_bad(name, value):
    def change(file, values):
        if file == name:
            values = values.copy()
            values[3] = value
        return values

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (one_bad("external_as-is", 1.5), "patch 3 holds 1.5, which is no probability"),
        (one_bad("internal_as-is", np.nan), "patch 3 holds nan, which is no probability"),
        (lambda name, v: None if name == "external_stain" else v, "have no predictions: external_stain"),
        (lambda name, v: v[:-1] if name == "internal_as-is" else v, "internal_as-is.npy has the shape (23, 64, 64)"),
        (lambda name, v: v[:, ::2, ::2], "has the shape (24, 32, 32)"),
        (lambda name, v: v.astype(np.int64), "the arrays hold int64"),
        (lambda name, v: v if name == "internal_as-is" else v.mean(axis=(1, 2)), "one number per patch and others one per pixel"),
        (lambda name, v: np.array([{"a": 1}], dtype=object), "cannot be read as an array"),
    ],
)  # fmt: skip
def test_predictions_that_do_not_fit_are_refused(run, rendered, tmp_path, change, said):
    out = tmp_path / "bad"
    out.mkdir()

    def save(name, values):
        changed = change(name, values)
        if changed is not None and changed.dtype == object:
            np.save(out / f"{name}.npy", changed, allow_pickle=True)
            return None
        return changed

    predict(rendered, tmp_path / "made", save)
    for file in (tmp_path / "made").iterdir():
        file.rename(out / file.name)
    done = run("slides", "shift", rendered, out)
    assert done.code == 64 and said in done.said, done.said


def test_folders_that_hold_nothing_are_refused(run, rendered, patches, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "no predictions were found" in run("slides", "shift", rendered, tmp_path / "empty").said
    assert "no rendered patches" in run("slides", "shift", patches, tmp_path / "empty").said
    assert (
        "there is no pixels.npy"
        in run("slides", "rerender", tmp_path / "empty", "--out", tmp_path / "x").said
    )
    done = run("slides", "rerender", patches, "--out", patches, "--id", "site=id")
    assert done.code == 64 and "holds other things" in done.said
    done = run("slides", "rerender", patches, "--out", tmp_path / "x")
    assert done.code == 64 and "which patches are internal" in done.said
    done = run("slides", "rerender", patches, "--out", tmp_path / "x", "--id", "site=nowhere")
    assert done.code == 64 and "nowhere" in done.said
    done = run("slides", "rerender", patches, "--out", rendered, "--id", "site=ood")
    assert done.code == 64 and "other patches, or was begun with other settings" in done.said
    done = run("slides", "shift", rendered, tmp_path / "empty", "--thresholds", "half")
    assert done.code == 64 and "the thresholds are half" in done.said


def test_a_dry_run_writes_nothing(run, patches, tmp_path):
    done = run("slides", "rerender", patches, "--out", tmp_path / "x", "--id", "site=id", "--dry-run")
    assert done.code == 0 and "nothing was written" in done.out and not (tmp_path / "x").exists()


def test_one_patient_on_both_sides_is_refused(run, patches, tmp_path):
    folder = tmp_path / "p"
    folder.mkdir()
    for name in ("pixels.npy", "truth.npy"):
        (folder / name).write_bytes((patches / name).read_bytes())
    pd.read_csv(patches / "patches.csv").assign(patient_id="one").to_csv(folder / "patches.csv", index=False)
    done = run("slides", "rerender", folder, "--out", tmp_path / "x", "--id", "site=id")
    assert done.code == 64 and "1 patients have internal and external patches" in done.said


def test_a_run_that_was_stopped_goes_on(run, rendered, patches, tmp_path, monkeypatch):
    out = tmp_path / "again"
    plain = rendered_patches._write_version
    calls = []

    def stopped(*args):
        calls.append(args[1].name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        yield from plain(*args)

    monkeypatch.setattr(rendered_patches, "_write_version", stopped)
    from elsewhere.commands.slide_rerender import RerenderSettings, rerender

    settings = RerenderSettings(internal="site=id")
    with pytest.raises(KeyboardInterrupt):
        rerender(patches, out=out, settings=settings)
    assert open_rendered(out).missing()
    monkeypatch.setattr(rendered_patches, "_write_version", plain)
    first = (out / "internal_as-is.npy").stat().st_mtime_ns
    rerender(patches, out=out, settings=settings)
    assert open_rendered(out).missing() == []
    assert (out / "internal_as-is.npy").stat().st_mtime_ns == first
    for file in rendered.rglob("*.npy"):
        assert file.read_bytes() == (out / file.relative_to(rendered)).read_bytes(), file.name


def test_patches_of_a_store_are_rendered(run, tmp_path):
    slides, rows = [], []
    for number in range(4):
        name = f"slide{number}"
        path = write_slide(tmp_path / f"{name}.tif", seed=number)
        outline = write_outline(tmp_path / f"{name}.json") if number % 2 else None
        slides.append(rows_of(path, case_id=name, annotation=outline))
        for i, j in zip(slides[-1].i, slides[-1].j, strict=True):
            word = "ID" if number < 2 else "OOD"
            rows.append(
                {
                    "dataset": "A", "patient_id": f"p{number}", "case_id": name, "i": i, "j": j, "x": 0.0, "y": 0.0, "mpp": 0.5,
                    "tissue": 1.0, "tumour": 1.0 if number % 2 and i < 3 else 0.0, "group": "", "type": "", "stage": "",
                    "site": "", "domain": word, "training": True,
                }
            )  # fmt: skip
    rows += [{**rows[0], "i": 900}]
    pack(slides, tmp_path / "store", SPEC_32)
    write_patch_table(
        typed_rows(pd.DataFrame(rows)[list(COLUMNS)]), tmp_path / "patches.parquet", provenance={}
    )
    done = run(
        "slides", "rerender", tmp_path / "store", tmp_path / "patches.parquet", "--out", tmp_path / "out"
    )
    assert done.code == 0, done.said
    assert "1 patches of the table are not in the store" in done.out
    folder = open_rendered(tmp_path / "out")
    assert folder.size == 32 and len(folder.rows["internal"]) == 48
    assert folder.truth(folder.versions[0], slice(0, 48)).any()
    assert run("slides", "rerender", tmp_path / "store", "--out", tmp_path / "y").code == 64
