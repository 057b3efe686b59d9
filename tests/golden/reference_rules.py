"""The scoring rules once more: plain, slow and obvious, written from the protocols' text alone.

Nothing here imports the package. Lists and loops on purpose: each function can be read beside the rule
that it states, and the tests hold the package's numbers against these.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

NAN = math.nan
SLIDE_STAGES = ("negative", "itc", "micro", "macro")
NLL_EPSILON = 2.0**-52
PATIENT_STAGES = ("pN0", "pN0(i+)", "pN1mi", "pN1", "pN2")


# Detection --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lesion:
    case: str
    x: float
    y: float
    width: float
    height: float
    slice: float
    volume_slices: float


@dataclass(frozen=True)
class Box:
    case: str
    x: float
    y: float
    width: float
    height: float
    z: float
    depth: float
    score: float


def hits(box: Box, lesion: Lesion, volume_slices: float, *, code: bool) -> bool:
    """DBT-03, and the table's other column."""
    dx = box.x + box.width / 2 - (lesion.x + lesion.width / 2)
    dy = box.y + box.height / 2 - (lesion.y + lesion.height / 2)
    dz = box.z + box.depth / 2 - lesion.slice
    distance = float(np.linalg.norm((dx, dy)))
    diagonal = float(np.sqrt(lesion.width**2 + lesion.height**2))
    near = distance <= max(diagonal / 2, 100.0) if code else distance < max(diagonal, 100.0) / 2
    return near and abs(dz) <= volume_slices / 4


def distance_3d(box: Box, lesion: Lesion) -> float:
    dx = box.x + box.width / 2 - (lesion.x + lesion.width / 2)
    dy = box.y + box.height / 2 - (lesion.y + lesion.height / 2)
    return float(np.linalg.norm((dx, dy, box.z + box.depth / 2 - lesion.slice)))


def match(boxes: list[Box], lesions: list[Lesion], *, code: bool, nearest: bool) -> list[int | None]:
    """The lesion that each box takes, by its place in the list, or None."""
    out: list[int | None] = []
    for box in boxes:
        here = [i for i, lesion in enumerate(lesions) if lesion.case == box.case]
        fitting = [i for i in here if hits(box, lesions[i], lesions[here[0]].volume_slices, code=code)]
        if not fitting:
            out.append(None)
        elif nearest:
            out.append(min(fitting, key=lambda i: (distance_3d(box, lesions[i]), i)))
        else:
            out.append(fitting[0])
    return out


def dbtex(
    volumes: list[str], lesions: list[Lesion], boxes: list[Box], *, code: bool, nearest: bool | None = None
) -> dict[str, float]:
    """DBT-04: both readings of the FROC."""
    names = ["mean_sensitivity_1_to_4", "sensitivity_at_2_all"] + [
        f"sensitivity_at_{k}_positive" for k in (1, 2, 3, 4)
    ]
    if not lesions:
        return dict.fromkeys(names, NAN)
    if not boxes:
        return dict.fromkeys(names, 0.0)
    taken = match(boxes, lesions, code=code, nearest=code if nearest is None else nearest)
    hit_scores = [box.score for box, lesion in zip(boxes, taken, strict=True) if lesion is not None]
    thresholds = [
        max(b.score for b in boxes) + 1,
        *sorted(hit_scores, reverse=True),
        min(b.score for b in boxes) - 1,
    ]
    with_lesion = {lesion.case for lesion in lesions}

    def read(at: list[float], cases: set[str] | None, n_volumes: int) -> list[float]:
        xs, ys = [], []
        for threshold in thresholds:
            found, false = set(), 0
            for box, lesion in zip(boxes, taken, strict=True):
                if box.score < threshold or (cases is not None and box.case not in cases):
                    continue
                if lesion is None:
                    false += 1
                else:
                    found.add(lesion)
            xs.append(false / n_volumes)
            ys.append(len(found) / len(lesions))
        return [read_curve(x, xs, ys) for x in at]

    everywhere = read([2.0], None, len(volumes))
    positive = read([1.0, 2.0, 3.0, 4.0], with_lesion, sum(v in with_lesion for v in volumes))
    return dict(zip(names, [sum(positive) / 4, everywhere[0], *positive], strict=True))


