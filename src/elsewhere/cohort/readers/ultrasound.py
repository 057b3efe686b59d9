"""From the scans that a reader found to a cohort: labels, ids, boxes, and what is unusual about them.

The four ultrasound readers know where names are in their set; everything that can be wrong with pictures,
masks, labels and ids is checked here, in the same way for all of them. Each defect is counted and, where a
reader of the numbers must know it, reported in a warning.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.cohort.grades import grade_dataset
from elsewhere.cohort.readers.pictures import (
    Box,
    MaskSeen,
    PictureSeen,
    Progress,
    is_phantom,
    look_at_masks,
    look_at_pictures,
    union,
)
from elsewhere.cohort.readers.scans import (
    Ids,
    Notes,
    Scan,
    check_ids_option,
    keep_known_labels,
    one_row_a_picture,
    require_patients,
)
from elsewhere.cohort.table import Cohort, IdGrade, KnownOfCohort
from elsewhere.errors import UserError, name_rows

FULL = 0.9
"""A mask that covers more than this share of its picture is probably inverted."""


@dataclass(frozen=True, kw_only=True)
class PublishedSet:
    """A published set of ultrasound pictures.

    Attributes:
        dataset: Its name.
        reader: The name of its reader.
        id_column: The column that names patients, as an error calls it.
        publishes_ids: Whether patients are named at all.
        colours: What the colours of the masks mean, where they mean a label.
    """

    dataset: str
    reader: str
    id_column: str = "patient_id"
    publishes_ids: bool = True
    colours: Mapping[str, str] | None = None


def ultrasound_cohort(
    scans: Sequence[Scan],
    *,
    published: PublishedSet,
    root: Path,
    notes: Notes,
    where: str,
    ids: str = "patient",
    progress: Progress | None = None,
) -> Cohort:
    """Make the cohort of these scans.

    Args:
        scans: The pictures with what the tables say of them.
        published: The data set as it was published.
        root: Its folder.
        notes: Collects warnings and counts.
        where: The file that an error names.
        ids: `patient` or `image`.
        progress: Called to report how many pictures were read.

    Returns:
        The cohort.

    Raises:
        UserError: No picture has a known label, or patients are missing.
    """
    dataset, publishes_ids = published.dataset, published.publishes_ids
    wanted = check_ids_option(ids)
    one_row_a_picture(scans, where=where)
    kept = keep_known_labels(scans, notes)
    if not kept:
        raise UserError("no picture has a label that is benign, malignant or normal", where=where)
    if wanted == "patient" and publishes_ids:
        require_patients(kept, column=published.id_column, where=where)
    pictures = look_at_pictures([scan.image for scan in kept], progress=progress)
    files = [path for scan in kept for path in (*scan.masks, *scan.others)]
    masks = dict(zip(files, look_at_masks(files, progress=progress), strict=True))
    boxes = _boxes(kept, pictures, masks, notes)
    boxes = _against_table(kept, pictures, boxes, notes)
    _label_notes(kept, masks, boxes, notes, published.colours)
    _picture_notes(kept, pictures, notes)
    frame = _frame(kept, pictures, boxes, root, dataset)
    by_image = wanted == "image" or not publishes_ids
    if by_image:
        frame["patient_id"] = frame["case_id"]
        if publishes_ids:
            frame["published_patient_id"] = [scan.patient for scan in kept]
    synthetic = is_phantom(root)
    grade = _grade(frame, dataset, kept, wanted, publishes_ids=publishes_ids, synthetic=synthetic)
    shared = _same_pixels(frame, pictures, notes)
    if grade.grade == "A" and shared:
        pairs = sorted({" and ".join(sorted(names)) for names in shared})
        grade = IdGrade(
            grade="B",
            why=f"{grade.why}; but the same pictures stand under two ids ({name_rows(pairs)}): "
            "ids finer than patients",
        )
    if grade.grade == "C":
        notes.warnings.insert(0, f"{grade.why}; intervals are too narrow if patients repeat")
    _class_counts(frame, kept, notes, publishes_ids=publishes_ids)
    notes.counts["ids"] = "image" if by_image else "patient"
    notes.counts["rows_left_out"] = dict(notes.left_out)
    return Cohort.from_frame(
        frame,
        reader=published.reader,
        root=root,
        warnings=tuple(notes.warnings),
        where=where,
        synthetic=synthetic,
        known=KnownOfCohort(id_grades={dataset: grade}, counts=notes.counts),
    )


def _boxes(
    scans: Sequence[Scan], pictures: Sequence[PictureSeen], masks: Mapping[Path, MaskSeen], notes: Notes
) -> list[Box | None]:
    """The union of the lesion masks that fit their picture, in half-open pixels (US-01)."""
    boxes: list[Box | None] = []
    other_size: list[str] = []
    lesions_hit: list[str] = []
    moved: list[str] = []
    odd: dict[str, list[str]] = defaultdict(list)
    for scan, picture in zip(scans, pictures, strict=True):
        seen = [(path, masks[path]) for path in scan.masks]
        fit = [(path, mask) for path, mask in seen if mask.size == picture.size]
        for path, mask in [*seen, *((path, masks[path]) for path in scan.others)]:
            if mask.size != picture.size:
                other_size.append(path.stem)
            odd["empty_masks"] += [path.stem] if mask.box is None else []
            odd["masks_with_several_parts"] += [path.stem] if mask.parts > 1 else []
            odd["masks_with_specks"] += [path.stem] if mask.specks else []
            odd["masks_with_soft_edges"] += [path.stem] if mask.greys else []
            odd["masks_that_fill_the_picture"] += (
                [path.stem] if mask.pixels > FULL * mask.width * mask.height else []
            )
        if len(fit) < len(seen) and any(mask.box and mask.size != picture.size for _, mask in seen):
            lesions_hit.append(scan.case_id)
        box = union(mask.box for _, mask in fit if mask.box)
        if box != union(mask.core for _, mask in fit if mask.core):
            moved.append(scan.case_id)
        boxes.append(box)
    notes.counts["masks"] = sum(len(scan.masks) for scan in scans)
    notes.counts["other_masks"] = sum(len(scan.others) for scan in scans)
    notes.count("several_masks", [scan.case_id for scan in scans if len(scan.masks) > 1])
    notes.count("pictures_with_other_masks", [scan.case_id for scan in scans if scan.others])
    for name in ("empty_masks", "masks_with_several_parts"):
        notes.count(name, odd[name])
    notes.count(
        "masks_with_specks",
        odd["masks_with_specks"],
        f"masks with stray specks (they move {len(moved)} boxes; the boxes hold them)",
    )
    notes.count("boxes_moved_by_specks", moved)
    notes.count(
        "masks_with_soft_edges",
        odd["masks_with_soft_edges"],
        "masks that are not black and white; all that is not black counts",
    )
    notes.count(
        "masks_that_fill_the_picture",
        odd["masks_that_fill_the_picture"],
        f"masks that cover more than {FULL:.0%} of their picture: inverted?",
    )
    notes.count(
        "masks_of_other_size",
        other_size,
        f"masks of another size than their picture give no box ({len(lesions_hit)} of them show a lesion)",
    )
    notes.count("lesion_masks_of_other_size", lesions_hit)
    return boxes


def _label_notes(
    scans: Sequence[Scan],
    masks: Mapping[Path, MaskSeen],
    boxes: list[Box | None],
    notes: Notes,
    colours: Mapping[str, str] | None,
) -> None:
    """Compare masks with labels. The label has precedence; a normal keeps no box (US-18)."""
    bare: dict[str, list[int]] = {"lesions_without_mask": [], "lesions_with_empty_mask": []}
    normal_without: list[str] = []
    normal_with: list[str] = []
    against: list[str] = []
    strange: list[str] = []
    for at, scan in enumerate(scans):
        seen = [masks[path] for path in scan.masks]
        shown = any(mask.box for mask in seen)
        if scan.label == "normal":
            if not seen:
                normal_without.append(scan.case_id)
            if shown:
                normal_with.append(scan.case_id)
                boxes[at] = None
        elif not shown:
            bare["lesions_with_empty_mask" if seen else "lesions_without_mask"].append(at)
        if colours is not None and shown:
            names = {name for mask in seen for name in mask.colours}
            if any(not mask.colours for mask in seen if mask.box):
                names.add("white")
            if names - set(colours):
                strange.append(f"{scan.case_id}: {'+'.join(sorted(names - set(colours)))}")
            if {colours[name] for name in names if name in colours} - {scan.label}:
                against.append(scan.case_id)
    for name, what in (
        ("lesions_without_mask", "lesion pictures without a mask"),
        ("lesions_with_empty_mask", "lesion pictures whose mask is empty"),
    ):
        for box, how in ((False, "without a box"), (True, "with the table's box")):
            ids = [scans[at].case_id for at in bare[name] if (boxes[at] is not None) == box]
            notes.count(name, ids, f"{what}, kept {how}")
    notes.count("normals_without_mask", normal_without)
    notes.count(
        "normals_with_lesion_mask",
        normal_with,
        "normal pictures whose mask shows a lesion; the label is used, without a box",
    )
    if colours is not None:
        notes.count(
            "masks_against_label",
            against,
            "pictures whose mask has the colour of another label; the table's label is used",
        )
        notes.count("masks_of_unknown_colour", strange, "masks in a colour without a meaning")


def _picture_notes(scans: Sequence[Scan], pictures: Sequence[PictureSeen], notes: Notes) -> None:
    notes.count("coloured_pictures", [s.case_id for s, p in zip(scans, pictures, strict=True) if p.coloured])
    doppler = [
        p.coloured for s, p in zip(scans, pictures, strict=True) if s.attributes.get("doppler") == "yes"
    ]
    if doppler and not any(doppler):
        notes.warnings.append(
            f"none of the {len(doppler)} pictures marked as Doppler is coloured: this copy has lost its colour"
        )
    notes.count(
        "deep_pictures",
        [s.case_id for s, p in zip(scans, pictures, strict=True) if p.deep],
        "pictures of more than 8 bits a pixel; 8 are expected",
    )
    differ = [
        scan.case_id
        for scan, picture in zip(scans, pictures, strict=True)
        if scan.table_size is not None and scan.table_size != picture.size
    ]
    notes.count(
        "sizes_differ_from_table",
        differ,
        "pictures of another size than the table says; the picture's is used",
    )


def _against_table(
    scans: Sequence[Scan], pictures: Sequence[PictureSeen], boxes: list[Box | None], notes: Notes
) -> list[Box | None]:
    """Compare the table's boxes with the masks'; where a mask gives none, the table's is used.

    Publishers count pixels from 0 or from 1, and give a width or the distance of the outermost pixels: the
    convention that most masks agree with is assumed.
    """
    if not any(scan.table_box for scan in scans):
        return boxes
    agreeing = {
        name: sum(
            1
            for scan, box in zip(scans, boxes, strict=True)
            if scan.table_box and box and read(*scan.table_box) == box
        )
        for name, read in CONVENTIONS.items()
    }
    convention = max(agreeing, key=lambda name: agreeing[name])
    read = CONVENTIONS[convention]
    differ: list[str] = []
    taken: list[str] = []
    unfit: list[str] = []
    result: list[Box | None] = []
    for scan, picture, box in zip(scans, pictures, boxes, strict=True):
        told = read(*scan.table_box) if scan.table_box and scan.label != "normal" else None
        if box is None and told is not None:
            x0, y0, x1, y1 = told
            if 0 <= x0 < x1 <= picture.width and 0 <= y0 < y1 <= picture.height:
                taken.append(scan.case_id)
                box = told
            else:
                unfit.append(scan.case_id)
        elif told is not None and told != box:
            differ.append(scan.case_id)
        result.append(box)
    notes.counts["table_boxes_convention"] = convention
    notes.count(
        "boxes_differ_from_table",
        differ,
        f"boxes of masks that differ from the table's (read as {convention}); the mask's is used",
    )
    notes.count("boxes_from_table", taken, "boxes taken from the table, since no mask gives one")
    notes.count("table_boxes_outside", unfit, "boxes of the table that do not lie in their picture")
    return result


CONVENTIONS = {
    "x and y from 0, width and height": lambda x, y, w, h: (x, y, x + w, y + h),
    "x and y from 1, width and height": lambda x, y, w, h: (x - 1, y - 1, x - 1 + w, y - 1 + h),
    "x and y from 1, distance of the outermost pixels": lambda x, y, w, h: (x - 1, y - 1, x + w, y + h),
    "x and y from 0, distance of the outermost pixels": lambda x, y, w, h: (x, y, x + w + 1, y + h + 1),
}


def _frame(
    scans: Sequence[Scan],
    pictures: Sequence[PictureSeen],
    boxes: Sequence[Box | None],
    root: Path,
    dataset: str,
) -> pd.DataFrame:
    def relative(path: Path) -> str:
        return path.relative_to(root).as_posix()

    def nth(paths: Sequence[Path], at: int) -> str | None:
        return relative(paths[at]) if at < len(paths) else None

    columns: dict[str, Any] = {
        "case_id": [scan.case_id for scan in scans],
        "patient_id": [scan.patient for scan in scans],
        "dataset": [dataset] * len(scans),
        "modality": ["ultrasound"] * len(scans),
        "label": [scan.label for scan in scans],
        "image": [relative(scan.image) for scan in scans],
        "mask": [nth(scan.masks, 0) for scan in scans],
    }
    for at in range(1, max((len(scan.masks) for scan in scans), default=0)):
        columns[f"mask_{at + 1}_path"] = [nth(scan.masks, at) for scan in scans]
    for at in range(max((len(scan.others) for scan in scans), default=0)):
        columns[f"other_mask_{at + 1}_path"] = [nth(scan.others, at) for scan in scans]
    for at, name in enumerate(("box_x0", "box_y0", "box_x1", "box_y1")):
        columns[name] = pd.array([float(box[at]) if box else None for box in boxes], dtype="float64")
    columns["width"] = [picture.width for picture in pictures]
    columns["height"] = [picture.height for picture in pictures]
    for name in dict.fromkeys(name for scan in scans for name in scan.attributes):
        columns[name] = [scan.attributes.get(name) for scan in scans]
    frame = pd.DataFrame(columns)
    for name in frame.columns:
        if frame[name].dtype == object:
            frame[name] = frame[name].astype("str")
    return frame


def _grade(
    frame: pd.DataFrame,
    dataset: str,
    scans: Sequence[Scan],
    ids: Ids,
    *,
    publishes_ids: bool,
    synthetic: bool,
) -> IdGrade:
    if not publishes_ids:
        who = "synthetic, in a layout that has" if synthetic else f"{dataset} publishes"
        return IdGrade(
            grade="C", why=f"{who} no patient ids: each of the {len(frame)} pictures counts as a patient"
        )
    if ids == "image":
        real = len({scan.patient for scan in scans if scan.patient})
        return IdGrade(
            grade="C",
            why=f"{'synthetic, ' if synthetic else ''}read with ids = image: each of the {len(frame)} pictures counts as a patient, where the "
            f"set has {real} ids",
        )
    return grade_dataset(frame, dataset, synthetic=synthetic)


def _same_pixels(frame: pd.DataFrame, pictures: Sequence[PictureSeen], notes: Notes) -> list[frozenset[str]]:
    """Find pictures with the same pixels; returns the sets of patient ids that share one.

    Near copies are searched elsewhere (US-30); equal pixels are certain, and prove that two ids are one
    patient.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for at, picture in enumerate(pictures):
        groups[picture.digest].append(at)
    same = [group for group in groups.values() if len(group) > 1]
    case, label, patient = (frame[name].tolist() for name in ("case_id", "label", "patient_id"))
    told = [" = ".join(case[at] for at in group) for group in same]
    two = [len({label[at] for at in group}) > 1 for group in same]
    notes.counts["identical_pictures"] = len(same)
    agreeing = [name for name, differ in zip(told, two, strict=True) if not differ]
    if agreeing:
        notes.warnings.append(f"pictures with the same pixels: {len(agreeing)} ({name_rows(agreeing)})")
    notes.count(
        "identical_pictures_with_two_labels",
        [name for name, differ in zip(told, two, strict=True) if differ],
        "pictures with the same pixels and different labels",
    )
    shared = [names for group in same if len(names := frozenset(patient[at] for at in group)) > 1]
    notes.counts["identical_pictures_under_two_ids"] = len(shared)
    return shared


def _class_counts(frame: pd.DataFrame, scans: Sequence[Scan], notes: Notes, *, publishes_ids: bool) -> None:
    """Rows and patients per class, and the patients with both lesion classes (US-03)."""
    notes.counts["lesion_images"] = int((frame["label"] != "normal").sum())
    notes.counts["normal_images"] = int((frame["label"] == "normal").sum())
    notes.counts["classes"] = {
        str(name): {"cases": len(rows), "patients": int(rows["patient_id"].nunique())}
        for name, rows in frame.groupby("label")
    }
    notes.counts["lesion_images_with_box"] = int(
        (frame["box_x0"].notna() & (frame["label"] != "normal")).sum()
    )
    lesions = frame[frame["label"] != "normal"]
    kinds = lesions.groupby("patient_id")["label"].nunique()
    notes.counts["mixed_label_patients"] = int((kinds > 1).sum())
    normal = set(frame.loc[frame["label"] == "normal", "patient_id"])
    notes.counts["patients_with_lesion_and_normal"] = len(normal & set(lesions["patient_id"]))
    if publishes_ids:
        notes.counts["published_ids"] = len({scan.patient for scan in scans if scan.patient})
