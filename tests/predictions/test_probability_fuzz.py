"""Mutated files: either read, or refused with a `UserError`; never another exception, never a bad number."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elsewhere.cohort.table import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions import ReadOptions
from elsewhere.scoring.check import check_predictions
from elsewhere.scoring.task import read_predictions

GOOD = b"case_id,exam_id,laterality,probability,status\n" + b"".join(
    f"c{i:02d},E{i // 4},{'LR'[i % 2]},0.{i:02d},ok\n".encode() for i in range(1, 13)
)
PIECES = [
    b"",
    b",",
    b"\n",
    b'"',
    b";",
    b"nan",
    b"inf",
    b"-1",
    b"1e999",
    b"0,5",
    b"\xff\xfe",
    b"\x00",
    b"c01",
    b"failed",
    b"4B",
]
COHORT = Cohort(cases=pd.DataFrame({"case_id": [f"c{i:02d}" for i in range(1, 13)], "label": [0, 1] * 6}))
options = st.builds(
    ReadOptions,
    scale=st.sampled_from(["0-1", "0-100", "birads", "logit", "-1-1"]),
    unit=st.sampled_from(["case", "exam", "breast", "patient"]),
    combine=st.sampled_from(["max", "mean", "noisy-or"]),
    on_invalid=st.sampled_from(["error", "worst"]),
    normalise_ids=st.sampled_from([(), ("zeros",), ("zeros", "case", "blanks", "paths")]),
    column_map=st.sampled_from(
        [{}, {"score": "probability"}, {"score": "exam_id"}, {"case_id": "exam_id"}, {"view": "x"}]
    ),
)


@st.composite
def mutated(draw):
    data = bytearray(GOOD)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        cut = draw(st.integers(0, 12))
        data[at : at + cut] = draw(st.sampled_from(PIECES))
    return bytes(data)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=mutated(), options=options)
def test_a_mutated_file_is_read_or_refused(tmp_path, data, options):
    path = tmp_path / "vendor.csv"
    path.write_bytes(data)
    for cohort in (None, COHORT):
        try:
            found = read_predictions("classification", path, options, cohort)
        except UserError as error:
            assert str(error)
            continue
        ok = (found.table["status"] == "ok").to_numpy()
        probability = found.table["probability"].to_numpy()
        assert ((probability[ok] >= 0) & (probability[ok] <= 1)).all()
        assert np.isnan(probability[~ok]).all()
        assert found.table["case_id"].is_unique
        report = check_predictions(path, "classification", options, cohort)
        assert report.exit_code in (0, 64)
