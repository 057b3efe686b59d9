"""Events of two detectors on the same patients, with a known difference: for tests of paired comparisons."""

from __future__ import annotations

import numpy as np
import pandas as pd


def two_detectors(
    rng: np.random.Generator,
    *,
    patients: int = 50,
    volumes_each: int = 4,
    share_positive: float = 0.4,
    false_per_volume: float = 4.0,
    spread_of_false: float = 0.0,
    gain: float = 0.0,
) -> tuple[dict[str, pd.DataFrame], pd.Series]:
    """Events of detectors A and B, and the patient of each volume.

    A positive patient's lesion is seen in two views, with a difficulty of its own for both detectors and one that
    each detector has by itself. `spread_of_false` is the spread of the logarithm of false positives between patients,
    drawn for each detector; `gain` raises the scores of A's hits.
    """
    positive = int(patients * share_positive)
    patient = np.repeat(np.arange(positive), 2)
    volume = [f"P{p}/{v}" for p, v in zip(patient, np.tile([0, 1], positive), strict=True)]
    difficulty = rng.normal(0, 1, positive)[patient]
    events = {}
    for name in "AB":
        own = rng.normal(0, 1, positive)[patient] + rng.normal(0, 1, patient.size)
        hits = 0.2 + 0.7 * difficulty + 0.5 * own + (gain if name == "A" else 0.0)
        spread = np.exp(rng.normal(0, spread_of_false, patients) - spread_of_false**2 / 2)
        of = np.repeat(np.arange(patients), rng.poisson(false_per_volume * volumes_each * spread))
        false = rng.normal(0, 1, of.size) + rng.normal(0, 0.3, patients)[of]
        where = [f"P{p}/{v}" for p, v in zip(of, rng.integers(0, volumes_each, of.size), strict=True)]
        events[name] = pd.DataFrame(
            {
                "case_id": [*volume, *where],
                "lesion_id": [*volume, *[None] * of.size],
                "score": np.concatenate([hits, false]),
                "kind": ["tp"] * len(volume) + ["fp"] * of.size,
            }
        )
    cases = [f"P{p}/{v}" for p in range(patients) for v in range(volumes_each)]
    return events, pd.Series([case.split("/")[0] for case in cases], index=cases)
