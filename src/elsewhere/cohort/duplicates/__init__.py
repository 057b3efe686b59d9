"""Near-duplicate pictures within and across datasets (US-30).

A picture that is in both parts of a split makes a test too easy; one that is in two classes makes it wrong.
Public sets hold both. `find_duplicates` lists the pairs, with what they cross (patients, labels, datasets);
`merge_groups` names the groups that a split may not divide. How a pair is judged is described in `screening`
(the level of chance) and `matching` (the score).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort.duplicates.overviews import SlideOverviews
from elsewhere.cohort.duplicates.pictures import Progress, Thumbnails, read_thumbnails
from elsewhere.cohort.duplicates.screening import Candidates, Level, candidates, level_of, make_textures
from elsewhere.cohort.table import Cohort
from elsewhere.errors import UserError, name_rows

PAIR_COLUMNS = (
    "dataset_a", "case_a", "patient_a", "label_a", "dataset_b", "case_b", "patient_b", "label_b",
    "kind", "relation", "distance", "threshold", "same_patient", "same_label",
)  # fmt: skip
KINDS = ("exact", "near", "near, mirrored")
RELATIONS = ("within a patient", "across patients", "across datasets")
TELLS_NOTHING = 0.9
MOST_LISTED = 20


@dataclass(frozen=True, kw_only=True)
class Duplicates:
    """Pairs of near-duplicates, the groups that no split may divide, and how the pairs were judged.

    Args:
        pairs: One row per pair with the columns PAIR_COLUMNS, the most alike first. `distance` is 1 - score
            and at most the `threshold` of the pair, which is that of the two datasets, and stricter where
            little of the pictures is visible.
        groups: One row per picture. `duplicates` names the set of copies that it belongs to (empty: none),
            `group` is the patient, merged with every patient that shares a picture.
        calibration: One row per pair of datasets: the number of pictures and decoys, the threshold, and what
            it was set by.
        files: The picture file of each case ('DATASET/case_id').
        warnings: What a reader of the pairs must know, such as pictures that were not compared.
        overviews: How whole slides were made pictures; None where files of pictures were compared.
    """

    pairs: pd.DataFrame
    groups: pd.DataFrame
    calibration: pd.DataFrame
    files: Mapping[str, Path]
    warnings: tuple[str, ...] = ()
    overviews: SlideOverviews | None = None

    @property
    def patient_pairs(self) -> list[tuple[str, str]]:
        """Patients ('DATASET/patient_id') that share a picture."""
        across = self.pairs[~self.pairs["same_patient"].astype(bool)]
        one = across["dataset_a"] + "/" + across["patient_a"]
        two = across["dataset_b"] + "/" + across["patient_b"]
        return sorted(set(zip(one, two, strict=True)))

    def counts(self) -> dict[str, Any]:
        """Count the pairs by kind, relation and datasets, and the pictures that are in any pair.

        Returns:
            Numbers by name; `by_datasets` is a list with one entry per datasets, relation and kind.
        """
        pairs = self.pairs
        keys = ["dataset_a", "dataset_b", "relation", "kind"]
        by = [
            {
                "datasets": " and ".join(dict.fromkeys((row["dataset_a"], row["dataset_b"]))),
                "relation": row["relation"],
                "kind": row["kind"],
                "pairs": int(row["pairs"]),
            }
            for row in pairs.groupby(keys, sort=True).size().rename("pairs").reset_index().to_dict("records")
        ]
        return {
            "pictures": len(self.groups),
            "pairs": len(pairs),
            "pictures_in_pairs": int((self.groups["duplicates"] != "").sum()),
            "pairs_across_patients": int((~pairs["same_patient"].astype(bool)).sum()),
            "pairs_across_labels": int((pairs["same_label"] == "no").sum()),
            "pairs_across_labels_and_patients": int(
                ((pairs["same_label"] == "no") & ~pairs["same_patient"].astype(bool)).sum()
            ),
            "pairs_across_datasets": int((pairs["dataset_a"] != pairs["dataset_b"]).sum()),
            "by_kind": {kind: int((pairs["kind"] == kind).sum()) for kind in KINDS},
            "by_datasets": by,
        }


def find_duplicates(
    cohorts: Sequence[Cohort],
    *,
    keep_together: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Duplicates:
    """Find the pairs of pictures that show the same image, or nearly, within and across datasets (US-30).

    Each cohort needs a column `image`, or `slide`: of whole slides the outline of the tissue and what is inside of it
    are compared, in overviews. Cases without a picture are left out, with a warning.

    Args:
        cohorts: The cohorts to search; no case may occur in two of them.
        keep_together: Whether patients that share a picture are merged into one `group`; False: the group of
            a case is its patient alone.
        threads: The number of threads that decode pictures; None: one per processor, at most 32.
        progress: Called with what is being counted, how many are done and how many there are; None: no
            reports.

    Returns:
        The pairs, the groups and the calibration.

    Raises:
        UserError: No cohort was given, one has no column `image` or `slide`, some have pictures and some slides, a
            case occurs in two cohorts, there are fewer than two pictures, or a picture cannot be read.
    """
    table, warnings = _joined(cohorts)
    overviews = _overviews(table)
    thumbs = read_thumbnails(list(table["path"]), threads=threads, progress=progress, decode=overviews)
    codes, names = pd.factorize(table["dataset"], sort=True)
    views = np.asarray(codes)[thumbs.of]
    tex = make_textures(thumbs.grey, views)
    patients = np.asarray(pd.factorize(table["patient"])[0])[thumbs.of]
    found: dict[tuple[int, int], Candidates] = {}
    blocks = list(combinations_with_replacement(range(len(names)), 2))
    for done, (a, b) in enumerate(blocks, start=1):
        first, second = np.flatnonzero(views == a), np.flatnonzero(views == b)
        found[a, b] = candidates(tex, first, second, patients)
        if progress is not None:
            progress("pairs of datasets", done, len(blocks))
    levels = _levels(found)
    pairs = _pairs(table, thumbs, found, levels)
    for (a, b), level in levels.items():
        where = names[a] if a == b else f"{names[a]} and {names[b]}"
        if level.score > TELLS_NOTHING:
            warnings.append(
                f"{where}: unrelated pictures are so similar (score {level.score:.2f}) that only exact copies count"
            )
        if found[a, b].left_out:
            warnings.append(
                f"{where}: {found[a, b].left_out} further candidate pairs were not examined: almost all pictures "
                "are similar"
            )
    grades = {n: g for cohort in cohorts for n, g in cohort.id_grades.items()}
    for name in names:
        if name in grades and grades[name].grade == "C" and (pairs["dataset_a"] == name).any():
            warnings.append(
                f"{name} has no patient ids (grade C): its pairs across patients may be of one patient"
            )
    return Duplicates(
        pairs=pairs,
        groups=_groups(table, pairs, keep_together=keep_together),
        calibration=_calibration(names, codes, levels),
        files=dict(zip(table["case"], table["path"], strict=True)),
        warnings=tuple(warnings),
        overviews=overviews,
    )


def duplicate_groups(pairs: pd.DataFrame) -> dict[str, str]:
    """Name the set of copies that each case in a pair belongs to.

    Args:
        pairs: One row per pair, with `dataset_a`, `case_a`, `dataset_b` and `case_b`.

    Returns:
        The name of the set (its first case) by case ('DATASET/case_id'), for the cases that are in a pair.

    Example:
        >>> row = {"dataset_a": "X", "case_a": "1", "dataset_b": "Y", "case_b": "7"}
        >>> duplicate_groups(pd.DataFrame([row]))
        {'X/1': 'X/1', 'Y/7': 'X/1'}
    """
    one = pairs["dataset_a"] + "/" + pairs["case_a"]
    two = pairs["dataset_b"] + "/" + pairs["case_b"]
    return _components(zip(one, two, strict=True))


def merge_groups(patients: Sequence[str], pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Name the group of each patient that no split may divide.

    Patients that `pairs` join, directly or through others, are one group, named after the first of them in
    alphabetical order. Neither the order of the rows nor that of the pairs matters.

    Args:
        patients: The patient of each row.
        pairs: Pairs of patients that share a picture.

    Returns:
        The group of each row: the patient itself where no pair joins it to another.

    Example:
        >>> merge_groups(["p3", "p2", "p1"], [("p3", "p1")])
        ['p1', 'p2', 'p1']
    """
    merged = _components(pairs)
    return [merged.get(patient, patient) for patient in patients]


