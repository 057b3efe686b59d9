"""Words that vendors write where a case has no usable answer: which mean 'could not be analysed' (ST-14).

A cell of the status column, or a text in place of a score, is compared in lower case, with every run of
blanks, hyphens, underscores and other marks read as one blank, so that `Technical-Failure` and `technical
failure` are one word. It means that the case could not be analysed when it holds one of `FAILURE_PHRASES`, or
one of `FAILURE_WORDS` without a negation before it ('no error' is not one), or when the user named it
(`--failed-status`). `USABLE_WORDS` are known to mean the opposite. Any other word is unknown: the row's score
is used, and the word is reported with its rows, because a word of a vendor must not decide unnoticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

FAILURE_WORDS = (
    "abort",
    "aborted",
    "corrupt",
    "corrupted",
    "crash",
    "crashed",
    "error",
    "errors",
    "exception",
    "fail",
    "failed",
    "fails",
    "failure",
    "failures",
    "fault",
    "incomplete",
    "invalid",
    "nonanalysable",
    "nonanalyzable",
    "reject",
    "rejected",
    "rejection",
    "skipped",
    "timeout",
    "unanalysable",
    "unanalyzable",
    "unassessable",
    "unevaluable",
    "ungradable",
    "unprocessed",
    "unreadable",
    "unsuccessful",
    "unusable",
)
"""One of these words anywhere in the cell means that the case could not be analysed."""

_ABLE = (
    "analysable",
    "analyzable",
    "analysed",
    "analyzed",
    "assessable",
    "assessed",
    "calculated",
    "computed",
    "diagnostic",
    "evaluable",
    "evaluated",
    "gradable",
    "interpretable",
    "processable",
    "processed",
    "readable",
    "scored",
    "usable",
)
FAILURE_PHRASES = (
    *(f"not {word}" for word in _ABLE),
    *(f"non {word}" for word in _ABLE if word.endswith("able") or word == "diagnostic"),
    *(
        f"{start} be {word}"
        for start in ("could not", "cannot", "can not")
        for word in _ABLE
        if word.endswith("ed")
    ),
    "could not analyse",
    "could not analyze",
    "could not process",
    "could not read",
    "did not complete",
    "no output",
    "file not found",
    "image not found",
    "no prediction",
    "no result",
    "no score",
    "not completed",
    "not successful",
    "not supported",
    "timed out",
    "unable to",
    "without result",
)
"""One of these phrases anywhere in the cell means that the case could not be analysed."""

NEGATIONS = ("0", "never", "no", "non", "not", "without", "zero")
"""Directly before a word of `FAILURE_WORDS`, these reverse its meaning: 'no error', 'without any errors'."""

_BETWEEN = frozenset({"any", "critical", "fatal", "known"})
"""Words that may stand between negation and failure: 'without any error', 'no fatal error'."""

USABLE_WORDS = (
    "0 errors",
    "analysed",
    "analyzed",
    "available",
    "complete",
    "completed",
    "done",
    "error free",
    "final",
    "finished",
    "good",
    "no error",
    "no errors",
    "normal",
    "ok",
    "okay",
    "pass",
    "passed",
    "processed",
    "scored",
    "succeeded",
    "success",
    "successful",
    "valid",
    "without error",
    "without errors",
)
"""Where the whole cell is one of these, the row's score is meant to be used."""

FAILED = "could not be analysed"
USABLE = "score used"
UNKNOWN = "not known: score used"
_MARKS = re.compile(r"[\W_]+")
_WORDS_SHOWN = 8
_LONGEST = 60


def plain_words(text: str) -> str:
    """Write a text in lower case, with one blank for every run of blanks and marks.

    Args:
        text: A cell.

    Returns:
        The plain words.

    Example:
        >>> plain_words("Technical-Failure ")
        'technical failure'
    """
    return _MARKS.sub(" ", text.casefold()).strip()


def means_failure(text: str, extra: Iterable[str] = ()) -> bool:
    """Check whether a cell says that the case could not be analysed.

    Args:
        text: The cell.
        extra: Further words that mean it, as the user named them (`--failed-status`); the whole cell is
            compared.

    Returns:
        Whether it does.

    Example:
        >>> means_failure("Technical-Failure"), means_failure("completed without errors")
        (True, False)
    """
    plain = plain_words(text)
    if not plain:
        return False
    if plain in {plain_words(word) for word in extra}:
        return True
    padded = f" {plain} "
    if any(f" {phrase} " in padded for phrase in FAILURE_PHRASES):
        return True
    words = [word for word in plain.split() if word not in _BETWEEN]
    return any(
        word in FAILURE_WORDS and before not in NEGATIONS and after != "free"
        for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False)
    )


