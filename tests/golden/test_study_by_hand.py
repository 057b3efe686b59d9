"""A small study from its file to its tables, and every table again from the seed-level outputs it leaves behind.

Nothing of `elsewhere` counts here: pandas, scikit-learn and scipy read predictions.parquet, manifest.csv and
splits/, as another team would, and must come to the same numbers (US-05 to US-09, US-15 to US-21).
"""

from __future__ import annotations

import hashlib
import itertools
import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import optimize, stats
from sklearn import metrics

from elsewhere.commands.run import run_study
from elsewhere.engine.training import Outcome
from elsewhere.predictions.answers import Probabilities
from elsewhere.recipes.pictures.settings import settings_of

EXACT = 1e-9
HOSPITALS = {"Ash": (100, 0), "Elm": (60, 12), "Oak": (24, 3)}
"""Patients with lesions, and normal ones; three pictures each. Only Ash and Elm can calibrate."""
CODES = {"benign": 0, "malignant": 1, "normal": -1}
RAW = (
    "auroc", "auprc", "sensitivity", "specificity", "balanced_accuracy", "f1",
    "ece_confidence", "ece_malignant", "nll",
)  # fmt: skip


def write_study(folder):
    rng = np.random.default_rng(3)
    sections = []
    for name, (lesions, normals) in HOSPITALS.items():
        (folder / name).mkdir()
        rows = []
        for patient, picture in itertools.product(range(lesions + normals), range(3)):
            mixed = patient % 10 == 0 and picture == 0
            label = (
                "normal"
                if patient >= lesions or (name == "Elm" and patient % 20 == 3 and picture == 2)
                else "malignant"
                if patient % 3 == 0 and not mixed
                else "benign"
            )
            case = f"{patient:03d}-{picture}"
            Image.fromarray(rng.integers(0, 256, (6, 8), dtype=np.uint8)).save(folder / name / f"{case}.png")
            row = {"case_id": case, "patient_id": f"p{patient}", "dataset": name, "label": label}
            row["image"] = f"{case}.png"
            box = (1, 1, 5, 4) if label != "normal" else (None,) * 4
            rows.append(row | dict(zip(("box_x0", "box_y0", "box_x1", "box_y1"), box, strict=True)))
        pd.DataFrame(rows).to_csv(folder / name / "cohort.csv", index=False)
        sections.append(f'[[cohort]]\nsource = "{name}/cohort.csv"')
    (folder / "study.toml").write_text(
        '[study]\nname = "by hand"\n' + "\n".join(sections) + "\n[scenarios]\nseeds = [1, 2, 3]\n"
        'keep_duplicates_together = false\n[inputs.whole]\nkind = "whole"\n[inputs.roi]\nkind = "roi"\n'
        '[models.cnn]\nweights = "none"\nnetwork = "efficientnet-lite0"\n[analyses]\nresamples = 0\n'
    )
    return folder / "study.toml"


def answer(units, work, *, finished, **_):
    """Answers with some of the truth in them, too sure of themselves, and with ties."""
    for unit in units:
        rows = work.cases.rows(unit.predict)
        seed = int.from_bytes(hashlib.sha256(unit.key.encode()).digest()[:8], "little")
        rng = np.random.default_rng(seed)
        skill = 1.5 if settings_of(unit.recipe).input.kind == "roi" else 0.8
        score = skill * work.cases.label[rows] + rng.normal(0, 1.5, len(rows)) - skill / 2
        score = np.round(2.5 * score, 1)
        finished(
            unit,
            Outcome(
                case=unit.predict,
                fingerprint=unit.fingerprints(work.cases)[rows],
                answers={
                    "classification": Probabilities.from_logits(
                        np.column_stack([0.25 * score, 1.25 * score]).astype(np.float32),
                        np.abs(score).astype(np.float32),
                    )
                },
            ),
        )


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("by_hand")
    run_study(write_study(folder), out=folder / "out", trainer=answer)
    return folder / "out"


def table(out, name):
    return pd.read_csv(out / "report" / "tables" / f"{name}.csv")


