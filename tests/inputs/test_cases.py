"""Cases: places by name, fingerprints of what a network can see, and files without pickles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.inputs import Cases


def make(n: int = 4, **changes: object) -> Cases:
    values = {
        "case": tuple(f"A/{i}" for i in range(n)),
        "dataset": ("A",) * n,
        "label": np.array([i % 3 - 1 for i in range(n)], dtype=np.int8),
        "box": np.arange(4 * n, dtype=np.int32).reshape(n, 4),
        "digest": tuple(f"{i:064x}" for i in range(n)),
    }
    return Cases(**values | changes)


def test_places_follow_the_names():
    cases = make()
    assert cases.rows(["A/3", "A/0"]).tolist() == [3, 0]
    assert cases.rows([]).dtype == np.int64
    assert len(cases) == 4
    with pytest.raises(KeyError):
        cases.rows(["A/9"])


def test_columns_of_other_lengths_and_repeated_names_are_refused():
    with pytest.raises(ValueError, match="length"):
        make(dataset=("A",))
    with pytest.raises(ValueError, match="twice"):
        make(case=("A/0", "A/0", "A/1", "A/2"))


def test_a_fingerprint_is_of_pixels_and_with_a_crop_of_the_box():
    cases = make()
    whole, crop = cases.fingerprints(with_box=False), cases.fingerprints(with_box=True)
    assert whole.dtype == np.uint64
    assert len(set(whole.tolist()) | set(crop.tolist())) == 8
    moved = replace(
        cases, box=cases.box + np.array([[0, 0, 0, 0], [0, 0, 0, 1], [0] * 4, [0] * 4], dtype=np.int32)
    )
    assert np.array_equal(moved.fingerprints(with_box=False), whole)
    assert (moved.fingerprints(with_box=True) != crop).tolist() == [False, True, False, False]
    renamed = replace(cases, case=("B/0", "B/1", "B/2", "B/3"), dataset=("B",) * 4, label=-cases.label)
    assert np.array_equal(renamed.fingerprints(with_box=True), crop)


def test_the_fingerprint_of_a_known_case_does_not_move():
    """Stores on disk hold these numbers: another rule would train everything again."""
    cases = make(1, digest=("ab" * 32,), box=np.array([[1, 2, 30, 40]], dtype=np.int32))
    assert cases.fingerprints(with_box=False).tolist() == [8125964682054933031]
    assert cases.fingerprints(with_box=True).tolist() == [10179977806577033025]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=10),
            st.integers(-1, 1),
            st.tuples(*[st.integers(0, 2**31 - 1)] * 4),
        ),
        unique_by=lambda row: row[0],
        max_size=8,
    )
)
def test_a_file_gives_the_same_cases(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("cases") / "cases.npz"
    before = Cases(
        case=tuple(f"A/{name}" for name, _, _ in rows),
        dataset=tuple("Ünï A" for _ in rows),
        label=np.array([label for _, label, _ in rows], dtype=np.int8),
        box=np.array([box for *_, box in rows], dtype=np.int32).reshape(-1, 4),
        digest=tuple(f"{at:064x}" for at in range(len(rows))),
    )
    before.save(path)
    after = Cases.load(path)
    assert (after.case, after.dataset, after.digest) == (before.case, before.dataset, before.digest)
    assert np.array_equal(after.label, before.label)
    assert np.array_equal(after.box, before.box)
    assert (after.label.dtype, after.box.dtype) == (np.int8, np.int32)


def test_a_file_with_pickles_is_not_read(tmp_path):
    path = tmp_path / "cases.npz"
    np.savez(path, case=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        Cases.load(path)


def test_a_mask_counts_where_it_is_seen_or_learnt_and_nowhere_else():
    from dataclasses import replace

    from elsewhere.engine.training import Training
    from elsewhere.recipes.pictures.settings import classifier_spec, finder_spec
    from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec

    cases = Cases(
        case=("a/1", "a/2"),
        dataset=("a", "a"),
        label=np.array([0, 1], np.int8),
        box=np.array([[0, 0, 2, 2]] * 2, np.int32),
        digest=("x", "y"),
        mask_digest=("p", "q"),
    )
    other = replace(cases, mask_digest=("p", "r"))
    specs = (
        classifier_spec(ClassifierSettings(), InputSpec(kind="roi")),
        classifier_spec(ClassifierSettings(), InputSpec(kind="roi", outline=True)),
        finder_spec(ClassifierSettings(), InputSpec()),
    )
    crop, outline, finder = (Training(recipe=spec, train=("a/1", "a/2")) for spec in specs)
    assert crop.with_key(cases).key == crop.with_key(other).key
    assert outline.with_key(cases).key != outline.with_key(other).key
    assert finder.with_key(cases).key != finder.with_key(other).key
    assert (outline.fingerprints(cases) != outline.fingerprints(other)).tolist() == [False, True]
