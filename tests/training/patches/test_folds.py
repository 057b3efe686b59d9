"""Folds by patient, each with slides of tumour (LN-09)."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.training.patches.folds import patient_folds


def table(tumour_patients=7, normal_patients=9, seed=0):
    rng = np.random.default_rng(seed)
    patients, slides, tumour = [], [], []
    for at in range(tumour_patients + normal_patients):
        for slide in range(int(rng.integers(1, 4))):
            for _ in range(int(rng.integers(3, 30))):
                patients.append(f"p{at}")
                slides.append(f"p{at}-{slide}")
                tumour.append(at < tumour_patients and slide == 0 and rng.random() < 0.7)
    return patients, slides, np.array(tumour)


@pytest.mark.parametrize("seed", range(5))
def test_no_patient_is_divided_and_every_fold_has_tumour(seed):
    patients, slides, tumour = table(seed=seed)
    made = patient_folds(patients, slides, tumour, folds=5, seed=seed)
    assert set(made.fold.tolist()) == {1, 2, 3, 4, 5}
    for patient in set(patients):
        assert len({f for f, p in zip(made.fold.tolist(), patients, strict=True) if p == patient}) == 1
    for fold in range(1, 6):
        assert tumour[made.fold == fold].any()
        assert (
            len({p for f, p in zip(made.fold.tolist(), patients, strict=True) if f == fold})
            == made.patients[fold - 1]
        )
    assert max(made.tumour_slides) - min(made.tumour_slides) <= 1


def test_the_order_of_the_rows_does_not_matter_and_the_seed_does():
    patients, slides, tumour = table()
    made = patient_folds(patients, slides, tumour, seed=1).fold
    order = np.random.default_rng(2).permutation(len(patients))
    again = patient_folds(
        [patients[k] for k in order], [slides[k] for k in order], tumour[order], seed=1
    ).fold
    assert np.array_equal(again, made[order])
    assert not np.array_equal(made, patient_folds(patients, slides, tumour, seed=2).fold)


def test_a_fold_without_tumour_slides_is_refused_by_name():
    patients, slides, tumour = table(tumour_patients=4)
    with pytest.raises(UserError, match=r"fold 5 of 5 has no slide with tumour: 4 of the set's 13 patients"):
        patient_folds(patients, slides, tumour, folds=5)
    assert patient_folds(patients, slides, tumour, folds=4).folds == 4


def test_a_slide_of_two_patients_and_one_fold_are_refused():
    with pytest.raises(UserError, match="two patients"):
        patient_folds(["a", "b"], ["s", "s"], np.array([True, True]), folds=2)
    with pytest.raises(UserError, match="1 folds were asked for"):
        patient_folds(["a"], ["s"], np.array([True]), folds=1)