@pytest.fixture(scope="module")
def by_hand(out):
    """A row a run, from the outputs alone."""
    outputs = pd.read_parquet(out / "predictions.parquet")
    outputs["z"] = outputs["logit_positive"] - outputs["logit_negative"]
    rows = []
    for run, part in outputs.groupby("run", sort=False):
        z, y, held, truth, normal = (
            part.loc[part["part"] == where, column].to_numpy()
            for where, column in (
                ("test", "z"), ("test", "label"), ("validation", "z"), ("validation", "label"), ("normal", "z")
            )
        )  # fmt: skip
        eligible = len(truth) >= 40 and (truth == 1).sum() >= 10 and (truth == 0).sum() >= 10
        t = temperature(held, truth) if eligible else 1.0
        row = {"run": run, "temperature": t, "calibration_eligible": eligible, **judged(z, y)}
        row |= {f"{name}_calibrated": value for name, value in judged(z / t, y).items()}
        if len(normal) >= 20:
            label = np.repeat([0, 1], [len(z), len(normal)])
            unsure = -np.abs(np.concatenate([z, normal]))
            row["normal_auroc"] = metrics.roc_auc_score(label, unsure)
            row["normal_auprc"] = metrics.average_precision_score(label, unsure)
        rows.append(row)
    keys = pd.read_csv(out / "runs.csv")[
        ["run", "kind", "scenario", "source", "target", "model", "input", "seed"]
    ]
    return keys.merge(pd.DataFrame(rows), on="run", validate="one_to_one")


def loss(z, y):
    return float(np.logaddexp(0, np.where(y == 1, -z, z)).mean())


def temperature(z, y):
    """By a grid, then between its neighbours: not by what the package does."""
    grid = np.linspace(0.5, 5, 901)
    at = int(np.argmin([loss(z / t, y) for t in grid]))
    around = (grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)])
    made = optimize.minimize_scalar(
        lambda t: loss(z / t, y), bounds=around, method="bounded", options={"xatol": 1e-12}
    )
    return float(made.x)


def calibration_error(confidence, right):
    place = np.minimum((confidence * 10).astype(int), 9)
    return sum(
        abs(confidence[place == k].mean() - right[place == k].mean()) * (place == k).mean()
        for k in np.unique(place)
    )


def judged(z, y):
    p = 1 / (1 + np.exp(-z))
    called = p >= 0.5
    return {
        "auroc": metrics.roc_auc_score(y, p),
        "auprc": metrics.average_precision_score(y, p),
        "sensitivity": metrics.recall_score(y, called),
        "specificity": metrics.recall_score(1 - y, ~called),
        "balanced_accuracy": metrics.balanced_accuracy_score(y, called),
        "f1": metrics.f1_score(y, called),
        "ece_confidence": calibration_error(np.where(called, p, 1 - p), called == (y == 1)),
        "ece_malignant": calibration_error(p, y),
        "nll": loss(z, y),
    }


def seed_means(by_hand):
    names = [*RAW, *(f"{m}_calibrated" for m in RAW), "normal_auroc", "normal_auprc"]
    keys = ["kind", "scenario", "source", "target", "model", "input"]
    return by_hand.groupby(keys)[names].mean().reset_index()


def t_interval(values, *, least, most):
    x = np.asarray(values, dtype=float)
    x = x[np.isfinite(x)]
    if len(x) < 2:
        return (x[0] if len(x) else np.nan), np.nan, np.nan
    lo, hi = stats.t.interval(0.95, len(x) - 1, x.mean(), stats.sem(x))
    return x.mean(), max(lo, least), min(hi, most)


def test_every_run(out, by_hand):
    ours = table(out, "run_metrics").set_index("run").loc[by_hand["run"]]
    assert len(ours) == len(by_hand) == 9 * 2 * 3
    assert set(by_hand["calibration_eligible"]) == {True, False}
    assert (ours["calibration_eligible"].to_numpy() == by_hand["calibration_eligible"]).all()
    for name in (*RAW, "normal_auroc", "normal_auprc"):
        np.testing.assert_allclose(ours[name], by_hand[name], rtol=0, atol=EXACT, err_msg=name)
    np.testing.assert_allclose(ours["temperature"], by_hand["temperature"], rtol=0, atol=1e-6)
    assert ((by_hand["temperature"] > 1.1) == by_hand["calibration_eligible"]).all()
    for name in RAW:
        name = f"{name}_calibrated"
        np.testing.assert_allclose(ours[name], by_hand[name], rtol=0, atol=1e-6, err_msg=name)


