"""Folds by patient, with slides of tumour in each (LN-09)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError


@dataclass(frozen=True, kw_only=True, eq=False)
class PatientFolds:
    """The fold of every patch, so that no patient is divided.

    Attributes:
        fold: (patches,) 1 to `folds`.
        folds: How many.
        patients: Patients per fold.
        tumour_slides: Slides with tumour patches per fold.
    """

    fold: npt.NDArray[np.int64]
    folds: int
    patients: tuple[int, ...]
    tumour_slides: tuple[int, ...]


def patient_folds(
    patients: Sequence[str],
    slides: Sequence[str],
    tumour: npt.NDArray[np.bool_],
    *,
    folds: int = 5,
    seed: int = 0,
) -> PatientFolds:
    """Divide patches into folds by patient.

    Patients are shuffled by the seed and taken from the most slides with tumour to the fewest; each goes to the fold that has
    the fewest of these so far, then the fewest patches. Patients are told apart by their names alone: the order of
    the rows does not matter.

    Args:
        patients: The patient of each patch.
        slides: The slide of each patch.
        tumour: Whether each patch has tumour.
        folds: How many folds.
        seed: Seed of the shuffle.

    Returns:
        The folds.

    Raises:
        UserError: Fewer than two folds are asked for, a slide has two patients, or a fold would have no slide with tumour, or
            none without patches.

    Example:
        >>> names = ["a", "a", "b", "c", "d"]
        >>> made = patient_folds(names, names, np.array([True, False, True, False, False]), folds=2, seed=1)
        >>> sorted(made.tumour_slides), bool(made.fold[0] == made.fold[1])
        ([1, 1], True)
    """
    if folds < 2:
        raise UserError(f"{folds} folds were asked for", fix="Give 2 or more.")
    owner: dict[str, str] = {}
    for patient, slide in zip(patients, slides, strict=True):
        if owner.setdefault(slide, patient) != patient:
            raise UserError(
                "a slide of the set has two patients",
                fix="Give each slide one patient_id in the patch table.",
            )
    names, codes = np.unique(np.asarray(patients, dtype=str), return_inverse=True)
    count = np.bincount(codes, minlength=len(names))
    positive = {slide for slide, has in zip(slides, tumour.tolist(), strict=True) if has}
    with_tumour = np.zeros(len(names), np.int64)
    place = {str(name): at for at, name in enumerate(names)}
    for slide in positive:
        with_tumour[place[owner[slide]]] += 1
    rng = np.random.default_rng([seed, folds, 0x1EAF])
    shuffled = rng.permutation(len(names))
    order = sorted(shuffled.tolist(), key=lambda at: (-with_tumour[at], -count[at]))
    held = np.zeros(len(names), np.int64)
    tumours, sizes, members = [0] * folds, [0] * folds, [0] * folds
    for at in order:
        fold = min(range(folds), key=lambda f: (tumours[f] if with_tumour[at] else 0, sizes[f], f))
        held[at] = fold + 1
        tumours[fold] += int(with_tumour[at])
        sizes[fold] += int(count[at])
        members[fold] += 1
    for fold in range(folds):
        if not tumours[fold] or not members[fold]:
            patients_with = int((with_tumour > 0).sum())
            raise UserError(
                f"fold {fold + 1} of {folds} has no slide with tumour: {patients_with} of the set's {len(names)} patients have "
                "tumour patches",
                fix="Ask for fewer folds, or take more patients with tumour into the set.",
            )
    return PatientFolds(fold=held[codes], folds=folds, patients=tuple(members), tumour_slides=tuple(tumours))
