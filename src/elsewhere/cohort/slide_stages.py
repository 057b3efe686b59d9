"""The stage of a slide, in the words in which people write it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

SLIDE_STAGES = ("negative", "itc", "micro", "macro")
"""From the least to the largest."""
_WORDS = {
    "negative": (
        "negative", "negativ", "neg", "normal", "none", "no", "nein", "keine", "benign", "tumor free",
        "tumour free", "tumorfrei", "no metastasis", "no metastases", "no tumor", "no tumour", "keine metastase",
        "keine metastasen", "0", "-", "pn0", "n0",
    ),
    "itc": (
        "itc", "itcs", "isolated tumor cells", "isolated tumour cells", "isolierte tumorzellen", "itz", "pn0(i+)",
        "n0(i+)", "pn0i+", "i+",
    ),
    "micro": (
        "micro", "micrometastasis", "micrometastases", "micro metastasis", "mikro", "mikrometastase",
        "mikrometastasen", "mi", "mic", "pn1mi", "n1mi", "pn1(mi)",
    ),
    "macro": (
        "macro", "macrometastasis", "macrometastases", "macro metastasis", "makro", "makrometastase",
        "makrometastasen", "mac",
    ),
}  # fmt: skip
_STAGE_OF_WORD = {word: stage for stage, words in _WORDS.items() for word in words}


def fold_word(text: str) -> str:
    """Bring a word to one form: without letter case, accents written apart, hyphens and double blanks.

    Args:
        text: The word.

    Returns:
        The folded word.

    Example:
        >>> fold_word(" Macro-Metastasis ")
        'macro metastasis'
    """
    folded = unicodedata.normalize("NFC", text).strip().casefold()
    return folded if folded == "-" else re.sub(r"[\s_\-]+", " ", folded).strip(" .;:")


def slide_stage(text: str, words: Mapping[str, str] | None = None) -> str | None:
    """Read the stage of a slide.

    Args:
        text: The word, in any letter case; English or German.
        words: Further words and their stages, which come first.

    Returns:
        One of SLIDE_STAGES; None for a word that is no stage.

    Example:
        >>> slide_stage("Makrometastase"), slide_stage("pN0(i+)"), slide_stage("?")
        ('macro', 'itc', None)
    """
    folded = fold_word(text)
    for word, stage in (words or {}).items():
        if fold_word(word) == folded:
            return stage
    return _STAGE_OF_WORD.get(folded)
