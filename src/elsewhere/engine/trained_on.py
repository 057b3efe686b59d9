"""Records which patients trained a saved model, without their names.

The record is enough to refuse these patients as tested ones. Names travel as hashes keyed by the training:
another hospital can ask whether a patient of its own is among them, and cannot read the list. This guards
against reading, not against somebody who has a list of ids to try.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elsewhere.engine.training import Training, Work
from elsewhere.errors import UserError

TOLD = ("patients", "ids", "also", "pixels")
"""The parts that a record must have, so that a tested patient can be compared with those who trained."""


@dataclass(frozen=True, kw_only=True)
class Patient:
    """The names of a patient.

    Args:
        name: 'DATASET/id'.
        also: The patient's id in another dataset, where the cohort gives it; '' where it does not.

    Example:
        >>> Patient(name="BUSI/17").id, [one.name for one in Patient(name="UCLM/UCLM_9").spelt()]
        ('17', ['UCLM/UCLM_9', 'UCLM/9'])
    """

    name: str
    also: str = ""

    @property
    def id(self) -> str:
        """The id without the dataset."""
        return self.name.partition("/")[2] or self.name

    def spelt(self) -> tuple[Patient, ...]:
        """List the spellings of the name.

        Where two datasets of a study share ids, the study puts the dataset in front of each id; the dataset
        itself does not.

        Returns:
            This patient, and where the id begins with the dataset, the patient with the dataset's own id.
        """
        dataset, _, own = self.name.partition("/")
        if not own.startswith(f"{dataset}_"):
            return (self,)
        return self, Patient(name=f"{dataset}/{own.removeprefix(f'{dataset}_')}", also=self.also)


def training_record(unit: Training, work: Work) -> dict[str, Any]:
    """Record who trained the weights of a training, with every name of a patient hashed.

    Args:
        unit: The training; patients and pixels of its training and validation parts are recorded.
        work: The cases that it names, and in `about` what is known of them.

    Returns:
        'patients', 'ids' and 'also' (sorted hashes, see `hashed`), 'pixels' (sorted digests), 'clinical'
        (columns), counts ('train', 'validation', 'n_patients', and 'datasets' by name), and where the cases
        come from ('study', 'cohorts').
    """
    cases = work.cases
    names = (*unit.train, *unit.validation)
    rows = cases.rows(names)
    told, pixels = work.about.get("patients", {}), work.about.get("pixels", {})
    patients = [
        Patient(name=told[name][0], also=told[name][1])
        if name in told
        else Patient(name=cases.group[row] if cases.group else name)
        for name, row in zip(names, rows, strict=True)
    ]
    spelt = [one for patient in patients for one in patient.spelt()]
    datasets = [cases.dataset[row] for row in rows]
    sources = {name.partition("/")[0] for name in names}
    return {
        "study": str(work.about.get("study", "")),
        "cohorts": {
            name: told_hash for name, told_hash in work.about.get("cohorts", {}).items() if name in sources
        },
        "datasets": {name: datasets.count(name) for name in dict.fromkeys(datasets)},
        "train": len(unit.train),
        "validation": len(unit.validation),
        "n_patients": len({patient.name for patient in patients}),
        "clinical": list(cases.clinical),
        "patients": _hashes(unit.key, (patient.name for patient in spelt)),
        "ids": _hashes(unit.key, (patient.id for patient in spelt)),
        "also": _hashes(unit.key, (patient.also for patient in patients if patient.also)),
        "pixels": sorted(
            {pixels.get(name) or cases.digest[row] for name, row in zip(names, rows, strict=True)} - {""}
        ),
    }


def check_apart(
    unit: Training, record: Mapping[str, Any], patients: Mapping[str, Patient], digests: Mapping[str, str]
) -> None:
    """Refuse to test a model on cases of patients who trained or validated it (US-11).

    A patient is recognised by the name in the same dataset, or by the id that one dataset gives for the
    other; a picture or volume by its digest, whatever its name is.

    Args:
        unit: The training that gave the model's weights.
        record: Who trained them, from `training_record`.
        patients: The patient of each tested case, by the name of the case.
        digests: The digest of each tested case's pixels, by the name of the case; cases may be missing.

    Raises:
        UserError: A tested case belongs to the training or validation part.
    """
    known = {part: set(record[part]) for part in TOLD}

    def is_of(name: str, *parts: str) -> bool:
        return bool(name) and any(hashed(unit.key, name) in known[part] for part in parts)

    by_name = [
        case
        for case, patient in patients.items()
        if is_of(patient.name, "patients") or is_of(patient.also, "ids", "also") or is_of(patient.id, "also")
    ]
    by_pixels = [case for case in patients if digests.get(case) and digests[case] in known["pixels"]]
    both = list(dict.fromkeys([*by_name, *by_pixels]))
    if both:
        how = "patient" if both[0] in by_name else "picture or volume, under another name,"
        raise UserError(
            f"'{both[0]}' cannot be tested: its {how} is in this model's training data ({_count(both, patients)})",
            where=f"unit {unit.name or unit.key}",
            fix="Take them out of the cohort, or choose others: --where dataset=NAME.",
        )


def _count(cases: Sequence[str], patients: Mapping[str, Patient]) -> str:
    return f"{len(cases)} of {len(patients)} cases"


def hashed(key: str, name: str) -> str:
    """Hash a patient's name with the key of a training; upper and lower case are the same.

    Args:
        key: The training's key: the same patient has another hash in each training.
        name: The name or id; spaces around it do not count.

    Returns:
        32 hexadecimal digits.

    Example:
        >>> hashed("key", "BUSI/17 ") == hashed("key", "busi/17"), len(hashed("key", "BUSI/17"))
        (True, 32)
    """
    return hashlib.sha256(f"{key}\0{name.strip().casefold()}".encode()).hexdigest()[:32]


def _hashes(key: str, names: Iterable[str]) -> list[str]:
    return sorted({hashed(key, name) for name in names})
