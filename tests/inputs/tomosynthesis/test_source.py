"""The source of tomosynthesis volumes: what a recipe is shown, what it is not, packs, digests and problems."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pydicom", reason="needs the extra 'volumes'")
pytest.importorskip("imagecodecs", reason="needs the extra 'volumes'")

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.inputs import Cases
from elsewhere.inputs.source import LESION_BOX, LESIONS, sources
from elsewhere.inputs.tomosynthesis.source import FINDING, TomosynthesisSource, side_by_name, truth_of
from elsewhere.inputs.tomosynthesis.stored import ArrayVolume
from elsewhere.inputs.tomosynthesis.volume import Lesion, Truth
from elsewhere.study.case_rows import case_rows
from worlds.tomosynthesis_files import Bto, breast, write_bto

A, B, C = "BCS-DBT/S1/lcc", "BCS-DBT/S2/rmlo", "BCS-DBT/S3/lcc"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ELSEWHERE_VOLUME_CACHE", str(tmp_path / "cache"))


def cohort_in(folder: Path) -> Cohort:
    """Two volumes, the second stored turned and with a lesion; a third case without a file."""
    write_bto(folder / "p1" / "1-1.dcm", breast(slices=5, seed=1), Bto(syntax="jpeg-ls"))
    right = breast(97, 63, slices=6, side="right", seed=2)
    write_bto(folder / "p2" / "1-1.dcm", right[:, ::-1, ::-1].copy(), Bto(syntax="rle", windows=()))
    cases = pd.DataFrame(
        {
            "case_id": ["S1/lcc", "S2/rmlo", "S3/lcc"],
            "patient_id": ["P1", "P2", "P3"],
            "dataset": "BCS-DBT",
            "view": ["lcc", "rmlo", "lcc"],
            "laterality": ["left", "right", "left"],
            "finding": ["normal", "cancer", "normal"],
            "image": ["p1/1-1.dcm", "p2/1-1.dcm", None],
        }
    )
    lesions = pd.DataFrame(
        {
            "case_id": ["S2/rmlo"], "x": [45.0], "y": [40.0], "width": [9.0], "height": [8.0], "slice": [3],
            "volume_slices": [6], "class": ["cancer"], "ad": [1.0],
        }
    )  # fmt: skip
    return Cohort.from_frame(cases, lesions=lesions, root=folder)


def view_of(source, *, hidden=(), sees=()):
    names = frozenset(source.cases)
    return source.view(cases=names, hidden=frozenset(hidden), sees=frozenset(sees))


def test_rows_of_a_cohort_bring_their_lesions(tmp_path):
    rows = case_rows(cohort_in(tmp_path))
    assert [len(row.values[LESIONS]) for row in rows] == [0, 1, 0]
    assert rows[1].values[LESIONS][0]["x"] == 45
    plain = Cohort.from_frame(pd.DataFrame({"case_id": ["a"], "patient_id": ["p"]}))
    assert LESIONS not in case_rows(plain)[0].values


def test_a_recipe_reads_repaired_slices_of_the_breast(tmp_path):
    source = sources.get("tomosynthesis").of_cases(case_rows(cohort_in(tmp_path)))
    assert (A in source, B in source, C in source) == (True, True, False)
    assert source.problems([A, B]) == {}
    view = view_of(source)
    truth = {A: breast(slices=5, seed=1), B: breast(97, 63, slices=6, side="right", seed=2)}
    for case, side in ((A, "left"), (B, "right")):
        assert case in view and C not in view
        assert view.shape(case) == (*truth[case].shape[1:], len(truth[case]))
        assert (view.side(case), view.scale(case)) == (side, 1.0)
        x0, y0, x1, y1 = view.breast(case)
        for z in range(view.shape(case)[2]):
            found = view.slice(case, z)
            np.testing.assert_array_equal(found, truth[case][z, y0:y1, x0:x1])
            assert not found.flags.writeable
    assert view.window(A) == (212.0, 812.0)
    low, high = view.window(B)
    assert 50 < low < 450 < high < 850
    assert any("percentiles" in note for note in source.facts(B).notes)
    assert any("turned" in note for note in source.facts(B).notes)
    with pytest.raises(UserError, match="has 5 slices, slice 5 was requested"):
        view.slice(A, 5)


def test_rows_of_another_modality_are_left_out(tmp_path):
    cases = cohort_in(tmp_path).cases.assign(modality=["tomosynthesis", "ultrasound", "tomosynthesis"])
    source = TomosynthesisSource.of_cases(case_rows(Cohort.from_frame(cases, root=tmp_path)))
    assert source.cases == (A,)


def test_the_second_time_nothing_is_decoded(tmp_path, monkeypatch):
    cohort = cohort_in(tmp_path)
    first = TomosynthesisSource.of_cases(case_rows(cohort)).slice(B, 2).copy()
    monkeypatch.setattr(
        "elsewhere.inputs.tomosynthesis.dicom.DicomVolume.read", lambda *_: pytest.fail("decoded")
    )
    np.testing.assert_array_equal(TomosynthesisSource.of_cases(case_rows(cohort)).slice(B, 2), first)


def test_a_replaced_file_is_another_volume(tmp_path):
    cohort = cohort_in(tmp_path)
    before = TomosynthesisSource.of_cases(case_rows(cohort))
    digest, identity = before.digest(A), before.identity(A)
    before.slice(A, 0)
    write_bto(tmp_path / "p1" / "1-1.dcm", breast(slices=5, seed=9), Bto(syntax="jpeg-ls"))
    after = TomosynthesisSource.of_cases(case_rows(cohort))
    assert after.digest(A) != digest and after.identity(A) != identity
    x0, y0, x1, y1 = after.facts(A).breast
    np.testing.assert_array_equal(after.slice(A, 4), breast(slices=5, seed=9)[4, y0:y1, x0:x1])


def test_lesions_of_predicted_cases_are_withheld(tmp_path):
    """Not shown, not reachable through the view's attributes, unless the recipe declares that it sees them."""
    source = TomosynthesisSource.of_cases(case_rows(cohort_in(tmp_path)))
    lesion = Lesion(x=45, y=40, width=9, height=8, slice=3, kind="cancer", distortion=True)
    shown = view_of(source)
    assert shown.lesions(B) == (lesion,) and shown.lesions(A) == ()
    assert (shown.finding(A), shown.finding(B)) == ("normal", "cancer")
    hidden = view_of(source, hidden=[B])
    assert hidden.lesions(B) is None and hidden.finding(B) is None
    assert hidden.lesions(A) == () and hidden.finding(A) == "normal"
    assert view_of(source, hidden=[B], sees=[LESION_BOX]).lesions(B) == (lesion,)
    assert view_of(source, hidden=[B], sees=[LESION_BOX]).finding(B) is None
    assert view_of(source, hidden=[B], sees=[FINDING]).finding(B) == "cancer"
    assert not hasattr(hidden, "__dict__") and set(type(hidden).__slots__) == {"_ask"}
    other = source.view(cases=frozenset({A}), hidden=frozenset(), sees=frozenset())
    assert B not in other
    for ask in (
        other.shape,
        other.breast,
        other.window,
        other.side,
        other.scale,
        other.lesions,
        other.finding,
    ):
        with pytest.raises(KeyError):
            ask(B)
    with pytest.raises(KeyError):
        other.slice(B, 0)