@dataclass(frozen=True, kw_only=True)
class StatusWord:
    """One word of the status column (or a text in place of a score), and what was done about it.

    Args:
        word: The word as it is written, cut to 60 characters.
        rows: In how many rows it occurs.
        with_score: In how many of them there is a score.
        meaning: FAILED, USABLE or UNKNOWN.

    Example:
        >>> str(StatusWord(word="QC", rows=2, with_score=2, meaning=UNKNOWN))
        "'QC' in 2 rows (not known: score used)"
    """

    word: str
    rows: int
    with_score: int
    meaning: str

    def to_dict(self) -> dict[str, Any]:
        """Return the word for summary.json.

        Returns:
            The fields, whether the word is understood, and whether the scores of its rows were used.
        """
        return {
            "word": self.word,
            "rows": self.rows,
            "rows_with_a_score": self.with_score,
            "meaning": self.meaning,
            "understood": self.meaning != UNKNOWN,
            "score_used": self.meaning != FAILED,
        }

    def __str__(self) -> str:
        unused = (
            f"; {self.with_score} had a score, which was not used"
            if self.meaning == FAILED and self.with_score
            else ""
        )
        return f"'{self.word}' in {self.rows} {'row' if self.rows == 1 else 'rows'} ({self.meaning}{unused})"


def failed_rows(cells: pd.Series, extra: Iterable[str] = ()) -> npt.NDArray[np.bool_]:
    """Find the cells that say that the case could not be analysed.

    Args:
        cells: A column; each distinct text is examined once.
        extra: Further words that mean it, as the user named them (`--failed-status`).

    Returns:
        True for each such cell.

    Example:
        >>> failed_rows(pd.Series(["ok", "not analysable", None])).tolist()
        [False, True, False]
    """
    codes, words = pd.factorize(_text(cells))
    extra = tuple(extra)
    says = np.array([means_failure(str(word), extra) for word in words], dtype=bool)
    return says[codes] if len(words) else np.zeros(len(cells), dtype=bool)


def is_word_of(cells: pd.Series, word: str) -> bool:
    """Check whether any cell is a word, compared as all words are.

    Args:
        cells: A column.
        word: The word.

    Returns:
        Whether any is.

    Example:
        >>> is_word_of(pd.Series(["ok", "No-Result"]), "no result")
        True
    """
    return plain_words(word) in {plain_words(str(text)) for text in _text(cells).unique()}


def status_words(
    cells: pd.Series, has_score: npt.NDArray[np.bool_], extra: Iterable[str] = ()
) -> tuple[StatusWord, ...]:
    """List every word of a status column, the most frequent first; empty cells are left out.

    Args:
        cells: The status column.
        has_score: (n,) whether the row has a score.
        extra: Further words that mean a failure, as the user named them (`--failed-status`).

    Returns:
        The words with the number of their rows.

    Example:
        >>> status_words(pd.Series(["ok", "ok"]), np.array([True, True]))[0].meaning
        'score used'
    """
    codes, words = pd.factorize(_text(cells))
    rows = np.bincount(codes, minlength=len(words))
    with_score = np.bincount(codes, weights=has_score.astype(float), minlength=len(words))
    extra = tuple(extra)
    found = []
    for k in np.argsort(-rows, kind="stable"):
        word = str(words[k])
        if not plain_words(word):
            continue
        known = USABLE if plain_words(word) in USABLE_WORDS else UNKNOWN
        found.append(
            StatusWord(
                word=word if len(word) <= _LONGEST else word[:_LONGEST] + "...",
                rows=int(rows[k]),
                with_score=int(with_score[k]),
                meaning=FAILED if means_failure(word, extra) else known,
            )
        )
    return tuple(found)


def status_sentence(words: Iterable[StatusWord]) -> str:
    """Describe the words of a status column, the first few of them: the column may hold free text.

    Args:
        words: The words.

    Returns:
        The words with their rows, separated by commas.

    Example:
        >>> status_sentence(status_words(pd.Series(["ok"]), np.array([True])))
        "'ok' in 1 row (score used)"
    """
    shown = [str(word) for word in words]
    rest = len(shown) - _WORDS_SHOWN
    return ", ".join(shown[:_WORDS_SHOWN]) + (f" and {rest} other words" if rest > 0 else "")


def _text(cells: pd.Series) -> pd.Series:
    return cells.astype("string").fillna("").str.strip()
