"""Yes-or-no attributes that a network could read in the place of the lesion: marks, text, a Doppler box."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from elsewhere.cohort.readers.scans import Notes, Scan

CLEARLY = 0.15
"""Shares of two classes differ clearly from so much on,"""
SURELY = 0.01
"""and by Fisher's exact test over the pictures below this."""


def shortcut_notes(name: str, scans: Sequence[Scan], notes: Notes) -> None:
    """A warning where the attribute parts benign from malignant, the question of the study; and another where
    it parts lesions from normals, which are judged apart (US-18). Unknown values do not count.
    """
    seen: dict[str, tuple[int, int]] = {}
    for label in ("benign", "malignant", "normal"):
        said = [scan.attributes.get(name) for scan in scans if scan.label.strip().casefold() == label]
        seen[label] = (said.count("yes"), said.count("no"))
    lesions = (seen["benign"][0] + seen["malignant"][0], seen["benign"][1] + seen["malignant"][1])
    for what, one, two in (
        ("goes with the label", ("benign", seen["benign"]), ("malignant", seen["malignant"])),
        ("tells lesions from normals", ("lesions", lesions), ("normals", seen["normal"])),
    ):
        p = _clear(one[1], two[1])
        if p is not None:
            told = ", ".join(f"{yes / (yes + no):.0%} of {word}" for word, (yes, no) in (one, two))
            shown = f"= {p:.1g}" if p >= 0.0001 else "< 0.0001"
            notes.warnings.append(
                f"'{name}' {what} ({told}; Fisher's exact p {shown} over pictures): a network can read it "
                f"{'as the label' if one[0] == 'benign' else 'instead of the lesion'}"
            )


def _clear(one: tuple[int, int], two: tuple[int, int]) -> float | None:
    """p where the shares of yes differ clearly and surely, else None."""
    if not sum(one) or not sum(two) or abs(one[0] / sum(one) - two[0] / sum(two)) < CLEARLY:
        return None
    from scipy.stats import fisher_exact

    p = float(fisher_exact(np.array([one, two])).pvalue)
    return p if p < SURELY else None
