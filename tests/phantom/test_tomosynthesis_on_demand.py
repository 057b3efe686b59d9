"""Synthetic volumes that are described and drawn when they are read: the same voxels and boxes as written files."""

import json

import numpy as np
import pytest

from elsewhere.cohort import read_cohort
from elsewhere.errors import UserError
from elsewhere.inputs.cases import Cases
from elsewhere.inputs.source import CaseRow
from elsewhere.inputs.tomosynthesis.cache import VolumeCache
from elsewhere.inputs.tomosynthesis.described import DescribedVolume
from elsewhere.inputs.tomosynthesis.source import TomosynthesisSource, maker_of
from elsewhere.phantom.tomosynthesis import draw
from elsewhere.phantom.tomosynthesis_layout import write_world
from elsewhere.phantom.tomosynthesis_on_demand import DRAWING, describe, description_of
from elsewhere.phantom.tomosynthesis_patients import World

WORLD = World(patients=4, seed=3)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ELSEWHERE_VOLUME_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _source(folder):
    cohort = read_cohort("bcs-dbt", folder, volumes=True, site_by_vendor=True)
    rows = cohort.cases.to_dict("records")
    return cohort, TomosynthesisSource.of_cases(
        CaseRow(name=row["case_id"], values=row, file=cohort.file) for row in rows
    )


def test_a_world_of_descriptions_reads_like_one_of_files(tmp_path, cache):
    described, by_demand = _source(write_world(WORLD, tmp_path / "described", syntax=None))
    written, by_file = _source(write_world(WORLD, tmp_path / "files", syntax="raw"))
    assert described.hash != ""
    for name in ("case_id", "patient_id", "split", "site", "finding"):
        assert list(described.cases[name]) == list(written.cases[name])
    assert described.lesions.equals(written.lesions)
    for case in by_file.cases:
        ours, theirs = by_demand.facts(case), by_file.facts(case)
        assert (ours.shape, ours.window, ours.side) == (theirs.shape, theirs.window, theirs.side)
        z = ours.shape[2] // 2
        whole = [np.zeros(ours.shape[:2], dtype=np.uint16) for _ in range(2)]
        for made, facts, source in ((whole[0], ours, by_demand), (whole[1], theirs, by_file)):
            x0, y0, x1, y1 = facts.breast
            made[y0:y1, x0:x1] = source.slice(case, z)
        x0, y0, x1, y1 = (
            max(a, b) if at < 2 else min(a, b)
            for at, (a, b) in enumerate(zip(ours.breast, theirs.breast, strict=True))
        )
        assert np.array_equal(whole[0][y0:y1, x0:x1], whole[1][y0:y1, x0:x1])
    assert json.loads((tmp_path / "described" / "planted.json").read_text())["faults"] == {}
    sizes = [path.stat().st_size for path in (tmp_path / "described").rglob("*.volume.json")]
    assert len(sizes) == len(WORLD.cases()) and max(sizes) < 1000


def test_the_breast_lies_in_its_box():
    for case in WORLD.cases():
        about = describe(description_of(case))
        x0, y0, x1, y1 = about.extent().breast
        drawn = draw(case).slice(3)
        inside = drawn[y0:y1, x0:x1]
        assert drawn.astype(int).sum() == inside.astype(int).sum() > 0
        assert np.array_equal(about.open()(3), drawn)


def test_the_extent_is_found_out_once(tmp_path, cache, monkeypatch):
    _, source = _source(write_world(WORLD, tmp_path / "world", syntax=None))
    before = {case: source.facts(case) for case in source.cases}
    monkeypatch.setattr(
        "elsewhere.phantom.tomosynthesis_on_demand._extent", lambda case: pytest.fail(case.case_name)
    )
    _, again = _source(tmp_path / "world")
    assert {case: again.facts(case) for case in again.cases} == before