def _components(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Connected components by union-find; a component is named after its smallest member."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        parent.setdefault(name, name)
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for one, two in pairs:
        low, high = sorted((root(one), root(two)))
        parent[high] = low
    return {name: root(name) for name in sorted(parent)}


def _joined(cohorts: Sequence[Cohort]) -> tuple[pd.DataFrame, list[str]]:
    if not cohorts:
        raise UserError("no cohort was given")
    parts, warnings = [], []
    for cohort in cohorts:
        cases = cohort.cases
        where = ", ".join(sorted(cases["dataset"].unique()))
        column = next((name for name in ("image", "slide") if name in cases.columns), None)
        if column is None:
            raise UserError(
                "the cohort has no column 'image' and no column 'slide'",
                where=where,
                fix="Name it: elsewhere cohort read csv FILE --map image=COL --out DIR.",
            )
        has = cases[column].notna().to_numpy(dtype=bool)
        if not has.all():
            warnings.append(f"{where}: {int((~has).sum())} cases have no picture and were not compared")
        cases = cases[has]
        labels = next((name for name in ("label", "stage") if name in cases.columns), None)
        parts.append(
            pd.DataFrame(
                {
                    "dataset": cases["dataset"].astype("str"),
                    "case_id": cases["case_id"].astype("str"),
                    "patient_id": cases["patient_id"].astype("str"),
                    "label": cases[labels].astype("str").fillna("") if labels else "",
                    "path": [cohort.file(str(name)) for name in cases[column]],
                    "slide": column == "slide",
                    "mpp": pd.to_numeric(cases["mpp"], errors="coerce") if "mpp" in cases.columns else np.nan,
                }
            )
        )
    table = pd.concat(parts, ignore_index=True)
    table["case"] = table["dataset"] + "/" + table["case_id"]
    table["patient"] = table["dataset"] + "/" + table["patient_id"]
    twice = table["case"].duplicated()
    if twice.any():
        raise UserError(
            f"{int(twice.sum())} cases are in two of the cohorts: {name_rows(list(table['case'][twice]))}",
            fix="Give each cohort once, with a dataset name of its own: `elsewhere cohort read ... --set dataset=NAME`.",
        )
    if len(table) < 2:
        raise UserError("there are no two pictures to compare", where="the column 'image' or 'slide'")
    if table["slide"].any() and not table["slide"].all():
        raise UserError(
            "some of the cohorts have pictures and some whole slides",
            fix="Compare cohorts of one kind with each other.",
        )
    return table, warnings


def _overviews(table: pd.DataFrame) -> SlideOverviews | None:
    if not table["slide"].all():
        return None
    stated = table["mpp"].notna()
    return SlideOverviews(
        mpp={
            path: float(value)
            for path, value in zip(table["path"][stated], table["mpp"][stated], strict=True)
        }
    )


def _levels(found: Mapping[tuple[int, int], Candidates]) -> dict[tuple[int, int], Level]:
    pooled = np.concatenate([one.null(mirrored=True) for one in found.values()])
    return {block: level_of(one, pooled) for block, one in found.items()}


def _pairs(
    table: pd.DataFrame,
    thumbs: Thumbnails,
    found: Mapping[tuple[int, int], Candidates],
    levels: Mapping[tuple[int, int], Level],
) -> pd.DataFrame:
    datasets = np.asarray(pd.factorize(table["dataset"], sort=True)[0])
    best: dict[tuple[int, int], tuple[float, str, float]] = {}
    for members in thumbs.same_pixels():
        all_of_them = len(members) <= MOST_LISTED
        listed = combinations(members, 2) if all_of_them else pairwise(members)
        for one, two in listed:
            low, high = sorted((int(datasets[one]), int(datasets[two])))
            best[min(one, two), max(one, two)] = (0.0, "exact", 1.0 - levels[low, high].score)
    for block, some in found.items():
        needed = levels[block].score / np.maximum(some.weight, 1e-9)
        for at in np.flatnonzero(some.score >= needed):
            one, two = thumbs.of[some.first[at]], thumbs.of[some.second[at]]
            key = (int(min(one, two)), int(max(one, two)))
            if one == two:
                continue
            entry = (
                float(max(0.0, 1.0 - some.score[at])),
                "near, mirrored" if some.mirrored[at] else "near",
                float(1.0 - needed[at]),
            )
            if key not in best or (best[key][1] != "exact" and entry < best[key]):
                best[key] = entry
    used = sorted({at for pair in best for at in pair})
    case = dict(zip(used, table.iloc[used].to_dict("records"), strict=True))
    rows = [_row(case[one], case[two], *entry) for (one, two), entry in best.items()]
    pairs = pd.DataFrame(rows, columns=list(PAIR_COLUMNS))
    order = ["distance", "dataset_a", "dataset_b", "case_a", "case_b"]
    return pairs.sort_values(order, kind="stable").reset_index(drop=True)


def _row(
    one: Mapping[Any, Any], two: Mapping[Any, Any], distance: float, kind: str, threshold: float
) -> dict[str, Any]:
    a, b = sorted((one, two), key=lambda row: (row["dataset"], _natural(row["case_id"])))
    same_patient = bool(a["patient"] == b["patient"])
    known = bool(a["label"]) and bool(b["label"])
    same_label = ("yes" if a["label"] == b["label"] else "no") if known else "unknown"
    relation = RELATIONS[0 if same_patient else 1 if a["dataset"] == b["dataset"] else 2]
    named = {
        f"{name}_{side}": row[column]
        for side, row in (("a", a), ("b", b))
        for name, column in (
            ("dataset", "dataset"),
            ("case", "case_id"),
            ("patient", "patient_id"),
            ("label", "label"),
        )
    }
    return named | {
        "kind": kind,
        "relation": relation + (" and labels" if same_label == "no" and not same_patient else "")
        + (", across labels" if same_label == "no" and same_patient else ""),
        "distance": round(distance, 4),
        "threshold": round(threshold, 4),
        "same_patient": same_patient,
        "same_label": same_label,
    }  # fmt: skip


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """'benign (9)' before 'benign (10)'."""
    parts, digits = [], ""
    for sign in str(name) + "\0":
        if sign.isdigit():
            digits += sign
            continue
        if digits:
            parts.append((int(digits), ""))
            digits = ""
        parts.append((-1, sign))
    return tuple(parts)


def _groups(table: pd.DataFrame, pairs: pd.DataFrame, *, keep_together: bool) -> pd.DataFrame:
    across = pairs[~pairs["same_patient"].astype(bool)]
    joined = zip(
        across["dataset_a"] + "/" + across["patient_a"],
        across["dataset_b"] + "/" + across["patient_b"],
        strict=True,
    )
    copies = duplicate_groups(pairs)
    return pd.DataFrame(
        {
            "dataset": table["dataset"],
            "case_id": table["case_id"],
            "case": table["case"],
            "patient": table["patient"],
            "duplicates": [copies.get(case, "") for case in table["case"]],
            "group": merge_groups(list(table["patient"]), joined if keep_together else ()),
        }
    )


def _calibration(names: pd.Index, codes: np.ndarray, levels: Mapping[tuple[int, int], Level]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "dataset_a": str(names[a]),
                "dataset_b": str(names[b]),
                "pictures_a": int((codes == a).sum()),
                "pictures_b": int((codes == b).sum()),
                "decoys": level.decoys,
                "decoy_distance": None if level.decoys == 0 else round(1.0 - level.median, 4),
                "threshold": round(1.0 - level.score, 4),
                "calibrated_by": level.how,
            }
            for (a, b), level in levels.items()
        ]
    )