def test_scenarios_and_their_intervals(out, by_hand):
    means = seed_means(by_hand)
    ours = table(out, "scenarios").merge(means, on=["scenario", "input"], suffixes=("", "_hand"))
    assert len(ours) == len(means) == 18
    for name in (*RAW, "normal_auroc", "normal_auprc"):
        np.testing.assert_allclose(ours[name], ours[f"{name}_hand"], rtol=0, atol=EXACT, err_msg=name)
    rows = table(out, "summary")
    for row in rows.to_dict(orient="records"):
        part = means[(means["kind"] == row["kind"]) & (means["input"] == row["input"])]
        most = np.inf if row["metric"].startswith("nll") else 1.0
        hand = t_interval(part[row["metric"]], least=0.0, most=most)
        exact = EXACT if "calibrated" not in row["metric"] else 1e-6
        np.testing.assert_allclose(
            [row["value"], row["lo"], row["hi"]], hand, rtol=0, atol=exact, err_msg=str(row)
        )


def test_paired_overall_and_without_a_dataset(out, by_hand):
    means = seed_means(by_hand)
    paired = table(out, "paired")
    assert len(paired) == 4
    for row in paired.to_dict(orient="records"):
        wide = means[means["kind"] == row["kind"]].pivot_table(
            index="scenario", columns="input", values=row["metric"]
        )
        d = (wide["roi"] - wide["whole"]).to_numpy()
        assert row["p"] == pytest.approx(stats.wilcoxon(d, method="exact").pvalue, abs=1e-12)
        hand = t_interval(d, least=-1.0, most=1.0)
        np.testing.assert_allclose([row["difference"], row["lo"], row["hi"]], hand, rtol=0, atol=EXACT)
    overall = table(out, "overall").fillna({"input": ""}).set_index("input")
    for kind in ("internal", "external"):
        each = means[means["kind"] == kind].groupby("input")["auroc"].mean()
        for name in ("whole", "roi"):
            assert overall.loc[name, f"{kind}_auroc"] == pytest.approx(each[name], abs=EXACT)
        assert overall.loc["", f"{kind}_auroc"] == pytest.approx(each.mean(), abs=EXACT)
    without = table(out, "without_dataset")
    assert set(without["without"]) == set(HOSPITALS)
    for row in without[without["model"] != "overall"].to_dict(orient="records"):
        part = means[
            (means["kind"] == row["kind"])
            & (means["input"] == row["input"])
            & (means["source"] != row["without"])
            & (means["target"] != row["without"])
        ]
        most = np.inf if row["metric"].startswith("nll") else 1.0
        hand = t_interval(part[row["metric"]], least=0.0, most=most)
        exact = EXACT if "calibrated" not in row["metric"] else 1e-6
        np.testing.assert_allclose([row["value"], row["lo"], row["hi"]], hand, rtol=0, atol=exact)
    assert {"auroc", "nll", "ece_confidence_calibrated", "f1"} <= set(without["metric"])


def test_internal_and_external(out, by_hand):
    """A transfer's external result less the internal one of its source, seeds averaged; then the mean over sources."""
    means = seed_means(by_hand).set_index(["input", "scenario"])["auroc"]
    ours = table(out, "transfers")
    assert len(ours) == 2 * 6 and ours["reason"].isna().all()
    for row in ours.to_dict(orient="records"):
        name = row["method"].removeprefix("cnn-")
        external, internal = means[name, row["scenario"]], means[name, row["source"]]
        hand = [external, internal, external - internal]
        np.testing.assert_allclose(
            [row["external"], row["internal"], row["difference"]], hand, rtol=0, atol=EXACT
        )
        assert row["lo90"] < row["difference"] < row["hi90"]
    drop = table(out, "drop").set_index("method")
    for method, part in ours.groupby("method"):
        hand = t_interval(part.groupby("source")["difference"].mean(), least=-1.0, most=1.0)
        row = drop.loc[method]
        np.testing.assert_allclose([row["difference"], row["lo"], row["hi"]], hand, rtol=0, atol=EXACT)


