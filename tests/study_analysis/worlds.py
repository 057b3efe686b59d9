"""Made-up studies whose truth is known: datasets, runs and outputs without a picture or a training."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from elsewhere.study.picture_results import StudyResults
from scipy import stats

SMALL_SIZES = {
    "BUSI": (60, 40, 30, 110),
    "BUS-BRA": (80, 50, 0, 90),
    "BrEaST": (40, 30, 4, 70),
    "BUS-UCLM": (50, 40, 60, 24),
}
GRADES = {"BUSI": "C", "BUS-BRA": "A", "BrEaST": "A", "BUS-UCLM": "A"}


def separation(auroc: float) -> float:
    """The distance of two unit normals whose AUROC this is."""
    return float(np.sqrt(2) * stats.norm.ppf(auroc))


@dataclass(frozen=True, kw_only=True)
class World:
    """`truth(source, target, model, input)` is the AUROC the outputs are drawn at."""

    sizes: dict[str, tuple[int, int, int, int]] = field(default_factory=lambda: dict(SMALL_SIZES))
    seeds: tuple[int, ...] = (1, 2, 3)
    models: tuple[str, ...] = ("cnn", "vit")
    inputs: tuple[str, ...] = ("whole", "roi")
    kinds: tuple[str, ...] = ("internal", "external")
    margins: dict[str, float] = field(default_factory=lambda: {"roi": 0.12})
    home: float = 0.86
    drop: float = 0.08
    roi_gain: float = 0.06
    sharpness: float = 2.0
    random: int = 7
    analyses: dict[str, Any] = field(
        default_factory=lambda: {"reference": "ultrasound", "without": ["BUS-UCLM"]}
    )
    methods: dict[str, str] = field(default_factory=dict)

    def truth(self, source: str, target: str, model: str, input_: str) -> float:
        gain = 0.0 if input_ == "whole" else self.roi_gain
        away = 0.0 if source == target else self.drop
        poor = 0.08 if "BUS-UCLM" == source != target else 0.0
        several = 0.03 if "+" in source else 0.0
        return (
            self.home
            - away
            - poor
            + several
            + (gain if source != target else gain / 2)
            + 0.01 * (model == "vit")
        )


def study_table(world: World) -> pd.DataFrame:
    rng = np.random.default_rng(world.random)
    parts = []
    for name, (benign, malignant, normal, patients) in world.sizes.items():
        labels = ["benign"] * benign + ["malignant"] * malignant + ["normal"] * normal
        n = len(labels)
        who = np.concatenate([np.arange(patients), rng.integers(0, patients, max(0, n - patients))])[:n]
        who = rng.permutation(who)
        cases = [f"{name.lower().replace('-', '')}_{i:04d}" for i in range(n)]
        parts.append(
            pd.DataFrame(
                {
                    "case": [f"{name}/{c}" for c in cases], "dataset": name, "case_id": cases,
                    "patient": [f"{name}/P{name[:2]}{p:04d}" for p in who], "label": labels,
                    "width": 500, "height": 400, "image": "", "site": name,
                }
            )
        )  # fmt: skip
    table = pd.concat(parts, ignore_index=True)
    table["group"] = table["patient"]
    return table


def scenarios_of(world: World) -> list[tuple[str, str, str, str]]:
    names = list(world.sizes)
    out = []
    if "internal" in world.kinds:
        out += [("internal", n, n, n) for n in names]
    if "external" in world.kinds:
        out += [("external", f"{a}>{b}", a, b) for a in names for b in names if a != b]
    if "leave-one-dataset-out" in world.kinds:
        out += [
            ("leave-one-dataset-out", f"rest>{t}", "+".join(n for n in names if n != t), t) for t in names
        ]
    if "nested" in world.kinds:
        out += [
            ("nested", f"nested {'+'.join(rest)}>{held}", "+".join(rest), held)
            for t in names
            for held in names
            if held != t
            for rest in [tuple(n for n in names if n not in (t, held))]
        ]
    return list(dict.fromkeys(out))


def make_results(world: World | None = None, **changes: Any) -> StudyResults:
    """Outputs are drawn on demand, each run from its own generator: the same run always gives the same."""
    world = replace(world or World(), **changes)
    table = study_table(world)
    lesion = {n: t.index.to_numpy() for n, t in table[table["label"] != "normal"].groupby("dataset")}
    normal = {n: t.index.to_numpy() for n, t in table[table["label"] == "normal"].groupby("dataset")}
    own = np.random.default_rng(world.random + 1).normal(0, 0.6, table["patient"].nunique())
    patient_part = own[pd.factorize(table["patient"])[0]]
    positive = (table["label"] == "malignant").to_numpy()
    code = np.where(table["label"] == "normal", -1, positive.astype(int))
    rows = []
    for kind, scenario, source, target in scenarios_of(world):
        for model in world.models:
            for input_ in world.inputs:
                for seed in world.seeds:
                    rows.append(
                        {
                            "run": f"{scenario}|{model}|{input_}|{seed}", "scenario": scenario, "kind": kind,
                            "source": source, "target": target, "model": model, "input": input_, "seed": seed,
                            "method": world.methods.get(model, "plain"),
                            "margin": world.margins.get(input_, float("nan")),
                            "unit": f"{source}|{model}|{input_}|{seed}", "status": "done", "reason": "",
                            "ensemble": False,
                        }
                    )  # fmt: skip
    runs = pd.DataFrame(rows)
    where = runs.set_index("run").to_dict(orient="index")

    def frame(rng: np.random.Generator, at: np.ndarray, auroc: float, model: str) -> pd.DataFrame:
        d = separation(auroc)
        z = d * (positive[at] - 0.5) + 0.8 * rng.normal(size=at.size) + patient_part[at]
        z = np.where(code[at] < 0, 0.6 * z, z) * (
            world.sharpness if model == "vit" else 0.7 * world.sharpness
        )
        level = rng.normal(2 + 0.3 * np.abs(z), 0.3)
        return pd.DataFrame(
            {
                "case": table["case"].to_numpy()[at], "patient": table["patient"].to_numpy()[at],
                "label": code[at], "logit_benign": level - z / 2, "logit_malignant": level + z / 2,
                "distance": np.abs(rng.normal(2.0 - 0.4 * np.tanh(np.abs(z)), 0.5)),
            }
        )  # fmt: skip

    def outputs(run: str) -> dict[str, pd.DataFrame]:
        row = where[run]
        rng = np.random.default_rng([world.random, abs(hash_of(run))])
        sources = row["source"].split("+")
        known = np.concatenate([lesion[s] for s in sources])
        share = 0.1 if row["kind"] == "internal" else 0.15
        split = np.random.default_rng([world.random, int(row["seed"]), hash_of(row["source"])])
        who = table["patient"].to_numpy()[known]
        order = dict(
            zip(split.permutation(np.unique(who)), np.linspace(0, 1, np.unique(who).size), strict=True)
        )
        place = np.array([order[p] for p in who])
        held = known[place < share]
        test = lesion[row["target"]]
        if row["kind"] == "internal":
            test = known[(place >= share) & (place < share + 0.2)]
        home = world.truth(sources[0], sources[0], row["model"], row["input"])
        auroc = world.truth(row["source"], row["target"], row["model"], row["input"])
        return {
            "test": frame(rng, test, auroc, row["model"]),
            "validation": frame(rng, held, home, row["model"]),
            "normal": frame(rng, normal.get(row["target"], np.zeros(0, dtype=int)), 0.5, row["model"]),
        }

    units = runs.drop_duplicates("unit")[["unit"]].assign(
        name=lambda t: t["unit"], epochs=10, best_epoch=7, seconds=41.5, images=9000, device="NVIDIA H200"
    )
    return StudyResults(
        name="made-up",
        settings={
            "study": {"name": "made-up", "ids": "patient"},
            "inputs": {
                i: {"kind": "whole"}
                if i == "whole"
                else {"kind": "roi", "margin": world.margins.get(i, 0.12)}
                for i in world.inputs
            },
            "models": {
                m: {
                    "network": "vit-b-16" if m.startswith("vit") else "efficientnet-b0",
                    "method": world.methods.get(m, "plain"),
                }
                for m in world.models
            },
            "analyses": world.analyses,
        },
        table=table,
        runs=runs,
        outputs=outputs,
        units=units.reset_index(drop=True),
        skipped=pd.DataFrame(columns=["scenario", "kind", "seed", "reason"]),
        audit=made_audit(world, table),
    )


def hash_of(text: str) -> int:
    import zlib

    return zlib.crc32(text.encode())


def made_audit(world: World, table: pd.DataFrame) -> dict[str, Any]:
    return {
        "ids": "patient",
        "publication": True,
        "cohorts": {
            name: {
                "hash": f"{hash_of(name):08x}" * 8,
                "reader": name.lower(),
                "id_grade": GRADES.get(name, "B"),
                "id_grade_why": "publishes no patient ids" if name == "BUSI" else "as many ids as published",
                "rows": int((table["dataset"] == name).sum()),
                "without_box": 0,
                "invalid_box": 0,
            }
            for name in world.sizes
        },
        "left_out": [{"dataset": "BUSI", "reason": "label 'unknown' is not in the list", "rows": 3}],
        "duplicates": {
            "kept_together": True,
            "pairs": [
                [*table["case"].iloc[[0, 1]], "exact", "across patients and labels", 0.0],
                *(
                    [*table["case"].iloc[[at, at + 1]], "near", "across patients", 0.02]
                    for at in range(2, 9, 2)
                ),
            ],
            "counts": {"pairs": 5},
            "warnings": [],
            "calibration": {},
        },
        "warnings": ["BUS-UCLM: 7 patients carry both labels; each stays one unit, in the malignant stratum"],
        "roi_fallbacks": {
            "BUSI": {"train": 0, "validation": 0, "test": 0},
            "BrEaST>BUSI": {"train": 1, "validation": 0, "test": 2},
        },
        "scenario_warnings": {"BUS-UCLM": ["the test part has 7 patients"]},
        "splits": {
            f"{s} seed {n}": f"{hash_of(s + str(n)):08x}"
            for _, s, _, _ in scenarios_of(world)
            for n in world.seeds
        },
    }
