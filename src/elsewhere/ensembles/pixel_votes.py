"""Ensembles of segmenters by a vote of their pixels: every ensemble from one count of the votes (LN-16).

The models of a fold call each pixel tumour or not. Which models did is one word of bits; a patch of 65,536 pixels has
few different words, so that the words of a patch with their numbers of pixels hold all that any ensemble of these
models needs: a thousand ensembles cost no further look at a pixel.

Tie rules by name. `strict` (the lymph-node study's): more than half of the members. With two members both have to agree,
which is an AND and no majority: `is_and` says so. `mean-probability`: the members' mean probability is above the
threshold; it needs probabilities, and has no ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError

TieRule = Literal["strict", "mean-probability"]
TIE_RULES: tuple[str, ...] = ("strict", "mean-probability")
MOST_MODELS = 63
BoolArray = npt.NDArray[np.bool_]
WordArray = npt.NDArray[np.uint64]
FloatArray = npt.NDArray[np.float64]


@numba.njit(cache=True, nogil=True)
def _pack(masks: BoolArray, truth: BoolArray, out: WordArray) -> None:
    """One word per pixel: bit m for model m, the highest bit for the truth."""
    one = np.uint64(1)
    for p in range(truth.size):
        word = np.uint64(0)
        for m in range(masks.shape[0]):
            if masks[m, p]:
                word |= one << np.uint64(m)
        if truth[p]:
            word |= one << np.uint64(63)
        out[p] = word


@numba.njit(cache=True, nogil=True)
def _bits(word: np.uint64) -> int:
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@numba.njit(cache=True, nogil=True)
def _count(
    words: WordArray,
    pixels: npt.NDArray[np.int64],
    patch: npt.NDArray[np.int64],
    members: WordArray,
    sizes: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
) -> None:
    """tp, fp, fn and tn of every ensemble and patch."""
    truth = np.uint64(1) << np.uint64(63)
    for i in range(words.size):
        word, n, p = words[i], pixels[i], patch[i]
        positive = (word & truth) != np.uint64(0)
        for e in range(members.size):
            called = 2 * _bits(word & members[e]) > sizes[e]
            if positive:
                out[e, p, 0 if called else 2] += n
            else:
                out[e, p, 1 if called else 3] += n


@dataclass(frozen=True, kw_only=True)
class PixelVotes:
    """Which models called the pixels of each patch tumour: all that any vote of these models needs.

    Attributes:
        models: How many models there are.
        words: The different words of the patches: bit m for model m, bit 63 for the truth.
        pixels: How many pixels have each word.
        patch: The patch of each word.
        patches: How many patches there are.
    """

    models: int
    words: WordArray
    pixels: npt.NDArray[np.int64]
    patch: npt.NDArray[np.int64]
    patches: int

    def confusion(self, members: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
        """Count the pixels of each ensemble by the strict rule: more than half of the members.

        Args:
            members: The models of each ensemble, by number.

        Returns:
            tp, fp, fn and tn, (ensembles, patches, 4).

        Raises:
            UserError: An ensemble has no member, one member twice, or a number that is no model.

        Example:
            >>> masks = np.array([[[True, True]], [[True, False]]])
            >>> votes = count_votes(masks, np.array([[True, False]]))
            >>> votes.confusion([[0], [0, 1]])[:, 0].tolist()
            [[1, 1, 0, 0], [1, 0, 0, 1]]
        """
        words = np.zeros(len(members), dtype=np.uint64)
        for e, chosen in enumerate(members):
            _check_members(chosen, self.models)
            for m in chosen:
                words[e] |= np.uint64(1) << np.uint64(m)
        sizes = np.array([len(chosen) for chosen in members], dtype=np.int64)
        out = np.zeros((len(members), self.patches, 4), dtype=np.int64)
        _count(self.words, self.pixels, self.patch, words, sizes, out)
        return out


def _check_members(members: Sequence[int], models: int) -> None:
    if not len(members) or len(set(members)) != len(members):
        raise UserError("an ensemble has no member, or one member twice", fix="Name each member once.")
    beyond = [m for m in members if not 0 <= m < models]
    if beyond:
        raise UserError(f"model {beyond[0]} is not among the {models} models", fix=f"Use 0 to {models - 1}.")


def is_and(members: Sequence[object], rule: str = "strict") -> bool:
    """Say whether a vote is an AND: both of two members have to agree.

    Args:
        members: The members.
        rule: The tie rule.

    Returns:
        True for two members by the strict rule.

    Example:
        >>> is_and(["a", "b"]), is_and(["a", "b", "c"]), is_and(["a", "b"], "mean-probability")
        (True, False, False)
    """
    return rule == "strict" and len(members) == 2


def count_votes(masks: npt.ArrayLike, truth: npt.ArrayLike) -> PixelVotes:
    """Count which models called which pixels tumour, patch by patch.

    Args:
        masks: The masks of each model, (models, patches, ...), True or 1 for tumour.
        truth: The true mask, (patches, ...).

    Returns:
        The votes.

    Raises:
        UserError: The shapes do not fit, there are more than 63 models, or a mask holds other values than 0 and 1.
    """
    stack, true = _mask(masks, "masks"), _mask(truth, "truth")
    if stack.ndim != true.ndim + 1 or stack.shape[1:] != true.shape or true.ndim < 2:
        raise UserError(
            f"the masks have the shape {stack.shape} and the truth {true.shape}",
            fix="Give masks as (models, patches, ...) and the truth as (patches, ...), pixel by pixel the same.",
        )
    models, patches = stack.shape[:2]
    if not 1 <= models <= MOST_MODELS:
        raise UserError(
            f"{models} models cannot vote", fix=f"Give 1 to {MOST_MODELS} models: those of one fold."
        )
    words: list[WordArray] = []
    pixels: list[npt.NDArray[np.int64]] = []
    patch: list[npt.NDArray[np.int64]] = []
    size = int(np.prod(true.shape[1:]))
    packed = np.empty(size, dtype=np.uint64)
    for p in range(patches):
        _pack(np.ascontiguousarray(stack[:, p].reshape(models, size)), true[p].reshape(size), packed)
        found, n = np.unique(packed, return_counts=True)
        words.append(found)
        pixels.append(n.astype(np.int64))
        patch.append(np.full(found.size, p, dtype=np.int64))
    empty = np.zeros(0, dtype=np.int64)
    return PixelVotes(
        models=models,
        words=np.concatenate([np.zeros(0, dtype=np.uint64), *words]),
        pixels=np.concatenate([empty, *pixels]),
        patch=np.concatenate([empty, *patch]),
        patches=patches,
    )


def _mask(given: npt.ArrayLike, what: str) -> BoolArray:
    values = np.asarray(given)
    if values.dtype != np.bool_:
        if not np.isin(values, (0, 1)).all():
            raise UserError(
                f"the {what} hold other values than 0 and 1",
                fix="Compare probabilities with the threshold first; a mask of 0 and 255 is divided by 255.",
            )
        values = values == 1
    return np.asarray(values, dtype=np.bool_)


def vote(probabilities: npt.ArrayLike, *, rule: str = "strict", threshold: float = 0.5) -> BoolArray:
    """Make the mask of one ensemble.

    Args:
        probabilities: What each member says, (members, ...), between 0 and 1.
        rule: 'strict' (more than half of the members are above the threshold) or 'mean-probability'.
        threshold: Tumour above it.

    Returns:
        The mask of the ensemble.

    Raises:
        UserError: The rule is unknown, or a value is no probability.

    Example:
        >>> members = np.array([[0.9, 0.9], [0.4, 0.0]])
        >>> vote(members).tolist(), vote(members, rule="mean-probability").tolist()
        ([False, False], [True, False])
    """
    values = np.asarray(probabilities, dtype=np.float64)
    if rule not in TIE_RULES:
        raise UserError(f"there is no tie rule '{rule}'", fix=f"Use {' or '.join(TIE_RULES)}.")
    if not ((values >= 0) & (values <= 1)).all():
        raise UserError(
            "a value is below 0, above 1 or no number", fix="Give the members' probabilities of tumour."
        )
    if rule == "strict":
        return np.asarray(2 * (values > threshold).sum(axis=0) > values.shape[0])
    return np.asarray(values.mean(axis=0) > threshold)


def dice_and_fpr(confusion: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Compute Dice on patches with tumour and the false-positive rate on the others.

    Args:
        confusion: tp, fp, fn and tn in the last axis.

    Returns:
        Dice (NaN on normal patches) and the false-positive rate (NaN on tumour patches).
    """
    tp, fp, fn, tn = (confusion[..., i].astype(float) for i in range(4))
    with np.errstate(invalid="ignore", divide="ignore"):
        tumour = tp + fn > 0
        return np.where(tumour, 2 * tp / (2 * tp + fp + fn), np.nan), np.where(tumour, np.nan, fp / (fp + tn))
