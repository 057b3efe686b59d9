"""Yes-or-no attributes that a network could use instead of the lesion: marks, text, a Doppler box."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from elsewhere.cohort.readers.scans import Notes, Scan

CLEARLY = 0.15
"""The shares of two classes differ clearly from this difference on,"""
SURELY = 0.01
"""and surely where Fisher's exact test over the pictures gives a p below this."""


def shortcut_notes(name: str, scans: Sequence[Scan], notes: Notes) -> None:
    """Warn of a yes-or-no attribute from which a network could read the answer.

    One warning where the attribute separates benign from malignant, the question of the study; another where
    it separates lesions from normals, which are judged apart (US-18). It separates two classes where their
    shares of 'yes' differ by CLEARLY or more, and Fisher's exact test over the pictures gives p below SURELY.
    Unknown values do not count.

    Args:
        name: The attribute, such as `marks`.
        scans: The scans, with the attribute 'yes' or 'no'.
        notes: Receives the warnings.

    Example:
        >>> from pathlib import Path
        >>> notes, image = Notes(), Path("a.png")
        >>> marked = [Scan(case_id="a", label="benign", image=image, attributes={"marks": "yes"})] * 9
        >>> plain = [Scan(case_id="b", label="malignant", image=image, attributes={"marks": "no"})] * 9
        >>> shortcut_notes("marks", marked + plain, notes)
        >>> len(notes.warnings)
        1
    """
    seen: dict[str, tuple[int, int]] = {}
    for label in ("benign", "malignant", "normal"):
        said = [scan.attributes.get(name) for scan in scans if scan.label.strip().casefold() == label]
        seen[label] = (said.count("yes"), said.count("no"))
    lesions = (seen["benign"][0] + seen["malignant"][0], seen["benign"][1] + seen["malignant"][1])
    for what, one, two in (
        ("goes with the label", ("benign", seen["benign"]), ("malignant", seen["malignant"])),
        ("separates lesions from normals", ("lesions", lesions), ("normals", seen["normal"])),
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
    """The p of Fisher's test where the shares of yes differ clearly and surely; otherwise None."""
    if not sum(one) or not sum(two) or abs(one[0] / sum(one) - two[0] / sum(two)) < CLEARLY:
        return None
    from scipy.stats import fisher_exact

    p = float(fisher_exact(np.array([one, two])).pvalue)
    return p if p < SURELY else None