def test_splits(out):
    manifest = pd.read_csv(out / "manifest.csv").set_index("case")
    runs = pd.read_csv(out / "runs.csv")
    index = json.loads((out / "splits" / "index.json").read_text())
    sources: dict[tuple[str, int], object] = {}
    assert len(index["splits"]) == 27 and not index["skipped"]
    for entry in index["splits"]:
        scenario, seed = entry["scenario"], entry["seed"]
        rows = pd.read_csv(out / "splits" / entry["file"])
        assert rows["case"].is_unique
        assert (rows["patient"].to_numpy() == manifest.loc[rows["case"], "patient"].to_numpy()).all()
        who = {part: set(held["patient"]) for part, held in rows.groupby("part")}
        for one, other in itertools.combinations(("train", "validation", "test", "normal"), 2):
            if {one, other} != {"test", "normal"}:
                assert not who.get(one, set()) & who.get(other, set())
        used = {*scenario["sources"], scenario["target"]}
        lesions = rows[rows["part"].isin(["train", "validation", "test"])]
        wanted = manifest[manifest["dataset"].isin(used) & (manifest["label"] != "normal")]
        assert set(lesions["case"]) == set(wanted.index)
        assert (lesions.groupby("part")["label"].nunique() == 2).all()
        within = scenario["kind"] == "internal"
        shares = (
            {"train": 0.7, "validation": 0.1, "test": 0.2} if within else {"train": 0.85, "validation": 0.15}
        )
        of_source = lesions[lesions["dataset"].isin(scenario["sources"])]
        patients = of_source.groupby("patient").agg(part=("part", "first"), label=("label", "max"))
        for _, stratum in patients.groupby("label"):
            for part, share in shares.items():
                assert abs((stratum["part"] == part).sum() - share * len(stratum)) < 1
        normal = manifest[(manifest["dataset"] == scenario["target"]) & (manifest["label"] == "normal")]
        free = ~normal["patient"].isin(who["train"] | who["validation"])
        assert set(rows.loc[rows["part"] == "normal", "case"]) == set(normal.index[free])
        if not within:
            parts = tuple(tuple(rows.loc[rows["part"] == part, "case"]) for part in ("train", "validation"))
            assert sources.setdefault((scenario["sources"][0], seed), parts) == parts
        content = {
            "version": 1,
            "scenario": scenario,
            "seed": seed,
            "parts": sorted([case, part] for case, part in zip(rows["case"], rows["part"], strict=True)),
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        assert hashlib.sha256(text.encode()).hexdigest() == entry["hash"]
        mine = runs[(runs["scenario"] == scenario["name"]) & (runs["seed"] == seed)]
        assert set(mine["split"]) == {entry["hash"]} and len(mine) == 2
    assert len(set(sources.values())) == len(sources) == 9
    assert runs["training"].nunique() == 2 * (9 + 9)


def test_outputs_are_of_the_split(out):
    outputs = pd.read_parquet(out / "predictions.parquet")
    manifest = pd.read_csv(out / "manifest.csv").set_index("case")
    assert (outputs["label"] == outputs["case"].map(manifest["label"]).map(CODES)).all()
    index = json.loads((out / "splits" / "index.json").read_text())
    files = {(e["scenario"]["name"], e["seed"]): e["file"] for e in index["splits"]}
    for row in pd.read_csv(out / "runs.csv").itertuples():
        split = pd.read_csv(out / "splits" / files[row.scenario, row.seed])
        held = outputs[outputs["run"] == row.run]
        for part in ("test", "validation", "normal"):
            assert list(held.loc[held["part"] == part, "case"]) == list(
                split.loc[split["part"] == part, "case"]
            )
