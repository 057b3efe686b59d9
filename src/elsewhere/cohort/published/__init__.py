"""What the publishers say is in their datasets, for the audit (US-04). Each number has its source."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class PublishedSet:
    """What the publisher of a dataset says is in it.

    Args:
        name: The name of the dataset.
        source: Where the numbers stand.
        patients: How many patients it has; None: the set publishes no patient ids.
        cases: How many images, exams or slides it has.
        one_case_each: Whether each patient has one case by design.
        lesions: How many cases are labelled benign or malignant; None: not published or not asked.
        normals: How many cases are labelled normal.
        note: What others print of the set, and why it differs.
    """

    name: str
    source: str
    patients: int | None = None
    cases: int | None = None
    one_case_each: bool = False
    lesions: int | None = None
    normals: int | None = None
    note: str = ""


_MAMA = "MAMA-MIA challenge paper, table 1"
_SETS = (
    PublishedSet(name="NACT", patients=64, cases=64, one_case_each=True, source=_MAMA),
    PublishedSet(name="ISPY1", patients=171, cases=171, one_case_each=True, source=_MAMA),
    PublishedSet(name="ISPY2", patients=980, cases=980, one_case_each=True, source=_MAMA),
    PublishedSet(name="DUKE", patients=291, cases=291, one_case_each=True, source=_MAMA),
    PublishedSet(name="MAMA-MIA", patients=1506, cases=1506, one_case_each=True, source=_MAMA),
    PublishedSet(name="GUM", patients=30, cases=30, one_case_each=True, source=_MAMA),
    PublishedSet(name="KAU", patients=232, cases=232, one_case_each=True, source=_MAMA),
    PublishedSet(name="HCB", patients=312, cases=312, one_case_each=True, source=_MAMA),
    PublishedSet(
        name="BCS-DBT", patients=4362, cases=19148, source="the publisher's training labels table, version 2"
    ),
    PublishedSet(
        name="CAMELYON17", patients=100, cases=500, source="the publisher's stages table of the training part"
    ),
    PublishedSet(
        name="CAMELYON16", patients=None, cases=399, source="the README of the published set, one slide each"
    ),
    PublishedSet(name="PCam", patients=None, cases=327680, source="the publisher's README"),
    PublishedSet(
        name="BUSI",
        patients=None,
        cases=780,
        lesions=647,
        normals=133,
        source="the publisher's folders",
        note="the ultrasound study counts 780 patients, one per image",
    ),
    PublishedSet(
        name="BUS-BRA",
        patients=1064,
        cases=1875,
        lesions=1875,
        normals=0,
        source="Gomez-Flores 2024, and column Case of bus_data.csv",
        note="the ultrasound study counts 1875 patients, one per image",
    ),
    PublishedSet(
        name="BrEaST",
        patients=256,
        cases=256,
        one_case_each=True,
        lesions=252,
        normals=4,
        source="Pawlowska 2024, and the clinical table",
        note="the ultrasound study prints 266 lesion images, the number of masks",
    ),
    PublishedSet(
        name="BUS-UCLM",
        patients=38,
        cases=683,
        lesions=264,
        normals=419,
        source="Vallez 2025",
    ),
)


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


_BY_KEY = {_key(entry.name): entry for entry in _SETS}
_DCEDL = "the publisher's table BreastDCEDL_metadata.csv"
_BY_READER = {
    "breast-dcedl": {
        _key(name): PublishedSet(
            name=name, patients=patients, cases=patients, one_case_each=True, source=_DCEDL
        )
        for name, patients in (("DUKE", 916), ("ISPY1", 172), ("ISPY2", 982))
    }
}
"""Datasets that have the name of another set's collection and hold other patients of it."""


_SPLITS = {_key("BCS-DBT"): {"train": (4362, 19148), "validation": (280, 1163), "test": (418, 1721)}}
"""Patients and cases of each part of a set that is published in parts."""


def published(dataset: str, reader: str = "", *, splits: Collection[str] = ()) -> PublishedSet | None:
    """Look up what is published of a dataset.

    Args:
        dataset: Its name; case and punctuation do not count.
        reader: The reader that made the table: some sets share the name of a collection and hold other
            patients of it.
        splits: The published parts that the cohort holds, such as train and test; empty: not known.

    Returns:
        What the publisher says, of these parts together where the set is published in parts; None where the
        name is of no known set.

    Example:
        >>> known = published("bus-bra")
        >>> known.patients, known.cases
        (1064, 1875)
        >>> published("BCS-DBT", splits=["train", "test"]).patients
        4780
    """
    known = _BY_READER.get(reader, _BY_KEY).get(_key(dataset))
    parts = _SPLITS.get(_key(dataset), {})
    if known is None or not splits or not set(splits) <= set(parts):
        return known
    patients, cases = (sum(parts[name][at] for name in set(splits)) for at in (0, 1))
    return replace(
        known, patients=patients, cases=cases, source=f"the publisher's labels tables: {', '.join(splits)}"
    )