def test_digests_of_pixels_and_truth_are_two(tmp_path):
    source = TomosynthesisSource.of_cases(case_rows(cohort_in(tmp_path)))
    other = TomosynthesisSource(
        {case: source.volume(case) for case in source.cases}, {B: Truth(finding="benign")}
    )
    assert source.digest(B) == other.digest(B)
    assert source.truth_digest(B) != other.truth_digest(B)
    assert other.truth_digest(A) == ""


def test_identity_is_of_the_pixels_whatever_codec_header_and_orientation(tmp_path):
    made = breast(slices=6)
    ways = {
        "a": (made, Bto(syntax="jpeg-2000")),
        "b": (made, Bto(syntax="rle", laterality="R", windows=[(1, 2)])),
        "turned": (made[:, ::-1, ::-1].copy(), Bto()),
        "reversed": (made[::-1].copy(), Bto(per_frame=False)),
        "inverted": (1023 - made, Bto(tags={"PhotometricInterpretation": "MONOCHROME1"})),
        "other": (breast(slices=6, seed=3), Bto()),
    }
    frame = pd.DataFrame(
        {"case_id": list(ways), "patient_id": list(ways), "image": [f"{n}.dcm" for n in ways]}
    )
    for name, (pixels, how) in ways.items():
        write_bto(tmp_path / f"{name}.dcm", pixels, how)
    source = TomosynthesisSource.of_cases(case_rows(Cohort.from_frame(frame, root=tmp_path)))
    found = {name: source.identity(f"cohort/{name}") for name in ways}
    assert len({found[name] for name in ways if name != "other"}) == 1
    assert found["other"] != found["a"]
    assert len({source.digest(f"cohort/{name}") for name in ways}) == len(ways)


