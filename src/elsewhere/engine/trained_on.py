"""Who a kept model was trained on: enough to refuse them as tested patients, and no name of anybody.

Names travel as hashes keyed by the unit: another hospital can ask whether a patient of its own is among them, and
cannot read the list. That guards against a look, not against somebody who has a list of ids to try.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elsewhere.engine.training import Training, Work
from elsewhere.errors import UserError

TOLD = ("patients", "ids", "also", "pixels")
"""What a record must tell, so that a tested patient can be kept apart from those who trained."""


@dataclass(frozen=True, kw_only=True)
class Patient:
    """What a patient is called: 'DATASET/id', and her id in another set where its cohort says so."""

    name: str
    also: str = ""

    @property
    def id(self) -> str:
        return self.name.partition("/")[2] or self.name

    def spelt(self) -> tuple[Patient, ...]:
        """Also as her own set spells her: where two sets of a study share ids, theirs have the dataset in front."""
        dataset, _, own = self.name.partition("/")
        if not own.startswith(f"{dataset}_"):
            return (self,)
        return self, Patient(name=f"{dataset}/{own.removeprefix(f'{dataset}_')}", also=self.also)


def training_record(unit: Training, work: Work) -> dict[str, Any]:
    """Of a unit whose weights are kept: the patients and pictures or volumes of its training and validation
    parts, hashed, and where they come from."""
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
    """A case is refused whose patient trained or validated the model (by name in the same dataset, or by the id
    that one set tells of the other), or whose picture or volume did, under whatever name (US-11)."""
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
            f"'{both[0]}' cannot be tested: its {how} trained this model ({_count(both, patients)})",
            where=f"unit {unit.name or unit.key}",
            fix="Take them out of the cohort, or choose others: --where dataset=NAME.",
        )


def _count(cases: Sequence[str], patients: Mapping[str, Patient]) -> str:
    return f"{len(cases)} of {len(patients)} cases"


def hashed(key: str, name: str) -> str:
    return hashlib.sha256(f"{key}\0{name.strip().casefold()}".encode()).hexdigest()[:32]


def _hashes(key: str, names: Iterable[str]) -> list[str]:
    return sorted({hashed(key, name) for name in names})
