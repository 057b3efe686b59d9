"""The words for a slide's stage and a patient's, in their order (LN-01, LN-17)."""

from __future__ import annotations

STAGES = ("negative", "itc", "micro", "macro")
PATIENT_STAGES = ("pN0", "pN0(i+)", "pN1mi", "pN1", "pN2")
_SPELLINGS = {
    "negative": "negative",
    "normal": "negative",
    "none": "negative",
    "itc": "itc",
    "isolated tumor cells": "itc",
    "micro": "micro",
    "micrometastasis": "micro",
    "macro": "macro",
    "macrometastasis": "macro",
}


def normalise_stage(text: str) -> str | None:
    """Spell the stage of a slide or a patient as the table of stages does.

    Args:
        text: The word, in any letter case.

    Returns:
        One of STAGES or PATIENT_STAGES; None for a word that is no stage.

    Example:
        >>> normalise_stage("Macro"), normalise_stage("pn1MI"), normalise_stage("?")
        ('macro', 'pN1mi', None)
    """
    folded = text.strip().casefold()
    if folded in _SPELLINGS:
        return _SPELLINGS[folded]
    for stage in PATIENT_STAGES:
        if folded == stage.casefold():
            return stage
    return None
