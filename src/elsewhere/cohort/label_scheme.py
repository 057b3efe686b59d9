"""What the labels of a study table are called. A task declares its scheme; nothing guesses it from the labels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LabelScheme:
    """The labels of a study table, in the order of their codes.

    Args:
        classes: The names of class 0 and class 1. Where `elsewhere.scenarios` says malignant, it means class 1.
        apart: What is tested apart from both classes and never trains, such as normal pictures; empty: nothing.
        unknown: A case whose class nobody knows; None: every case has a class.
        image: What one case of a class is called in messages.
        both_needed: Every part of a split must hold both classes, or the split is not made. False where another task
            of the same cases needs no class: the task that needs both says so itself.

    Example:
        >>> LabelScheme(classes=("calm", "arrhythmia"), unknown="unread", image="recording").labels
        ('calm', 'arrhythmia', '', 'unread')
    """

    classes: tuple[str, str]
    apart: str = ""
    unknown: str | None = None
    image: str = "image"
    both_needed: bool = True

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label by its code: class 0, class 1, what is tested apart, and a class that is not known."""
        return (*self.classes, self.apart, *(() if self.unknown is None else (self.unknown,)))

    @property
    def names(self) -> tuple[str, ...]:
        """The labels that a table may hold."""
        return tuple(label for label in self.labels if label)


LESIONS = LabelScheme(classes=("benign", "malignant"), apart="normal", image="lesion image")
"""Lesions of the task classification; normal pictures are tested apart (US-01)."""
RESPONSES = LabelScheme(classes=("no pCR", "pCR"), unknown="unknown", image="exam", both_needed=False)
"""Outcomes of a therapy, of the task response (MRI-05). A patient without an outcome is still segmented, so that a
part may lack a class."""
UNLABELLED = LabelScheme(classes=("negative", "positive"), unknown="unlabelled", both_needed=False)
"""For studies whose tasks have no classes: every case is unlabelled."""
