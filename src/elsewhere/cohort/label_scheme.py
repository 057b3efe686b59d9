"""What the labels of a study table are called. A task declares its scheme; it is not guessed from labels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LabelScheme:
    """The labels of a study table, in the order of their codes.

    Args:
        classes: The names of class 0 and class 1. In `elsewhere.scenarios`, malignant means class 1.
        apart: The label that is tested separately and never used for training, such as normal pictures;
            empty: there is none.
        unknown: The label of a case whose class is unknown; None: every case has a class.
        image: What one case of a class is called in messages.
        both_needed: Whether each part of a split must hold both classes, or the split is refused. False where
            another task of the same cases needs no class: the task that needs both checks it.

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
        """Every label by its code: class 0, class 1, what is tested separately, and the unknown class."""
        return (*self.classes, self.apart, *(() if self.unknown is None else (self.unknown,)))

    @property
    def names(self) -> tuple[str, ...]:
        """The labels that a table may hold."""
        return tuple(label for label in self.labels if label)


LESIONS = LabelScheme(classes=("benign", "malignant"), apart="normal", image="lesion image")
"""Lesions of the task classification; normal pictures are tested separately (US-01)."""
RESPONSES = LabelScheme(classes=("no pCR", "pCR"), unknown="unknown", image="exam", both_needed=False)
"""Outcomes of a therapy, for the task response (MRI-05). Patients without an outcome are still segmented, so
that a part may lack a class."""
UNLABELLED = LabelScheme(classes=("negative", "positive"), unknown="unlabelled", both_needed=False)
"""For studies whose tasks have no classes: every case is unlabelled."""