def read_curve(x: float, xs: list[float], ys: list[float]) -> float:
    """Linear, flat after the last point, the highest y where several points share an x. `xs` rises."""
    below = max((i for i, known in enumerate(xs) if known <= x), default=None)
    if below is None:
        return ys[0]
    if xs[below] == x or below == len(xs) - 1:
        return ys[below]
    share = (x - xs[below]) / (xs[below + 1] - xs[below])
    return ys[below] + share * (ys[below + 1] - ys[below])


# Segmentation -----------------------------------------------------------------------------------


def neighbours(point: tuple[int, ...]) -> list[tuple[int, ...]]:
    out = []
    for axis in range(len(point)):
        for step in (-1, 1):
            moved = list(point)
            moved[axis] += step
            out.append(tuple(moved))
    return out


def inside(point: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return all(0 <= p < n for p, n in zip(point, shape, strict=True))


def edge_voxels(mask: np.ndarray, *, border_counts: bool) -> np.ndarray:
    """Mask voxels with a face neighbour outside the mask; beyond the image is outside, or is not looked at."""
    out = []
    for index in np.argwhere(mask):
        point = tuple(int(i) for i in index)
        for other in neighbours(point):
            if (inside(other, mask.shape) and not mask[other]) or (
                not inside(other, mask.shape) and border_counts
            ):
                out.append(point)
                break
    return np.array(out, dtype=float).reshape(-1, mask.ndim)


def directed(a: np.ndarray, b: np.ndarray) -> list[float]:
    """For each point of a, how far the nearest of b is."""
    return [float(np.sqrt(((b - point) ** 2).sum(axis=1)).min()) for point in a]


def percentile_95(values: list[float]) -> float:
    ordered = sorted(values)
    place = 0.95 * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def segmentation(
    truth: np.ndarray, said: np.ndarray, spacing: tuple[float, ...], protocol: str
) -> dict[str, float]:
    """MRI-03 and the table's two columns, one case."""
    truth, said = truth.astype(bool), said.astype(bool)
    if not truth.any() or not said.any():
        both = not truth.any() and not said.any()
        if both and protocol == "plain":
            return {"dice": NAN, "norm_hd": NAN}
        return {"dice": 0.0, "norm_hd": 0.0 if both and protocol == "mamamia-code" else 1.0}
    out = {"dice": 2 * int((truth & said).sum()) / (int(truth.sum()) + int(said.sum()))}
    step = np.array(spacing)
    a, b = (edge_voxels(m, border_counts=True) * step for m in (truth, said))
    there, back = directed(a, b), directed(b, a)
    out["hausdorff_mm"] = max(max(there), max(back))
    out["hausdorff95_mm"] = max(percentile_95(there), percentile_95(back))
    if protocol != "mamamia-code":
        out["norm_hd"] = min(1.0, out["hausdorff_mm"] / 150)
        return out
    a, b = (edge_voxels(m, border_counts=False) for m in (truth, said))
    if len(a) == 0 and len(b) == 0:
        out["norm_hd"] = 0.0
    elif len(a) == 0 or len(b) == 0:
        out["norm_hd"] = 1.0
    else:
        out["norm_hd"] = max(percentile_95(directed(a, b)), percentile_95(directed(b, a))) / 150
    return out


# Groups and fairness ----------------------------------------------------------------------------


def age_group(age: float | None, *, code: bool) -> str | None:
    if age is None or math.isnan(age):
        return None
    if code and not 0 < age <= 100:
        return None
    for upper in (40, 50, 60, 70):
        if age <= upper:
            return f"<={upper}"
    return ">70"


def menopausal_group(status: str | None, *, code: bool) -> str | None:
    """`peri` counts as `pre`; the unknown are a group of their own, or left out."""
    text = (status or "unknown").lower()
    if "peri" in text or "pre" in text:
        return "pre"
    if "post" in text:
        return "post"
    return "unknown" if code else None


def density_group(density: str | None) -> str | None:
    return density.lower() if density and density.lower() in ("a", "b", "c", "d") else None


def group_lists(rows: list[dict[str, Any]], *, code: bool) -> dict[str, dict[str, list[int]]]:
    """Variable -> group -> rows. Variables that no row has are not there."""
    kinds = {
        "age": lambda r: age_group(r.get("age"), code=code),
        "menopausal_status": lambda r: menopausal_group(r.get("menopausal_status"), code=code),
        "breast_density": lambda r: density_group(r.get("breast_density")),
    }
    out: dict[str, dict[str, list[int]]] = {}
    for variable, group_of in kinds.items():
        if not any(variable in row for row in rows):
            continue
        groups: dict[str, list[int]] = {}
        for i, row in enumerate(rows):
            group = group_of(row)
            if group is not None:
                groups.setdefault(group, []).append(i)
        out[variable] = groups
    return out


def spread(values: list[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return max(known) - min(known) if known else NAN


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else NAN


def segmentation_task(rows: list[dict[str, Any]], *, code: bool, weight: float = 0.5) -> dict[str, float]:
    """MRI-03, MRI-04, MRI-07 over a table with dice and norm_hd a row."""
    performance = (mean([r["dice"] for r in rows]) + 1 - mean([r["norm_hd"] for r in rows])) / 2
    disparities = {}
    for variable, groups in group_lists(rows, code=code).items():
        ranges = [
            spread([mean([rows[i][metric] for i in members]) for members in groups.values()])
            for metric in ("dice", "norm_hd")
        ]
        disparities[variable] = sum(ranges) / 2
    return combined(performance, disparities, weight=weight, cut=False)


def combined(
    performance: float, disparities: dict[str, float], *, weight: float, cut: bool
) -> dict[str, float]:
    known = [d for d in disparities.values() if not math.isnan(d)]
    disparity = mean(known)
    if cut and known:
        disparity = min(max(disparity, 0.0), 1.0)
    fairness = 1 - disparity
    return {
        "performance": performance,
        "fairness": fairness,
        "combined": (1 - weight) * performance + weight * fairness,
    } | {f"disparity_{k}": v for k, v in disparities.items()}


# Response ---------------------------------------------------------------------------------------


def rate(truth: list[int], said: list[int], of: int) -> float:
    """Share called positive among those whose truth is `of`."""
    among = [s for t, s in zip(truth, said, strict=True) if t == of]
    return sum(among) / len(among) if among else NAN


def response_task(rows: list[dict[str, Any]], *, code: bool) -> dict[str, float]:
    """MRI-05. `pcr` and `probability` a row; a missing probability is the worst answer (ST-14)."""
    truth = [int(r["pcr"]) for r in rows]
    said_p = [answered(r["pcr"], r.get("probability")) for r in rows]
    said = [int(p > 0.5) if code else int(p >= 0.5) for p in said_p]
    tpr, fpr = rate(truth, said, 1), rate(truth, said, 0)
    balanced = (tpr + 1 - fpr) / 2
    disparities = {}
    for variable, groups in group_lists(rows, code=code).items():
        tprs, fprs = [], []
        for members in groups.values():
            t, s = [truth[i] for i in members], [said[i] for i in members]
            a, b = rate(t, s, 1), rate(t, s, 0)
            if code:
                a, b = (0.0 if math.isnan(v) else v for v in (a, b))
                if len(set(t) | set(s)) == 1:
                    a, b = 0.0, 0.0
            tprs.append(a)
            fprs.append(b)
        disparities[variable] = spread(tprs) + spread(fprs)
    out = combined(balanced, disparities, weight=0.5, cut=code)
    return out | {
        "balanced_accuracy": balanced,
        "auroc": auroc(truth, [worst_ranked(r["pcr"], r.get("probability")) for r in rows]),
        "constant": len(set(said)) == 1,
    }


def worst_ranked(truth: int, probability: float | None) -> float:
    """For metrics of rank: behind every answer there is, also behind one of exactly 0 or 1."""
    if probability is None or math.isnan(probability):
        return -math.inf if truth else math.inf
    return probability


def answered(truth: int, probability: float | None) -> float:
    if probability is None or math.isnan(probability):
        return 0.0 if truth else 1.0
    return probability


# Classification ---------------------------------------------------------------------------------


def auroc(truth: list[int], p: list[float]) -> float:
    positive = [v for t, v in zip(truth, p, strict=True) if t]
    negative = [v for t, v in zip(truth, p, strict=True) if not t]
    if not positive or not negative:
        return NAN
    wins = sum((a > b) + 0.5 * (a == b) for a in positive for b in negative)
    return wins / (len(positive) * len(negative))


def average_precision(truth: list[int], p: list[float]) -> float:
    """Sum over the distinct scores of (recall gained) x (precision there)."""
    if not any(truth):
        return NAN
    total, before = 0.0, 0.0
    for threshold in sorted(set(p), reverse=True):
        called = [t for t, v in zip(truth, p, strict=True) if v >= threshold]
        recall = sum(called) / sum(truth)
        total += (recall - before) * sum(called) / len(called)
        before = recall
    return total


def expected_calibration_error(confidence: list[float], right: list[int], bins: int = 10) -> float:
    """Bins [k/10, (k+1)/10), the last one closed: 0.3 lies in [0.3, 0.4), whatever 3 x 0.1 is in binary."""
    total = 0.0
    for k in range(bins):
        members = [i for i, c in enumerate(confidence) if min(math.floor(c * bins), bins - 1) == k]
        if members:
            gap = mean([confidence[i] for i in members]) - mean([float(right[i]) for i in members])
            total += len(members) / len(confidence) * abs(gap)
    return total


def classification_task(
    truth: list[int], said: list[float | None], threshold: float = 0.5
) -> dict[str, float]:
    """US-15, US-17; a missing answer is the worst one (ST-14)."""
    p = [answered(t, v) for t, v in zip(truth, said, strict=True)]
    called = [int(v >= threshold) for v in p]
    sensitivity, false = rate(truth, called, 1), rate(truth, called, 0)
    tp = sum(t and c for t, c in zip(truth, called, strict=True))
    wrong = sum(t != c for t, c in zip(truth, called, strict=True))
    ranked = [worst_ranked(t, v) for t, v in zip(truth, said, strict=True)]
    top = [int(v >= 0.5) for v in p]
    return {
        "auroc": auroc(truth, ranked),
        "auprc": average_precision(truth, ranked),
        "sensitivity": sensitivity,
        "specificity": 1 - false,
        "balanced_accuracy": (sensitivity + 1 - false) / 2,
        "f1": 2 * tp / (2 * tp + wrong) if 2 * tp + wrong else NAN,
        "ece_confidence": expected_calibration_error(
            [max(v, 1 - v) for v in p], [int(t == c) for t, c in zip(truth, top, strict=True)]
        ),
        "ece_malignant": expected_calibration_error(p, truth),
        "nll": mean([-math.log(max(v if t else 1 - v, NLL_EPSILON)) for t, v in zip(truth, p, strict=True)]),
        "brier": mean([(v - t) ** 2 for t, v in zip(truth, p, strict=True)]),
    }


# Slides -----------------------------------------------------------------------------------------


def label_8(mask: np.ndarray) -> np.ndarray:
    """Objects whose pixels touch by side or corner, numbered from 1."""
    out = np.zeros(mask.shape, dtype=int)
    number = 0
    for start in map(tuple, np.argwhere(mask)):
        if out[start]:
            continue
        number += 1
        out[start] = number
        waiting = deque([start])
        while waiting:
            y, x = waiting.popleft()
            for dy, dx in itertools.product((-1, 0, 1), repeat=2):
                other = (y + dy, x + dx)
                if inside(other, mask.shape) and mask[other] and not out[other]:
                    out[other] = number
                    waiting.append(other)
    return out


def fill_holes(mask: np.ndarray) -> np.ndarray:
    """All that the outside does not reach, side by side, from the border."""
    reached = np.zeros(mask.shape, dtype=bool)
    border = [
        p
        for p in map(tuple, np.argwhere(~mask))
        if any(i in (0, n - 1) for i, n in zip(p, mask.shape, strict=True))
    ]
    waiting = deque(border)
    for point in border:
        reached[point] = True
    while waiting:
        for other in neighbours(waiting.popleft()):
            if inside(other, mask.shape) and not mask[other] and not reached[other]:
                reached[other] = True
                waiting.append(other)
    return ~reached


def grow(mask: np.ndarray, radius_px: float) -> np.ndarray:
    """All pixels nearer than the radius to a mask pixel."""
    points = np.argwhere(mask)
    out = np.zeros(mask.shape, dtype=bool)
    if len(points):
        for index in np.ndindex(*mask.shape):
            out[index] = np.sqrt(((points - index) ** 2).sum(axis=1)).min() < radius_px
    return out


def major_axis(points: np.ndarray) -> float:
    """Of the ellipse of equal second moments: four times the root of the larger variance."""
    y, x = points[:, 0].astype(float), points[:, 1].astype(float)
    vx, vy = x.var(), y.var()
    cross = ((x - x.mean()) * (y - y.mean())).mean()
    larger = (vx + vy) / 2 + math.sqrt(((vx - vy) / 2) ** 2 + cross**2)
    return 4 * math.sqrt(larger)


def lesion_regions(mask: np.ndarray, pixel_um: float) -> tuple[np.ndarray, list[int], list[int]]:
    """The evaluation mask's labels; those that count; those of isolated tumour cells."""
    labels = label_8(fill_holes(grow(mask, 37.5 / pixel_um)))
    counted, itc = [], []
    for number in range(1, labels.max() + 1):
        small = major_axis(np.argwhere(labels == number)) < 275 / pixel_um
        (itc if small else counted).append(number)
    return labels, counted, itc


def camelyon16(
    slides: dict[str, tuple[np.ndarray | None, list[tuple[float, float, float]]]],
    *,
    pixel_um: float,
    downsample: float,
    code: bool,
) -> dict[str, float]:
    """LN-17. `slides`: name -> (mask or None, points of (score, x, y) in level-0 pixels)."""
    false: list[float] = []
    best: list[float] = []
    listed: list[float] = []
    n_lesions = 0
    for mask, points in slides.values():
        labels, counted, itc = (
            (None, [], []) if mask is None or not mask.any() else lesion_regions(mask > 0, pixel_um)
        )
        top = dict.fromkeys(counted, NAN)
        for score, x, y in points:
            hit = 0 if labels is None else int(labels[int(y / downsample), int(x / downsample)])
            if hit == 0:
                false.append(score)
            elif hit in top:
                kept = float(np.float32(score)) if code else score
                top[hit] = kept if math.isnan(top[hit]) else max(top[hit], kept)
        n_lesions += len(counted)
        best += [v for v in top.values() if not math.isnan(v)]
        listed += [0.0 if math.isnan(v) else v for v in top.values()] + [0.0] * len(itc)
    if n_lesions == 0:
        return {"froc_score": NAN}
    thresholds = sorted(set(false) | set(listed if code else best))
    if code:
        thresholds = thresholds[1:]
    xs, ys = [], []
    for threshold in reversed(thresholds):
        xs.append(sum(f >= threshold for f in false) / len(slides))
        limit = float(np.float32(threshold)) if code else threshold
        ys.append(sum(b >= limit for b in best) / n_lesions)
    xs, ys = [0.0, *xs], [0.0, *ys]
    return {"froc_score": mean([read_curve(at, xs, ys) for at in (0.25, 0.5, 1, 2, 4, 8)])}


def quadratic_kappa(truth: list[str], said: list[str]) -> float:
    """CAMELYON17: five stages in order; undefined where chance cannot disagree."""
    place = {stage: i for i, stage in enumerate(PATIENT_STAGES)}
    pairs = [(place[t], place[s]) for t, s in zip(truth, said, strict=True)]
    observed = mean([float((t - s) ** 2) for t, s in pairs])
    chance = mean([float((t - s) ** 2) for t, _ in pairs for _, s in pairs])
    return 1 - observed / chance if chance else NAN


def slide_stage(mask: np.ndarray, pixel_um: float) -> str:
    """LN-14: the largest major axis over all objects, 8-connected."""
    labels = label_8(mask)
    if labels.max() == 0:
        return "negative"
    largest_mm = (
        max(major_axis(np.argwhere(labels == k)) for k in range(1, labels.max() + 1)) * pixel_um / 1000
    )
    return "macro" if largest_mm > 2 else "micro" if largest_mm > 0.2 else "itc"


def stage_metrics(truth: list[str], said: list[str]) -> dict[str, float]:
    """LN-15: positive is macro or micro; `f1_macro` is the mean of both classes' F1, as in the study's table."""
    positive = {"macro", "micro"}
    t, s = [int(v in positive) for v in truth], [int(v in positive) for v in said]
    f1s = []
    for of in (0, 1):
        tp = sum(a == b == of for a, b in zip(t, s, strict=True))
        wrong = sum(a != b for a, b in zip(t, s, strict=True))
        f1s.append(2 * tp / (2 * tp + wrong) if tp + wrong else NAN)
    return {
        "stage_accuracy": mean([float(a == b) for a, b in zip(truth, said, strict=True)]),
        "positive_sensitivity": rate(t, s, 1),
        "positive_specificity": 1 - rate(t, s, 0),
        "f1_macro": mean(f1s),
    }
