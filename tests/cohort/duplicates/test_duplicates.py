"""Near-duplicates (US-30): planted copies are found, independent pictures are not, dark background or not."""

from __future__ import annotations

import io
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from scipy.fft import dctn
from scipy.ndimage import binary_dilation, map_coordinates

from elsewhere.cohort import Cohort
from elsewhere.cohort.contact_sheet import COLUMNS, ROWS, in_order, write_contact_sheets
from elsewhere.cohort.duplicates import duplicate_groups, find_duplicates, merge_groups
from elsewhere.cohort.duplicates.matching import _MOVES, REACH, _climb, scores
from elsewhere.cohort.duplicates.pictures import SIDE, trimmed
from elsewhere.cohort.duplicates.textures import DARK, NOISE, normalise_contrast, textures
from elsewhere.errors import UserError
from worlds.duplicate_pictures import (
    ALTERATIONS,
    EXACT,
    cropped,
    gamma,
    make_cohort,
    marked,
    re_encoded,
    resized,
    speckle,
)


def originals(count, seed, *, sector=False):
    rng = np.random.default_rng(seed)
    return {f"p{at:03d}": speckle(rng, sector=sector) for at in range(count)}


def named(pairs):
    return {tuple(sorted((p.case_a, p.case_b))): p.kind for p in pairs.itertuples()}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Sixty independent pictures, and a copy of one of them for every alteration."""
    pictures = originals(60, 1)
    copies, truth = {}, {}
    for at, (name, alter) in enumerate(ALTERATIONS.items()):
        copies[f"c{at:02d}"] = alter(pictures[f"p{at:03d}"])
        truth[name] = (f"c{at:02d}", f"p{at:03d}")
    for at, (name, (ending, alter)) in enumerate(EXACT.items(), start=40):
        copies[f"c{at:02d}{ending}"] = alter(pictures[f"p{at:03d}"])
        truth[name] = (f"c{at:02d}", f"p{at:03d}")
    found = find_duplicates([make_cohort(tmp_path_factory.mktemp("planted"), pictures | copies)])
    return found, truth


@pytest.mark.parametrize("name", [*ALTERATIONS, *EXACT])
def test_a_planted_copy_is_found(planted, name):
    found, truth = planted
    kind = "exact" if name in EXACT else "near, mirrored" if name.startswith("mirrored") else "near"
    assert named(found.pairs).get(truth[name]) == kind


def test_nothing_else_is_found(planted):
    found, truth = planted
    assert set(named(found.pairs)) == set(truth.values())
    assert (found.pairs["distance"] <= found.pairs["threshold"]).all()
    assert found.counts()["by_kind"]["exact"] == len(EXACT)
    assert found.counts()["pictures_in_pairs"] == 2 * len(truth)


def perceptual_hash(picture):
    low = dctn(np.asarray(picture.resize((32, 32)), dtype=float))[:8, :8]
    return low > np.median(low)


@pytest.mark.parametrize("seed", [2, 3])
def test_independent_pictures_on_black_fool_a_fixed_threshold_and_not_ours(tmp_path, seed):
    """10 of 64 bits is the usual threshold for perceptual hashes; a shared dark background uses most of them."""
    pictures = originals(60, seed, sector=True)
    hashes = [perceptual_hash(picture) for picture in pictures.values()]
    fooled = sum(int(np.sum(one != two)) <= 10 for one, two in combinations(hashes, 2))
    assert fooled >= 10
    found = find_duplicates([make_cohort(tmp_path, pictures)])
    assert found.pairs.empty
    assert set(found.groups["duplicates"]) == {""}
    assert list(found.groups["group"]) == list(found.groups["patient"])
    row = found.calibration.iloc[0]
    assert row["calibrated_by"] == "decoys of these sets"
    assert 0.1 < row["threshold"] < row["decoy_distance"] < 1.0
    copies = {"c1": marked(pictures["p011"]), "c2": gamma(pictures["p031"], 1.3)}
    found = find_duplicates([make_cohort(tmp_path, pictures | copies)])
    assert named(found.pairs) == {("c1", "p011"): "near", ("c2", "p031"): "near"}


@pytest.mark.parametrize("seed", [4, 5])
def test_independent_pictures_are_no_pairs(tmp_path, seed):
    assert find_duplicates([make_cohort(tmp_path, originals(90, seed))]).pairs.empty


@pytest.mark.parametrize("how", ["mirrored", "re-encoded"])
def test_a_set_in_which_every_picture_has_a_copy(tmp_path, how):
    """Copies are half of the set: they must not pass for the level of chance."""
    pictures = originals(40, 5)
    copies = {f"c{name}": ALTERATIONS[how](picture) for name, picture in pictures.items()}
    found = find_duplicates([make_cohort(tmp_path, pictures | copies)])
    assert set(named(found.pairs)) == {tuple(sorted((f"c{name}", name))) for name in pictures}


def test_a_set_full_of_copies_of_both_kinds(tmp_path):
    """An enlarged set: more copies than decoys, plain and mirrored. Random pairs must take over as decoys."""
    rng = np.random.default_rng(17)
    pictures, source = {}, {}
    for at in range(30):
        plain = speckle(rng)
        for turn, base in enumerate((plain, ImageOps.mirror(plain))):
            for number, copy in enumerate((base, re_encoded(base, 70), gamma(base, 0.8), resized(base, 0.7))):
                name = f"s{at:02d}-{turn}{number}"
                pictures[name], source[name] = copy, at
    found = find_duplicates([make_cohort(tmp_path, pictures)])
    assert all(source[p.case_a] == source[p.case_b] for p in found.pairs.itertuples())
    assert len(found.pairs) == 30 * 8 * 7 // 2
    assert found.counts()["by_kind"]["near, mirrored"] == 30 * 4 * 4
    assert found.groups["duplicates"].nunique() == 30


def test_what_a_pair_crosses(tmp_path):
    rng = np.random.default_rng(6)
    same, labels, far, odd = (speckle(rng) for _ in range(4))
    here = make_cohort(
        tmp_path / "a",
        {"s1": same, "s2": re_encoded(same), "l1": labels, "l2": resized(labels, 0.7), "f1": far, "o1": odd},
        dataset="A",
        patient_id=["P1", "P1", "P2", "P3", "P4", "P5"],
        label=["benign", "malignant", "benign", "malignant", "benign", "benign"],
    )
    there = make_cohort(
        tmp_path / "b",
        {"f2": gamma(far, 0.8), "o2": re_encoded(odd, 50)},
        dataset="B",
        patient_id=["P4", "P6"],
        label=["benign", "malignant"],
    )
    found = find_duplicates([here, there])
    assert dict(zip(found.pairs["case_a"], found.pairs["relation"], strict=True)) == {
        "s1": "within a patient, across labels",
        "l1": "across patients and labels",
        "f1": "across datasets",
        "o1": "across datasets and labels",
    }
    assert found.patient_pairs == [("A/P2", "A/P3"), ("A/P4", "B/P4"), ("A/P5", "B/P6")]
    counts = found.counts()
    assert (counts["pairs_across_patients"], counts["pairs_across_datasets"]) == (3, 2)
    assert (counts["pairs_across_labels"], counts["pairs_across_labels_and_patients"]) == (3, 2)
    group = dict(zip(found.groups["case"], found.groups["group"], strict=True))
    assert group["A/f1"] == group["B/f2"] == "A/P4"
    assert group["A/s1"] == "A/P1"
    apart = find_duplicates([here, there], keep_together=False)
    assert list(apart.groups["group"]) == list(apart.groups["patient"])
    assert apart.pairs.equals(found.pairs)
    copies = duplicate_groups(found.pairs)
    assert copies["B/o2"] == copies["A/o1"] == "A/o1"
    assert [row.case_a for row in in_order(found.pairs).itertuples()] == ["o1", "l1", "f1", "s1"]


def test_the_order_of_rows_and_cohorts_does_not_matter(tmp_path):
    pictures = originals(20, 7)
    one = make_cohort(
        tmp_path / "a", pictures | {"x": cropped(pictures["p003"], 0.05, 0, 0, 0.05)}, dataset="A"
    )
    two = make_cohort(
        tmp_path / "b", originals(20, 8) | {"y": ImageOps.mirror(pictures["p009"])}, dataset="B"
    )
    turned = Cohort.from_frame(one.cases.iloc[::-1], root=one.root)
    a, b = find_duplicates([one, two]), find_duplicates([two, turned])
    columns = ["case_a", "case_b", "kind", "relation"]
    assert a.pairs[columns].values.tolist() == b.pairs[columns].values.tolist()
    assert len(a.pairs) == 2
    assert sorted(a.groups["group"]) == sorted(b.groups["group"])


def test_four_pictures_are_enough_for_the_default(tmp_path):
    pictures = originals(3, 9)
    found = find_duplicates([make_cohort(tmp_path, pictures | {"c": re_encoded(pictures["p001"])})])
    assert named(found.pairs) == {("c", "p001"): "near"}
    assert "default" in found.calibration["calibrated_by"].iloc[0]


def test_blank_and_flat_pictures_are_pairs_only_if_exact(tmp_path):
    pictures = originals(12, 10)
    flat = {f"flat{v}": Image.new("L", (120, 90), v) for v in (0, 60, 200)}
    found = find_duplicates(
        [make_cohort(tmp_path, pictures | flat | {"black": Image.new("L", (120, 90), 0)})]
    )
    kinds = named(found.pairs)
    assert kinds[("black", "flat0")] == "exact"
    assert all(kind == "exact" for kind in kinds.values())
    assert not any("p0" in name for pair in kinds for name in pair)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000),
    power=st.floats(0.6, 1.6),
    edges=st.tuples(*[st.floats(0, 0.07)] * 4),
    factor=st.floats(0.5, 2.0),
    quality=st.integers(40, 95),
)
def test_alterations_together_leave_the_score_high(seed, power, edges, factor, quality):
    rng = np.random.default_rng(seed)
    one, other = speckle(rng), speckle(rng)
    copy = re_encoded(resized(cropped(gamma(one, power), *edges), factor), quality)
    grey = np.stack(
        [np.asarray(im.resize((SIDE, SIDE), Image.Resampling.BILINEAR)) for im in (one, copy, other)]
    )
    coarse, fine = textures(grey, 32, radius=4), textures(grey, 64, radius=4)
    said, _ = scores(coarse, fine, np.array([0, 0]), np.array([1, 2]), np.array([False, False]))
    assert said[0] > 0.6
    assert said[1] < 0.45


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(
            st.lists(st.sampled_from([f"P{i}" for i in range(n)]), min_size=1, max_size=30),
            st.lists(st.tuples(*[st.sampled_from([f"P{i}" for i in range(n)])] * 2), max_size=15),
        )
    ),
    st.randoms(use_true_random=False),
)
def test_merged_groups_are_the_connected_patients(drawn, shuffle):
    patients, pairs = drawn
    groups = merge_groups(patients, pairs)
    joined = {p: {p} for p in [*patients, *(name for pair in pairs for name in pair)]}
    for _ in joined:
        for a, b in pairs:
            both = joined[a] | joined[b]
            for name in both:
                joined[name] = both
    for (a, group_a), (b, group_b) in combinations(zip(patients, groups, strict=True), 2):
        assert (group_a == group_b) == (b in joined[a])
    assert groups == [min(joined[p]) for p in patients]
    turned = [(b, a) for a, b in pairs]
    shuffle.shuffle(turned)
    assert merge_groups(patients, turned) == groups


def test_trimming_takes_borders_and_nothing_else():
    inner = np.random.default_rng(0).integers(40, 255, (30, 40)).astype(np.uint8)
    padded = np.pad(inner, ((4, 9), (0, 7)))
    assert np.array_equal(trimmed(padded), inner)
    assert np.array_equal(trimmed(inner), inner)
    blank = np.full((9, 9), 7, dtype=np.uint8)
    assert trimmed(blank).shape == blank.shape


def test_sixteen_bit_and_palette_pictures(tmp_path):
    pictures = originals(4, 11)
    deep = Image.fromarray(np.asarray(pictures["p000"]).astype(np.uint16) * 200)
    palette = pictures["p001"].convert("P")
    found = find_duplicates([make_cohort(tmp_path, pictures | {"deep": deep, "palette": palette})])
    assert set(named(found.pairs)) == {("deep", "p000"), ("p001", "palette")}


class TestMistakes:
    def test_no_image_column(self):
        with pytest.raises(UserError, match="no column 'image'"):
            find_duplicates([Cohort.from_frame(pd.DataFrame({"case_id": ["a", "b"]}))])

    def test_files_that_are_not_there_or_no_pictures(self, tmp_path):
        cohort = make_cohort(tmp_path, originals(3, 12))
        (tmp_path / "p001.png").write_bytes(b"no picture")
        (tmp_path / "p002.png").unlink()
        with pytest.raises(UserError, match=r"2 of 3 pictures cannot be read") as told:
            find_duplicates([cohort])
        assert "p001.png" in str(told.value)
        assert "p002.png" in str(told.value)

    def test_a_truncated_picture(self, tmp_path):
        cohort = make_cohort(tmp_path, originals(3, 12))
        held = io.BytesIO()
        speckle(np.random.default_rng(0)).save(held, "PNG")
        (tmp_path / "p001.png").write_bytes(held.getvalue()[:900])
        with pytest.raises(UserError, match=r"1 of 3"):
            find_duplicates([cohort])

    def test_a_cohort_given_twice(self, tmp_path):
        cohort = make_cohort(tmp_path, originals(2, 13), dataset="A")
        with pytest.raises(UserError, match="are in two of the cohorts"):
            find_duplicates([cohort, cohort])

    def test_one_picture(self, tmp_path):
        with pytest.raises(UserError, match="no two pictures"):
            find_duplicates([make_cohort(tmp_path, originals(1, 14))])

    def test_rows_without_a_picture_are_counted(self, tmp_path):
        cohort = make_cohort(tmp_path, originals(3, 15))
        table = pd.concat(
            [cohort.cases, pd.DataFrame({"case_id": ["bare"], "patient_id": ["bare"], "dataset": ["cohort"]})]
        )
        found = find_duplicates([Cohort.from_frame(table, root=tmp_path)])
        assert any("1 cases have no picture" in warning for warning in found.warnings)
        assert len(found.groups) == 3


def test_contact_sheets_are_paged(tmp_path):
    picture = speckle(np.random.default_rng(16))
    copies = {f"c{at}": picture for at in range(7)}
    found = find_duplicates([make_cohort(tmp_path / "in", copies)])
    assert len(found.pairs) == 21
    (tmp_path / "out").mkdir()
    files, left = write_contact_sheets(found, tmp_path / "out")
    assert len(files) == -(-21 // (COLUMNS * ROWS)) == 2
    assert left == 0
    sizes = [Image.open(file).size for file in files]
    assert sizes[0][0] == sizes[1][0]
    assert sizes[0][1] > sizes[1][1]
    page = np.asarray(Image.open(files[0]).convert("L"))
    assert page.std() > 20


def test_textures_are_of_the_mean_of_each_block():
    """Block means of 8-bit pictures are exact, whatever the order of their sums."""
    rng = np.random.default_rng(5)
    grey = rng.integers(0, 256, (130, 64, 64), dtype=np.uint8)
    for side, factor in ((16, 4), (32, 2)):
        small = grey.reshape(130, side, factor, side, factor).mean(axis=(2, 4), dtype=np.float32)
        wanted = np.empty_like(small)
        for picture, out in zip(small, wanted, strict=True):
            normalise_contrast(picture, 3, NOISE, DARK, out)
        assert np.array_equal(textures(grey, side, radius=3), wanted)
    assert textures(grey[:0], 16, radius=2).shape == (0, 16, 16)


def test_the_dark_and_what_touches_it_is_left_out():
    picture = np.full((12, 12), 90.0, dtype=np.float32) + np.arange(12, dtype=np.float32)
    picture[5, 7] = 0.0
    out = np.ones_like(picture)
    normalise_contrast(picture, 2, NOISE, DARK, out)
    zero = np.zeros((12, 12), dtype=bool)
    zero[4:7, 6:9] = True
    assert (out[zero] == 0.0).all()
    assert (out[~zero][:12] != 0.0).any()


def agreement(one, two, edges, need):
    """In the plainest way: every pixel of `one`, interpolated in `two`, and their correlation."""
    side = len(one)
    centres = (np.arange(side) + 0.5) / side
    across = (edges[0] + (edges[1] - edges[0]) * centres) * side - 0.5
    down = (edges[2] + (edges[3] - edges[2]) * centres) * side - 0.5
    inside = np.ix_((down >= 0) & (down <= side - 1), (across >= 0) & (across <= side - 1))
    laid = map_coordinates(two.astype(float), np.meshgrid(down, across, indexing="ij"), order=1)[inside]
    seen = (one[inside] != 0) & (laid != 0)
    return np.corrcoef(one[inside][seen], laid[seen])[0, 1] if seen.sum() >= need else -1.0


@pytest.mark.parametrize(("axis", "by"), [(2, 3), (1, -3)])
def test_a_climb_by_the_axes_ends_where_the_plain_climb_does(axis, by):
    """Every place tried, tried again and interpolated anew: neither the memory nor what is kept changes it."""
    rng = np.random.default_rng(11)
    grey = rng.integers(0, 256, (12, 64, 64), dtype=np.uint8)
    grey[6:] = np.roll(grey[:6], by, axis=axis)
    fine = textures(grey, 32, radius=4)
    home = np.array([0.0, 1.0, 0.0, 1.0])
    for one, two in zip(fine[:6], fine[6:], strict=True):
        edges, plain = home.copy(), home.copy()
        steps = np.array([1 / 32, 0.5 / 32])
        said = _climb(np.stack([one, one.T]), np.stack([two, two.T]), edges, _MOVES, steps, 4, REACH)
        need = max(int(0.4 * min(np.count_nonzero(one), np.count_nonzero(two))), one.size // 20)
        best = agreement(one, two, plain, need)
        for step in steps:
            for _ in range(4):
                chosen = -1
                for m, move in enumerate(_MOVES):
                    tried = plain + move * step
                    if np.abs(tried - home).max() <= REACH:
                        value = agreement(one, two, tried, need)
                        if value > best + 1e-4:
                            best, chosen = value, m
                if chosen < 0:
                    break
                plain += _MOVES[chosen] * step
        assert np.array_equal(edges, plain)
        assert not np.array_equal(edges, home)
        assert said == pytest.approx(best, abs=1e-5)


def test_local_contrast_is_what_its_definition_says():
    rng = np.random.default_rng(12)
    picture = rng.integers(0, 60, (20, 24)).astype(np.float32)
    out = np.empty_like(picture)
    normalise_contrast(picture, 2, NOISE, DARK, out)
    dark = binary_dilation(picture <= picture.min() + DARK, np.ones((3, 3)))
    high = np.zeros(picture.shape)
    windows = {}
    for y, x in np.argwhere(~dark):
        windows[y, x] = (slice(max(0, y - 2), y + 3), slice(max(0, x - 2), x + 3))
        high[y, x] = picture[y, x] - picture[windows[y, x]][~dark[windows[y, x]]].mean()
    for (y, x), window in windows.items():
        power = (high[window] ** 2)[~dark[window]].mean()
        assert out[y, x] == pytest.approx(high[y, x] / np.sqrt(power + NOISE**2), rel=1e-5, abs=1e-6)
    assert (out[dark] == 0).all()
    assert 0 < dark.sum() < dark.size
