"""Group means with clustered intervals over 147 million rows of patch scores, in a stream.

The file stands for the lymph-node study's scores: 1.4 million patches x 21 models x 5 folds, columns model,
fold, stage, patient_id, dice, fpr (zstd parquet). `python benchmarks/bench_streaming.py --rows 147000000` makes
it, measures time and peak resident memory in a fresh process, and deletes it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PATCHES, MODELS, FOLDS, PATIENTS = 1_400_000, 21, 5, 500
FULL_ROWS = PATCHES * MODELS * FOLDS
BAR_GB = 4.0
_CHILD = """
import json, resource, sys, time
from elsewhere.statistics.streaming import summarise_stream
start = time.perf_counter()
out = summarise_stream(sys.argv[1], by=["model", "fold", "stage"], values=["dice", "fpr"], cluster="patient_id")
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps({"seconds": seconds, "peak_gb": peak, "rows": int(out["n"].sum()) // 2, "groups": len(out) // 2}))
"""


def make_file(path: Path, rows: int) -> None:
    """Model by model and fold by fold, as such a table grows; a patient effect and 1 % undefined Dice."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    patches = max(1, rows // (MODELS * FOLDS))
    patient = rng.integers(0, PATIENTS, patches)
    ease = rng.normal(0, 0.1, PATIENTS).astype(np.float32)
    names = pa.array([f"patient_{i:03d}" for i in range(PATIENTS)])
    stages = pa.array(["macro", "micro", "itc", "negative"])
    stage_column = pa.DictionaryArray.from_arrays(pa.array((patient % 4).astype(np.int8)), stages)
    patient_column = pa.DictionaryArray.from_arrays(pa.array(patient.astype(np.int16)), names)
    schema = pa.schema(
        [
            ("model", pa.string()),
            ("fold", pa.int8()),
            ("stage", stage_column.type),
            ("patient_id", patient_column.type),
            ("dice", pa.float32()),
            ("fpr", pa.float32()),
        ]
    )
    with pq.ParquetWriter(path, schema, compression="zstd", compression_level=1) as writer:
        for model in range(MODELS):
            for fold in range(FOLDS):
                dice = np.clip(
                    0.8 + ease[patient] + 0.05 * rng.standard_normal(patches, dtype=np.float32), 0, 1
                )
                dice[rng.random(patches, dtype=np.float32) < 0.01] = np.nan
                columns = [
                    pa.array([f"model_{model:02d}"] * patches),
                    pa.array(np.full(patches, fold, dtype=np.int8)),
                    stage_column,
                    patient_column,
                    pa.array(np.round(dice, 3)),
                    pa.array(np.round(rng.random(patches, dtype=np.float32), 3)),
                ]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=500_000)


def run(quick: bool = False) -> dict:
    """Against loading it whole with pandas, at a hundredth of the rows so that it fits."""
    import pandas as pd

    rows = FULL_ROWS // 100 if quick else FULL_ROWS
    with tempfile.TemporaryDirectory(prefix="elsewhere-bench-") as folder:
        path = Path(folder) / "scores.parquet"
        make_file(path, rows)
        size_mb = path.stat().st_size / 2**20
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True, check=True
        )
        ours = json.loads(done.stdout)
        small = Path(folder) / "small.parquet"
        make_file(small, FULL_ROWS // 100)
        start = time.perf_counter()
        frame = pd.read_parquet(small)
        frame.groupby(["model", "fold", "stage", "patient_id"], observed=True)[["dice", "fpr"]].agg(
            ["mean", "std", "count"]
        )
        peer = (time.perf_counter() - start) * rows / len(frame)
    return {
        "job": f"group means with clustered intervals, {rows:,} rows",
        "peer": "pandas read_parquet and groupby",
        "peer_seconds": peer,
        "ours_seconds": ours["seconds"],
        "ratio": peer / ours["seconds"],
        "bar": f"{BAR_GB:g} GB",
        "bar_kind": "text",
        "bar_met": ours["peak_gb"] <= BAR_GB,
        "peak_gb": ours["peak_gb"],
        "groups": ours["groups"],
        "notes": f"file of {size_mb:.0f} MB; peak resident {ours['peak_gb']:.2f} GB in a fresh process; "
        "pandas timed on 1.47 million rows and scaled",
    }
