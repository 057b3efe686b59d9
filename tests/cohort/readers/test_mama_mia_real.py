"""Table 1 of the challenge paper against both published versions of the clinical table."""

from __future__ import annotations

import pytest

from elsewhere.cohort import audit, read_cohort
from elsewhere.cohort.published.figures import TABLE_1, compare_figures
from elsewhere.commands.cohort import read

pytestmark = pytest.mark.real_data

DIFFERING = {
    "slice thickness in mm": {
        "ISPY2": ((11, 163, 8, 695, 103), (11, 163, 9, 694, 103)),
        "sum": ((11, 446, 17, 845, 187), (11, 446, 18, 844, 187)),
    },
    "deviation of the image size, cut to whole voxels": {"NACT": ((44, 44, 2), (44, 44, 1))},
}
"""What the paper prints and what the file holds; every other figure agrees."""


@pytest.fixture(scope="module", params=["", "later_version"])
def cohort(request, data_dir):
    folder = data_dir / "mri" / "MAMA-MIA" / request.param
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return read_cohort("mama-mia", folder)


def test_every_figure_of_table_1(cohort):
    rows = compare_figures(cohort)
    assert [row.what for row in rows] == [row.what for row in TABLE_1]
    assert all(list(row.counted) == ["NACT", "ISPY1", "ISPY2", "DUKE", "sum"] for row in rows)
    found = {
        row.what: {name: (row.printed[name], row.counted[name]) for name in row.differing}
        for row in rows
        if not row.agrees
    }
    assert found == DIFFERING
    assert sum(len(figures) for row in rows for figures in row.counted.values()) == 255


def test_what_fairness_can_rest_on(cohort):
    assert cohort.counts["without_outcome"] == 15
    assert cohort.counts["without_menopausal_status"] == 408
    assert cohort.counts["without_age"] == 3
    if "breast_density" in cohort.cases.columns:
        assert cohort.cases["breast_density"].value_counts().to_dict() == {"C": 31, "B": 14, "D": 12, "A": 3}
        known = cohort.cases["breast_density"].notna()
        assert set(cohort.cases.loc[known, "dataset"]) == {"DUKE"}
        assert int(cohort.cases.loc[known, "pcr"].isna().sum()) == 0
        assert cohort.counts["without_breast_density"] == 1446
    else:
        assert any("no column of breast density" in warning for warning in cohort.warnings)
        assert cohort.counts["without_breast_density"] == 1506
    assert {grade.grade for grade in cohort.id_grades.values()} == {"A"}


def test_the_command_prints_it(data_dir, tmp_path):
    folder = data_dir / "mri" / "MAMA-MIA" / "later_version"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    lines = list(read("mama-mia", folder, out=tmp_path / "cohort").lines())
    assert any(
        "pCR (yes/no/unknown): NACT 11/53/0, ISPY1 49/118/4, ISPY2 316/664/0, DUKE 64/216/11" in line
        for line in lines
    )
    assert any("vendor (Siemens/GE/Philips): NACT 0/64/0, ISPY1 44/115/12" in line for line in lines)
    assert any("field strength (1.5 T/3 T): NACT 64/0" in line and "as printed" in line for line in lines)
    assert any("ISPY2 11/163/9/694/103 (printed 11/163/8/695/103)" in line for line in lines)


def test_the_audit_tells_agreement_from_difference(cohort):
    kinds = [finding.kind for finding in audit(cohort)]
    assert kinds.count("published-figures") == len(TABLE_1) - 2
    assert kinds.count("not-the-published-figures") == 2