def cases_of(source) -> Cases:
    names = source.cases
    return Cases(
        case=names,
        dataset=("BCS-DBT",) * len(names),
        label=np.zeros(len(names), dtype=np.int8),
        box=np.zeros((len(names), 4), dtype=np.int32),
        digest=tuple(map(source.digest, names)),
    )


@pytest.mark.parametrize("scale", [1, 2, 4])
@pytest.mark.parametrize("with_truth", [True, False])
def test_packs_travel_without_pydicom_and_with_as_little_truth(tmp_path, monkeypatch, scale, with_truth):
    source = TomosynthesisSource.of_cases(case_rows(cohort_in(tmp_path))).reduced(scale)
    folder = tmp_path / "pack"
    folder.mkdir()
    source.pack(folder, cases_of(source), with_truth=with_truth)
    assert ("cancer" in (folder / "volumes.json").read_text()) == with_truth
    monkeypatch.setenv("ELSEWHERE_VOLUME_CACHE", str(tmp_path / "elsewhere"))
    for module in ("pydicom", "imagecodecs"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    there = TomosynthesisSource.unpack(folder)
    for case in (A, B):
        assert there.facts(case) == source.facts(case)
        assert (there.digest(case), there.identity(case)) == (source.digest(case), source.identity(case))
        assert there.truth(case) == (source.truth(case) if with_truth else Truth())
        for z in range(there.shape(case)[2]):
            np.testing.assert_array_equal(there.slice(case, z), source.slice(case, z))


def test_reduced_slices_are_means_and_coordinates_stay(tmp_path):
    cohort = cohort_in(tmp_path)
    whole = view_of(TomosynthesisSource.of_cases(case_rows(cohort)))
    small = view_of(TomosynthesisSource.of_cases(case_rows(cohort)).reduced(4))
    assert small.shape(B) == whole.shape(B) and small.scale(B) == 4
    x0, y0, x1, y1 = small.breast(B)
    assert x0 % 4 == y0 % 4 == 0
    found = small.slice(B, 2)
    assert found.shape == (-(-(y1 - y0) // 4), -(-(x1 - x0) // 4))
    original = breast(97, 63, slices=6, side="right", seed=2)[2, y0:y1, x0:x1]
    assert found[3, 5] == round(float(original[12:16, 20:24].mean()))
    with pytest.raises(UserError, match="from 1 to 16"):
        TomosynthesisSource({}).reduced(0)


def test_a_damaged_pack_is_an_error(tmp_path):
    source = TomosynthesisSource({A: ArrayVolume(breast())}, {})
    folder = tmp_path / "pack"
    folder.mkdir()
    source.pack(folder, cases_of(source), with_truth=False)
    pack = folder / "000000.zip"
    pack.write_bytes(pack.read_bytes()[:200])
    with pytest.raises(UserError, match="the pack cannot be read"):
        TomosynthesisSource.unpack(folder).slice(A, 0)
    index = json.loads((folder / "volumes.json").read_text())
    for change in ({"breast": [0, 0, 9999, 1]}, {"stored": [1, 2]}, {"shape": "x"}):
        broken = json.loads(json.dumps(index))
        broken["cases"][A]["facts"] |= change
        (folder / "volumes.json").write_text(json.dumps(broken))
        with pytest.raises(UserError, match="packed volumes cannot be read"):
            TomosynthesisSource.unpack(folder)
    with pytest.raises(UserError, match="packed volumes cannot be read"):
        TomosynthesisSource.unpack(tmp_path)


def test_a_portable_source_travels_as_paths(tmp_path):
    source = TomosynthesisSource.of_cases(case_rows(cohort_in(tmp_path)))
    expected = source.slice(B, 1).copy()
    sent = pickle.dumps(source.portable([B]))
    assert len(sent) < 10_000 and source.nbytes() == 0
    there = pickle.loads(sent)
    assert there.cases == (B,)
    np.testing.assert_array_equal(there.slice(B, 1), expected)
    assert there.truth(B) == source.truth(B)


def test_problems_name_files_and_lesions_that_cannot_be(tmp_path):
    cohort = cohort_in(tmp_path)
    (tmp_path / "p1" / "1-1.dcm").write_bytes(b"no volume")
    lesions = cohort.lesions.assign(slice=6)
    cohort = Cohort.from_frame(cohort.cases, lesions=lesions, root=tmp_path)
    found = TomosynthesisSource.of_cases(case_rows(cohort)).problems([A, B])
    assert "not a DICOM file" in found[A]
    assert "slice 6 of a volume of 6 slices" in found[B]
    with pytest.raises(UserError, match="Did you mean BCS-DBT/S1/lcc"):
        TomosynthesisSource.of_cases(case_rows(cohort)).volume("BCS-DBT/S1/lc")


def test_many_open_volumes_do_not_take_all_file_handles(tmp_path, monkeypatch):
    monkeypatch.setattr("elsewhere.inputs.tomosynthesis.source.MOST_OPEN", 1)
    source = TomosynthesisSource.of_cases(case_rows(cohort_in(tmp_path)))
    one = source.slice(A, 0)
    source.slice(B, 0)
    assert len(source._open) == 1
    assert int(one.max()) == int(source.slice(A, 0).max())


def test_volumes_in_memory():
    volume = ArrayVolume(breast(), window=(10, 900), scale=2)
    source = TomosynthesisSource({A: volume}, {A: Truth(finding="normal", lesions=())})
    assert source.shape(A) == (192, 122, 5) and source.facts(A).window == (10, 900)
    x0, y0, x1, y1 = source.facts(A).breast
    np.testing.assert_array_equal(source.slice(A, 2), breast()[2, y0 // 2 : y1 // 2, x0 // 2 : x1 // 2])
    assert source.nbytes() == volume.stack().nbytes
    with pytest.raises(TypeError):
        source.write_mask(Path("a"), np.zeros((2, 2), dtype=bool), like=A)


@pytest.mark.parametrize(
    ("values", "side"),
    [
        ({"view": "RMLO"}, "right"), ({"view": "rmlo1"}, "right"), ({"view": "lcc2"}, "left"),
        ({"laterality": "right", "view": "lcc"}, "right"), ({"view": float("nan")}, ""), ({"view": "xcc"}, ""),
    ],
)  # fmt: skip
def test_the_side_by_the_name_of_the_view(values, side):
    assert side_by_name(values) == side


def test_lesions_with_empty_cells():
    row = {LESIONS: [{"x": 1, "y": None, "width": "", "height": 4, "slice": float("nan")}], "finding": None}
    (found,) = truth_of(row).lesions
    assert (found.x, found.height, found.slice, found.kind, found.distortion) == (1, 4, 0, "", None)
    assert np.isnan(found.y) and np.isnan(found.width)


def test_a_merged_cohort_keeps_its_lesions(tmp_path):
    from elsewhere.study.case_frame import joined_cohort

    first = cohort_in(tmp_path)
    second = Cohort.from_frame(
        first.cases.assign(dataset="OTHER"), lesions=first.lesions.assign(x=7.0), root=tmp_path
    )
    joined, names = joined_cohort({"BCS-DBT": first, "OTHER": second})
    assert names[4] == "OTHER/S2/rmlo"
    found = dict(zip(joined.lesions["case_id"], joined.lesions["x"], strict=True))
    assert found == {"BCS-DBT_S2/rmlo": 45.0, "OTHER_S2/rmlo": 7.0}
