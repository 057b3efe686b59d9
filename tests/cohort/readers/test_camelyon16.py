"""CAMELYON16: every published table, with its contradictions named and explained (LN-01)."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.cohort import audit, load_cohort, read_cohort
from elsewhere.cohort.readers.camelyon16 import NOT_EXHAUSTIVE, slide_name
from elsewhere.cohort.slides import audit_slides
from elsewhere.errors import UserError
from elsewhere.phantom.tables import write_camelyon16_twin
from elsewhere.tables import read_table, write_table


@pytest.fixture
def folder(tmp_path):
    return write_camelyon16_twin(tmp_path / "set", np.random.default_rng(3))


def words(cohort) -> str:
    return "\n".join([*cohort.warnings, *cohort.counts["remarks"]])


def test_a_twin_of_the_tables(folder, tmp_path):
    cohort = read_cohort("camelyon16", folder)
    cases = cohort.cases.set_index("case_id")
    assert cohort.counts["parts"] == {"normal": 6, "tumor": 7, "test": 7}
    assert cases.index[0] == "normal_001" and cases.index[-1] == "test_114"
    assert cases.loc["test_114", ["label", "stage", "histology", "split"]].tolist() == [
        1,
        "macro",
        "ILC",
        "test",
    ]
    assert cases.loc["tumor_096", ["site", "scanner"]].tolist() == [
        "UMCU",
        "Hamamatsu NanoZoomer-XR C12000-01",
    ]
    assert cases.loc["normal_001", ["site", "microns_per_pixel", "stage"]].tolist() == [
        "RUMC",
        0.24,
        "negative",
    ]
    assert cases.loc["tumor_001", "stage"] is np.nan or cases["stage"].isna()["tumor_001"]
    assert set(cases["domain"]) == {"ID"}
    assert cases.loc["tumor_101", "annotation"] == "jsons/Tumor_101.json"
    assert cases["annotation"].isna()["normal_144"]
    assert cases["annotation_exhaustive"].loc[["normal_001", "tumor_001", "test_114"]].tolist() == [1, 1, 0]
    assert cohort.id_grades["CAMELYON16"].grade == "C"
    cohort.save(tmp_path / "cohort")
    assert load_cohort(tmp_path / "cohort").hash == cohort.hash


def test_each_contradiction_is_named_and_explained(folder):
    told = words(read_cohort("camelyon16", folder))
    for part in (
        "test_114: metadata.csv and labels.csv say normal, reference.csv says tumour (macro, ILC): reference.csv is used",
        "corrects the hospital of tumor_096 from RUMC to UMCU",
        "there is no normal_086: it was tumour, and the publisher renamed it to tumor_111",
        "there is no test_049: it was a copy of another slide",
        "5 of 6 normal slides have a file of outlines, which is empty; normal_144 has none",
        "1 slides have tumour outside of their outlines, as the publisher states (column annotation_exhaustive): test_114",
        "the stage of 7 tumour slides is not published",
        "the set is not complete here: 6 of 159 normal, 7 of 111 tumor, 7 of 129 test",
    ):
        assert part in told, part


def test_an_agreeing_table_has_no_contradiction(folder):
    frame = read_table(folder / "metadata.csv")
    frame.loc[frame["slide_name"] == "test_114.tif", "label"] = "1"
    frame["hospital"] = frame["hospital_corrected"]
    write_table(frame, folder / "metadata.csv")
    (folder / "labels.csv").unlink()
    told = words(read_cohort("camelyon16", folder))
    assert "say" not in told.split("there is no")[0].split("complete")[0] and "corrects" not in told


def test_tables_are_optional_and_slides_alone_are_a_cohort(tmp_path):
    for name in (
        "training/normal/normal_001.tif",
        "training/tumor/Tumor_002.TIF",
        "testing/images/test_001.tif",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"II*\0")
    (tmp_path / "lesion_annotations").mkdir()
    (tmp_path / "lesion_annotations" / "tumor_002.xml").write_text("<ASAP_Annotations/>")
    cohort = read_cohort("camelyon16", tmp_path)
    assert cohort.cases["slide"].tolist() == [
        "training/normal/normal_001.tif",
        "training/tumor/Tumor_002.TIF",
        "testing/images/test_001.tif",
    ]
    assert cohort.cases["annotation"].dropna().tolist() == ["lesion_annotations/tumor_002.xml"]
    assert "1 test slides have neither a class nor a stage" in words(cohort)
    assert "3 slides have no hospital" in words(cohort) and "domain" not in cohort.cases.columns


def test_slides_that_the_publisher_took_out_are_left_out_and_named(folder):
    for name in ("normal_086.tif", "test_049.tif"):
        (folder / name).write_bytes(b"II*\0")
    cohort = read_cohort("camelyon16", folder)
    assert not {"normal_086", "test_049"} & set(cohort.cases["case_id"])
    assert "the slide normal_086 is left out" in words(cohort) and "became tumor_111" in words(cohort)
    assert "the slide test_049 is left out" in words(cohort)


def test_the_domain_follows_from_who_trained(folder):
    cohort = read_cohort("camelyon16", folder, trained_on="RUMC")
    assert cohort.cases.groupby("site")["domain"].unique().map(list).to_dict() == {
        "RUMC": ["ID"],
        "UMCU": ["OOD"],
    }
    rule = next(f.message for f in audit(cohort) if f.kind == "domain")
    assert (
        "Rule: a slide is ID if it was scanned at a centre whose slides trained the model (RUMC), else OOD"
        in rule
    )


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("reference.csv", "test_001,Tumor,IDC,Huge", "stage of test_001 is 'Huge'"),
        ("reference.csv", "test_001,Maybe,IDC,Macro", "class of test_001 is 'Maybe'"),
        ("reference.csv", "test_001,Tumor,IDC,Macro\ntest_1,Tumor,IDC,Macro", "test_001 has two rows"),
        ("reference.csv", "test_001,Tumor,IDC,Macro\nslide9,Tumor", "'slide9' is no slide"),
        (
            "metadata.csv",
            "slide_name,label,hospital\nfoo.tif,0,0\n",
            r"rows that name no slide of CAMELYON16: 1 \(foo",
        ),
        ("metadata.csv", "slide_name,label,hospital\ntest_001.tif,2,0\n", "'label' is '2'"),
        ("metadata.csv", "slide_name,label\ntest_001.tif,2\n", "no column 'hospital'"),
        ("labels.csv", "filenames,tumor\ntest_001.tif,0\ntest_001.tif,0\n", "has two rows"),
    ],
)
def test_damaged_tables(folder, name, content, word):
    (folder / name).write_text(content)
    with pytest.raises(UserError, match=word):
        read_cohort("camelyon16", folder)


def test_a_reference_table_with_a_header_and_without_an_end_of_line(folder):
    text = (folder / "reference.csv").read_text()
    assert not text.endswith("\n")
    (folder / "reference.csv").write_text("name,class,type,stage\n" + text)
    assert read_cohort("camelyon16", folder).counts["parts"]["test"] == 7


def test_nothing_of_the_set_is_an_error(tmp_path):
    (tmp_path / "labels.csv").write_text("id,label\na,1\n")
    with pytest.raises(UserError, match="nothing of CAMELYON16 is here"):
        read_cohort("camelyon16", tmp_path)


def test_two_tables_of_one_name_are_a_question(folder):
    (folder / "more").mkdir()
    (folder / "more" / "Reference.csv").write_text((folder / "reference.csv").read_text())
    with pytest.raises(
        UserError, match=r"2 files are called reference.csv: more/Reference.csv, reference.csv"
    ):
        read_cohort("camelyon16", folder)


def test_names():
    assert slide_name("Normal_86") == "normal_086" and slide_name("TUMOUR_5.xml") == "tumor_005"
    assert slide_name("tumor_0001") == slide_name("tumor") == slide_name("../tumor_001") == ""
    assert len(NOT_EXHAUSTIVE) == len(set(NOT_EXHAUSTIVE)) == 21


@pytest.mark.real_data
def test_the_real_tables(data_dir):
    """Golden: the publisher's README and tables 1 and 2 of the study."""
    cohort = read_cohort("camelyon16", data_dir / "lymph-nodes" / "CAMELYON16")
    cases = cohort.cases
    assert cohort.counts["parts"] == {"normal": 159, "tumor": 111, "test": 129}
    assert cases.groupby(["split", "site"]).size().to_dict() == {
        ("train", "RUMC"): 169,
        ("train", "UMCU"): 101,
        ("test", "RUMC"): 74,
        ("test", "UMCU"): 55,
    }
    test = cases[cases["split"] == "test"]
    assert test["stage"].value_counts().to_dict() == {"negative": 80, "micro": 27, "macro": 22}
    assert int((cases["annotation_exhaustive"] == 0).sum()) == 21
    against = [word for word in cohort.warnings if " say" in word]
    assert len(against) == 1 and against[0].startswith("test_114: metadata.csv and labels.csv say normal")
    shown = [f.message for f in audit(cohort) if "published-figures" in f.kind]
    assert any("CAMELYON16 test, macro/micro/itc/negative: 22/27/0/80: as the" in line for line in shown)
    assert any(
        "CAMELYON16 at RUMC: 169 for training, 74 for tests" in line and "171" in line for line in shown
    )


@pytest.mark.real_data
@pytest.mark.slow
def test_the_axes_of_the_real_outlines(data_dir, tmp_path):
    """Golden (spec LN-01, computed): 44 macro, 63 micro and 3 ITC of the 110 public outline files."""
    import tarfile

    source = data_dir / "lymph-nodes" / "CAMELYON16"
    (tmp_path / "tables").symlink_to(source / "tables")
    with tarfile.open(source / "polygons_json.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    found = audit_slides(read_cohort("camelyon16", tmp_path))
    stages = found.cohort.cases["annotated_stage"].value_counts().to_dict()
    assert stages == {"negative": 158, "micro": 63, "macro": 44, "itc": 3}
    assert not [f for f in found.findings if f.severity == "error"]
    shown = [f.message for f in audit(found.cohort)]
    assert any("gives 44/63/3 (macro/micro/itc) of 110 outlined slides" in line for line in shown)