def test_packs_are_the_descriptions(tmp_path, cache):
    _, source = _source(write_world(WORLD, tmp_path / "world", syntax=None))
    chosen = source.cases[:3]
    cases = Cases(
        case=tuple(chosen),
        dataset=("A",) * 3,
        label=np.zeros(3, dtype=np.int8),
        box=np.zeros((3, 4), dtype=np.int32),
        digest=tuple(source.digest(case) for case in chosen),
    )
    pack = tmp_path / "pack"
    pack.mkdir()
    source.pack(pack, cases, with_truth=True)
    assert [path.name for path in pack.iterdir()] == ["volumes.json"]
    there = TomosynthesisSource.unpack(pack)
    for case in chosen:
        assert there.digest(case) == source.digest(case)
        assert there.truth(case) == source.truth(case)
        assert np.array_equal(there.slice(case, 2), source.slice(case, 2))
    half = source.reduced(2)
    facts = half.facts(chosen[0])
    assert facts.scale == 2 and facts.shape == source.facts(chosen[0]).shape
    assert half.slice(chosen[0], 0).shape == facts.stored[1:]
    assert half.digest(chosen[0]) != source.digest(chosen[0])
    half_pack = tmp_path / "half"
    half_pack.mkdir()
    half.pack(half_pack, cases, with_truth=False)
    assert TomosynthesisSource.unpack(half_pack).facts(chosen[0]).scale == 2


def test_volumes_are_prepared_before_they_are_asked_for(tmp_path, cache):
    _, source = _source(write_world(WORLD, tmp_path / "world", syntax=None))
    heard = []
    source.prepare(source.cases, threads=2, progress=lambda *words: heard.append(words))
    assert heard[-1] == ("volumes", len(source.cases), len(source.cases))
    assert len(list(cache.glob("*.npy"))) == len(source.cases)
    before = {path: path.stat().st_ino for path in cache.glob("*.npy")}
    source.slice(source.cases[0], 0)
    assert {path: path.stat().st_ino for path in cache.glob("*.npy")} == before


def test_preparation_ends_at_the_limit_and_when_it_is_stopped(tmp_path, monkeypatch, cache):
    folder = write_world(WORLD, tmp_path / "world", syntax=None)
    monkeypatch.setenv("ELSEWHERE_VOLUME_CACHE_BYTES", "2MB")
    _, source = _source(folder)
    source.prepare(source.cases)
    assert 0 < len(list(cache.glob("*.npy"))) < len(source.cases)
    monkeypatch.setenv("ELSEWHERE_VOLUME_CACHE", str(tmp_path / "other"))
    _, source = _source(folder)
    source.prepare(source.cases, stop=lambda: True)
    assert not list((tmp_path / "other").glob("*.npy"))


def test_a_volume_that_cannot_be_read_is_left_to_its_training(tmp_path, cache):
    folder = write_world(WORLD, tmp_path / "world", syntax=None)
    _, source = _source(folder)
    wrong = next(folder.rglob("*.volume.json"))
    wrong.write_text("{")
    source.prepare(source.cases)
    assert len(list(cache.glob("*.npy"))) == len(source.cases) - 1
    assert len(source.problems(source.cases)) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": None}, "does not say its format"),
        ({"format": "phantom-tomosynthesys"}, "phantom-tomosynthesis"),
        ({"world": None}, "needs 'world'"),
        ({"world": {"patients": 0}}, "patients is 0"),
        ({"world": {"patients": "many"}}, "cannot be made"),
        ({"world": {"patient": 3}}, "has no 'patient'"),
        ({"world": {"patients": 10**9}}, "patients is"),
        ({"volume": "A/DBT-P10001/lc"}, "lcc"),
        ({"volume": 3}, "needs 'world'"),
    ],
)
def test_mistakes_in_a_description_are_named(tmp_path, change, told):
    content = description_of(WORLD.cases()[0]) | change
    path = tmp_path / "one.volume.json"
    path.write_text(json.dumps(content))
    volume = DescribedVolume(None, where=path, cache=VolumeCache(tmp_path / "cache"))
    with pytest.raises(UserError) as error:
        volume.facts()
    assert told in str(error.value)


def test_faults_need_files(tmp_path):
    with pytest.raises(UserError, match="faults are planted in DICOM files"):
        write_world(WORLD, tmp_path / "world", syntax=None, faults=True)
    assert not (tmp_path / "world").exists()


def test_the_maker_is_known(tmp_path):
    case = WORLD.cases()[-1]
    path = tmp_path / "one.volume.json"
    path.write_text(json.dumps(description_of(case)))
    assert maker_of(path) == "Synthetic vendor B"


def test_a_changed_drawing_has_another_version():
    """Trainings are named by descriptions: whoever changes the drawing must raise `DRAWING`, and these numbers."""
    means = [float(draw(case).slice(4).mean()) for case in World(patients=1, seed=1).cases()]
    assert DRAWING == 1
    assert means == pytest.approx([169.0475, 217.5043, 324.5776, 399.7084], rel=1e-3)
