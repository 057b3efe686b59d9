"""Segmentation of the tumour (MRI-03, MRI-04, MRI-07): one mask per case, compared with the cohort's `mask`.

Dice, Hausdorff distance and its 95th percentile in mm, NormHD, and from their means performance,
fairness and combined; also surface distances, volumes and lesion-wise counts. The protocol decides how
empty, missing and far masks count; what was measured stays in the table, so that `summarise` can
judge it again under another protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows
from elsewhere.predictions.join import Join, join_by_id
from elsewhere.protocols import Protocol, SegmentationRules
from elsewhere.scoring.case_table import ATTRIBUTES, IDENTITY, check_group_by
from elsewhere.scoring.flow import participant_flow
from elsewhere.scoring.groups import fairness_codes, told
from elsewhere.scoring.segmentation.cases import (
    COMPONENT_COLUMNS,
    CONTOUR,
    COUNT_COLUMNS,
    FALSE_COMPONENTS,
    MEASURED,
    MM_COLUMNS,
    WORST,
    check_cases,
    cohort_spacing,
    image_files,
    judge,
    measure_cases,
    norm_hd,
    open_pair,
    truth_paths,
)
from elsewhere.scoring.segmentation.evaluator import (
    CORE,
    EXTRA,
    RATIO,
    SegmentationEvaluator,
    segmentation_specs,
)
from elsewhere.scoring.segmentation.surface import pack_pieces
from elsewhere.scoring.task import Checked, ScoreOptions, Scores, StudyMetrics, Task, tasks
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.fairness.disparity import Disparity
from elsewhere.statistics.metric import MetricSpec
from elsewhere.tables import to_number

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort
    from elsewhere.predictions import Predictions

SIZE_QUANTILES = (0.2, 0.8)
SIZE_NAMES = ("small", "moderate", "large")
NO_SPACING = (
    "the masks are pictures without a spacing: give the cohort spacing_row_mm and spacing_column_mm "
    "(and spacing_slice_mm for stacks)"
)
_ALIASES = {"DSC": "dice", "NormHD": "norm_hd", "HD": "hausdorff_mm", "HD95": "hausdorff95_mm"}
_STATUSES = ("scored", "undefined", *WORST)


class SegmentationTask(Task):
    """Segmentation of the tumour: a case is an image with a mask, and the cluster is the patient."""

    name = "segmentation"
    title = "Tumour segmentation"
    units = "tumours"
    target = "mask"
    answer_kind = "masks"
    study_protocol = "mamamia-paper"
    compares_groups = True
    case_columns = ("dice", "hausdorff_mm", "norm_hd")
    stored_columns = ("dice", "norm_hd", "hausdorff_mm")
    study_metrics = StudyMetrics(
        main="dice",
        shown=("combined", "fairness", "performance", "dice", "hausdorff_mm", "norm_hd"),
        paired=("dice", "norm_hd"),
        grouped=("dice", "norm_hd", "performance"),
        baseline="residual-unet",
    )

    def metrics(self, protocol: Protocol) -> tuple[MetricSpec, ...]:
        return segmentation_specs(protocol)

    def score(
        self, cohort: Cohort, predictions: Predictions, protocol: Protocol, options: ScoreOptions
    ) -> Scores:
        cases, truths, paths, join = _joined(cohort, predictions, protocol, options)
        measured = measure_cases(
            truths,
            paths,
            cohort_spacing(cohort),
            on_invalid=options.on_invalid,
            threads=options.threads,
            progress=options.progress,
        )
        judged = judge(measured, protocol.segmentation)
        return _finish(
            pd.concat([cases, judged], axis=1),
            protocol,
            n_extra=len(join.extra),
            flow=(*predictions.flow, *join.of_predictions),
            warnings=(*predictions.warnings, *join.warnings),
        )

    def case_cost(self, scores: Scores) -> npt.NDArray[np.float64]:
        """Compute what each case lacks to a Dice of 1.

        Args:
            scores: The scores.

        Returns:
            1 - Dice for each case.
        """
        return 1 - pd.to_numeric(scores.cases["dice"]).to_numpy(dtype=float)

    def disparity(self, scores: Scores, evaluator: Evaluator, *, headline: str) -> Disparity:
        """Compare Dice and NormHD together (MRI-04), where the table has both.

        Args:
            scores: The scores.
            evaluator: Their metrics.
            headline: The name of the metric that leads the report.

        Returns:
            The disparity of both metrics; that of the headline where one of them is missing.
        """
        if {"dice", "norm_hd"} <= {spec.name for spec in evaluator.specs}:
            return Disparity.of_metrics(evaluator, ["dice", "norm_hd"])
        return super().disparity(scores, evaluator, headline=headline)

    def has_truth(self, cohort: Cohort) -> bool:
        """Check whether any truth mask is there; in a participant's copy of the cohort none is.

        Args:
            cohort: The cohort.

        Returns:
            True where the file of at least one mask exists.
        """
        if not super().has_truth(cohort):
            return False
        named = cohort.cases["mask"].dropna().astype("string")
        return any(cohort.file(str(path)).exists() for path in named if str(path).strip())

    def check(
        self, cohort: Cohort, predictions: Predictions, protocol: Protocol, options: ScoreOptions
    ) -> Checked:
        """Open every pair and compare the grids, as scoring does; nothing is measured.

        Args:
            cohort: The cohort, with the truth.
            predictions: The predictions.
            protocol: The rules.
            options: What the user set besides the protocol.

        Returns:
            Errors and warnings.
        """
        try:
            _, truths, paths, _ = _joined(cohort, predictions, protocol, options)
            cohort_spacing(cohort)
        except UserError as error:
            return Checked(errors=(error,))

        def opened(truth: Path, path: Path | None) -> str | None:
            pair = open_pair(truth, path, on_invalid=options.on_invalid)
            return pair.reason if pair.status == "invalid" else None

        return _checked([partial(opened, *pair) for pair in zip(truths, paths, strict=True)], options)

    def check_files(self, predictions: Predictions, cohort: Cohort | None, options: ScoreOptions) -> Checked:
        """Read every mask by itself, and compare it with the grid of its image where the cohort has that.

        Args:
            predictions: The predictions.
            cohort: The cohort, for example for the grids of its images; None where there is none.
            options: What the user set besides the protocol.

        Returns:
            Errors and warnings, and a note on how many masks were compared with the grid of their image.
        """
        from elsewhere.predictions.mask_file import (
            check_same_grid,
            is_nifti,
            read_grid,
            read_mask,
            stream_mask,
        )

        images = image_files(cohort) if cohort is not None else {}

        def opened(case: str, path: Path) -> str | None:
            mask = stream_mask(path, pack_pieces)[0] if is_nifti(path) else read_mask(path)
            if case in images:
                image = read_grid(images[case])
                try:
                    check_same_grid(mask, image)
                except UserError as error:
                    what = error.what.replace("the truth's", "its image's").replace("the truth", "its image")
                    raise UserError(what, where=error.where, fix=error.fix) from None
            return None

        def tolerant(case: str, path: Path) -> str | None:
            try:
                return opened(case, path)
            except UserError as error:
                if options.on_invalid != "worst":
                    raise
                return error.what

        table = predictions.table[["case_id", "path"]].astype("string")
        pairs = [(str(case), Path(str(path))) for case, path in table.itertuples(index=False)]
        checked = _checked([partial(tolerant, case, path) for case, path in pairs], options)
        compared = f"{sum(case in images for case, _ in pairs)} of {len(pairs)} were compared with the grid of their image"
        return replace(checked, notes=(f"without the truth, each mask was read by itself; {compared}",))

    def from_table(
        self,
        cohort: Cohort,
        table: pd.DataFrame,
        events: pd.DataFrame | None,
        protocol: Protocol,
        options: ScoreOptions,
    ) -> Scores:
        """Make scores from a table with `case_id, dice` and `norm_hd` or `hausdorff_mm`, or saved scores.

        A table with voxel counts (one of ours) is judged anew, by this protocol; the values of any other are
        taken as they are. A case that the table does not have is missing, and scored worst.

        Args:
            cohort: The cohort.
            table: One row per case, with the columns that the task stores.
            events: The stored events, where the task has any.
            protocol: The rules.
            options: What the user set besides the protocol.

        Returns:
            The scores.

        Raises:
            UserError: A column is missing, or a value is not what it may be.
        """
        where = "scores table"
        frame = table.rename(columns={a: b for a, b in _ALIASES.items() if b not in table.columns})
        frame = frame.reset_index(drop=True)
        for name in ("case_id", "dice"):
            if name not in frame.columns:
                raise UserError(
                    f"the scores table has no column '{name}'",
                    fix=f"Columns: {', '.join(map(str, table.columns))}.",
                )
        cases = _identity(cohort, protocol, options)
        join = join_by_id(
            cases["case_id"], frame["case_id"], normalise=options.normalise_ids, source=where, what="score"
        )
        values = _checked_values(frame, where=where, on_invalid=options.on_invalid)
        picked = values.reindex(join.row_of_case).reset_index(drop=True)
        absent = join.row_of_case < 0
        picked.loc[absent, "status"] = "missing"
        picked["reason"] = picked["reason"].fillna("")
        rules = protocol.segmentation
        if set(COUNT_COLUMNS[:2]) <= set(frame.columns) and _can_judge(frame, rules):
            judged = judge(picked, rules)
        else:
            judged = _taken_at_its_word(picked, frame, rules)
        return _finish(
            pd.concat([cases, judged], axis=1),
            protocol,
            n_extra=len(join.extra),
            flow=(
                {"step": "rows in the scores table", "n": len(frame), "lost": 0, "why": ""},
                *join.of_predictions,
            ),
            warnings=join.warnings,
        )

    def partition(self, scores: Scores) -> Clusters:
        return Clusters.from_table(scores.cases)

    def evaluator(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> SegmentationEvaluator:
        cases = scores.cases
        wanted = (*CORE, *EXTRA, *COMPONENT_COLUMNS)
        groups, _ = fairness_codes(cases, scores.protocol.fairness)
        return SegmentationEvaluator(
            columns={
                name: cases[name].to_numpy(dtype=np.float64) for name in wanted if name in cases.columns
            },
            cluster_of_case=partition.cluster_of_case,
            n_clusters=partition.n_clusters,
            groups=groups,
            protocol=scores.protocol,
            fairness_weight=options.fairness_weight,
            reasons=scores.extras.get("undefined_reasons", {}),
        )

    def details(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> dict[str, Any]:
        """Compute disparities, lesion-wise totals, reasons of invalid masks, and size strata (MRI-11).

        Args:
            scores: The scores.
            partition: The clusters that are resampled.
            options: What the user set besides the protocol.

        Returns:
            `fairness_weight`, `disparity` and `invalid_reasons`; where the scores have what they need, also
            `lesions` and `size_strata`.
        """
        evaluator = self.evaluator(scores, partition, options)
        cases = scores.cases
        out: dict[str, Any] = {
            "fairness_weight": evaluator.fairness_weight,
            "disparity": {k: v if np.isfinite(v) else None for k, v in evaluator.disparities().items()},
            "invalid_reasons": _tally(
                cases.loc[(cases["status"] == "invalid").to_numpy(dtype=bool), "reason"]
            ),
        }
        if set(COMPONENT_COLUMNS) <= set(cases.columns):
            out["lesions"] = {
                "truth_components": int(np.nansum(cases["n_truth_components"])),
                "found_components": int(np.nansum(cases["n_found_components"])),
                "false_components": int(np.nansum(cases[FALSE_COMPONENTS])),
            }
        strata = size_strata(cases)
        if strata is not None:
            edges, codes = strata
            out["size_strata"] = {
                "variable": "volume_truth_ml",
                "edges_ml": list(edges),
                "strata": {name: _stratum(evaluator, codes == k, cases) for k, name in enumerate(SIZE_NAMES)},
            }
        return out


def _joined(
    cohort: Cohort, predictions: Predictions, protocol: Protocol, options: ScoreOptions
) -> tuple[pd.DataFrame, list[Path], list[Path | None], Join]:
    """Return the case table, the truth of every case, the prediction of every case or None, and the join."""
    if predictions.kind != "masks":
        raise UserError(
            f"these predictions are {predictions.kind}, not masks",
            where=predictions.source,
            fix="Give a folder with one mask per case, named by case id.",
        )
    cases = _identity(cohort, protocol, options)
    truths = truth_paths(cohort)
    join = join_by_id(
        cases["case_id"],
        predictions.table["case_id"],
        normalise=options.normalise_ids,
        source=predictions.source,
        what="mask",
    )
    paths = predictions.table["path"].astype("string").to_numpy(dtype=object)
    return cases, truths, [Path(str(paths[row])) if row >= 0 else None for row in join.row_of_case], join


def _checked(opened: Sequence[Callable[[], str | None]], options: ScoreOptions) -> Checked:
    errors, reasons = check_cases(opened, threads=options.threads, progress=options.progress)
    warnings = []
    if reasons:
        shown = "; ".join(f"{count} x {what}" for what, count in list(_tally(pd.Series(reasons)).items())[:3])
        warnings.append(f"{len(reasons)} masks are invalid and scored worst: {shown}.")
    return Checked(errors=tuple(errors), warnings=tuple(warnings))


def _identity(cohort: Cohort, protocol: Protocol, options: ScoreOptions) -> pd.DataFrame:
    source = cohort.cases.reset_index(drop=True)
    check_group_by(source, options.group_by)
    wanted = dict.fromkeys((*IDENTITY, *ATTRIBUTES, *protocol.fairness.variables, *options.group_by))
    taken = {*MEASURED, "norm_hd", "status", "reason", RATIO}
    return source[[name for name in wanted if name in source.columns and name not in taken]].copy()


def size_strata(
    cases: pd.DataFrame,
) -> tuple[tuple[float, float], npt.NDArray[np.int8]] | None:
    """Divide cases by the 20th and 80th percentile of the truth's volume: small, moderate, large (MRI-11).

    A volume at an edge belongs to the smaller stratum.

    Args:
        cases: The case table, with `volume_truth_ml` where it was measured.

    Returns:
        The two edges in ml, and the stratum of each case: 0, 1 or 2, and -1 where the truth has no volume.
        None where fewer than three cases have a volume.

    Example:
        >>> edges, strata = size_strata(pd.DataFrame({"volume_truth_ml": [1.0, 2.0, 3.0, 4.0, 100.0]}))
        >>> strata.tolist()
        [0, 1, 1, 1, 2]
    """
    if "volume_truth_ml" not in cases.columns:
        return None
    volume = cases["volume_truth_ml"].to_numpy(dtype=np.float64)
    known = np.isfinite(volume) & (volume > 0)
    if known.sum() < len(SIZE_NAMES):
        return None
    low, high = (float(q) for q in np.quantile(volume[known], SIZE_QUANTILES))
    codes = np.where(known, np.searchsorted([low, high], volume, side="left"), -1)
    return (low, high), codes.astype(np.int8)


def _stratum(
    evaluator: SegmentationEvaluator, mask: npt.NDArray[np.bool_], cases: pd.DataFrame
) -> dict[str, Any]:
    values = evaluator.subset(mask).values() if mask.any() else {}
    patients = cases.loc[mask, "patient_id"].nunique() if "patient_id" in cases.columns else int(mask.sum())
    shown = {k: v for k, v in values.items() if k not in ("fairness", "combined")}
    return {
        "cases": int(mask.sum()),
        "patients": int(patients),
        "metrics": {k: {"value": v if np.isfinite(v) else None} for k, v in shown.items()},
    }


def _tally(reasons: pd.Series) -> dict[str, int]:
    return {str(reason): int(count) for reason, count in reasons.value_counts().items()}


def _can_judge(frame: pd.DataFrame, rules: SegmentationRules) -> bool:
    needed = "hausdorff_mm" if rules.distance == "hausdorff_mm" else CONTOUR
    return needed in frame.columns


def _checked_values(frame: pd.DataFrame, *, where: str, on_invalid: str) -> pd.DataFrame:
    """Return the known columns as numbers within their bounds, with `status` and `reason`."""
    numeric = [name for name in (*MEASURED, "norm_hd") if name in frame.columns]
    out = pd.DataFrame(index=frame.index)
    bad = np.zeros(len(frame), dtype=bool)
    for name in numeric:
        column = frame[name]
        lenient = on_invalid == "worst"
        numbers = to_number(column, column=name, where=where, on_invalid="nan" if lenient else "error")
        values = numbers.to_numpy(dtype=np.float64)
        high = 1.0 if name in ("dice", "surface_dice_1mm") else np.inf
        outside = (values < 0) | (values > high)
        if outside.any() and not lenient:
            bounds = "[0, 1]" if high == 1.0 else "[0, ...)"
            raise UserError(
                f"{int(outside.sum())} values of {name} lie outside {bounds}",
                where=f"{where}, rows {name_rows((np.flatnonzero(outside) + 1).tolist())}",
                fix="Correct the table, or use `--on-invalid worst`.",
            )
        unreadable = np.isnan(values) & column.notna().to_numpy(dtype=bool)
        bad |= outside | (unreadable if lenient and not pd.api.types.is_float_dtype(column) else False)
        out[name] = np.where(outside, np.nan, values)
    if "status" in frame.columns:
        status = frame["status"].astype("string").fillna("scored").to_numpy(dtype=object).copy()
        strange = [i + 1 for i, word in enumerate(status) if word not in _STATUSES]
        if strange:
            raise UserError(
                f"'{status[strange[0] - 1]}' is no status",
                where=f"{where}, rows {name_rows(strange)}",
                fix=f"Use one of {', '.join(_STATUSES)}.",
            )
    else:
        status = np.full(len(frame), "scored", dtype=object)
    status[bad] = "invalid"
    reason = (
        frame["reason"].astype("string").fillna("")
        if "reason" in frame.columns
        else pd.Series("", index=frame.index)
    )
    words = reason.to_numpy(dtype=object).copy()
    words[bad] = "a value is no number or outside its bounds"
    out["status"], out["reason"] = pd.array(status, dtype="string"), pd.array(words, dtype="string")
    return out


def _taken_at_its_word(picked: pd.DataFrame, frame: pd.DataFrame, rules: SegmentationRules) -> pd.DataFrame:
    """Use the Dice and NormHD of a table as they are; apply the cut and the worst values of this protocol."""
    out = picked.copy()
    if "norm_hd" not in frame.columns:
        if not _can_judge(frame, rules):
            needed = "hausdorff_mm" if rules.distance == "hausdorff_mm" else CONTOUR
            raise UserError(
                f"the scores table has neither 'norm_hd' nor '{needed}'",
                fix=f"Columns: {', '.join(map(str, frame.columns))}.",
            )
        out["norm_hd"] = norm_hd(out, rules)
    elif rules.cut_to_one:
        out["norm_hd"] = out["norm_hd"].clip(upper=1.0)
    for name in ("hausdorff_mm", "hausdorff95_mm"):
        if name not in frame.columns:
            out[name] = np.nan
    worst = out["status"].isin(WORST).to_numpy(dtype=bool)
    out.loc[worst, "dice"], out.loc[worst, "norm_hd"] = 0.0, 1.0
    for name in MM_COLUMNS:
        if name in frame.columns:
            out.loc[worst, name] = rules.empty_distance_mm
    if "surface_dice_1mm" in out.columns:
        out.loc[worst, "surface_dice_1mm"] = 0.0
    lost = ~worst & out["dice"].isna().to_numpy(dtype=bool)
    out.loc[lost, "status"] = "undefined"
    out.loc[lost & (out["reason"] == "").to_numpy(dtype=bool), "reason"] = "the scores table has no value"
    return out


EMPTY_TRUTH = "truth masks are empty"
EMPTY_PREDICTION = "predictions are empty"


def empty_truth(bare: int, of: int, protocol: Protocol) -> str:
    """Write the warning about truth masks without a voxel.

    Such a mask is more often a mistake than a breast without a tumour, and no model can do well on it: the
    rule is applied (protocols.md), and the report states this.

    Args:
        bare: How many truth masks are empty.
        of: How many cases there are.
        protocol: The rules.

    Returns:
        A sentence without a full stop.
    """
    rules = protocol.segmentation
    dice, _ = rules.one_empty
    return (
        f"{bare} of {of} {EMPTY_TRUTH}: there protocol '{protocol.name}' scores every prediction with Dice {dice:g} "
        f"and {rules.empty_distance_mm:g} mm"
    )


def empty_predictions(blank: int, of: int, protocol: Protocol) -> str:
    """Write the warning about empty predictions where there is a tumour.

    A tumour that was not marked at all weighs more than any that was marked badly (MRI-03), which a mean does
    not show.

    Args:
        blank: How many such predictions there are.
        of: How many cases there are.
        protocol: The rules.

    Returns:
        A sentence without a full stop.
    """
    rules = protocol.segmentation
    dice, _ = rules.one_empty
    return (
        f"{told(blank)} of {of} {EMPTY_PREDICTION} where there is a tumour: Dice {dice:g} and "
        f"{rules.empty_distance_mm:g} mm by protocol '{protocol.name}'"
    )


def _finish(
    cases: pd.DataFrame,
    protocol: Protocol,
    *,
    n_extra: int,
    flow: Sequence[dict[str, Any]],
    warnings: Sequence[str],
) -> Scores:
    notes = [*warnings]
    if set(COMPONENT_COLUMNS) <= set(cases.columns):
        truth = cases["n_truth_components"].to_numpy(dtype=np.float64)
        found = cases["n_found_components"].to_numpy(dtype=np.float64)
        ratio = np.full(len(cases), np.nan)
        cases[RATIO] = np.divide(found, truth, out=ratio, where=truth > 0)
    status = cases["status"].value_counts()
    counts = {name: int(status.get(name, 0)) for name in _STATUSES}
    keys = [name for name in ("dataset", "patient_id") if name in cases.columns]
    counts |= {
        "cases": len(cases),
        "patients": len(cases[keys].drop_duplicates()) if "patient_id" in keys else len(cases),
        "without_boxes": 0,
        "extra": n_extra,
    }
    reasons: dict[str, str] = {}
    scored = (cases["status"] == "scored").to_numpy(dtype=bool)
    for name in ("hausdorff_mm", "hausdorff95_mm"):
        if cases[name].isna().all():
            reasons[name] = f"the scores table has no column {name}"
    if "n_truth_voxels" in cases.columns:
        bare = int((cases["n_truth_voxels"] == 0).sum())
        if bare:
            notes.append(f"{empty_truth(bare, len(cases), protocol)}.")
        blank = scored & (cases["n_truth_voxels"] > 0).to_numpy(dtype=bool)
        blank &= (cases["n_prediction_voxels"] == 0).to_numpy(dtype=bool)
        if blank.any():
            notes.append(f"{empty_predictions(int(blank.sum()), len(cases), protocol)}.")
        both = scored & (cases["n_truth_voxels"] > 0).to_numpy(dtype=bool)
        both &= (cases["n_prediction_voxels"] > 0).to_numpy(dtype=bool)
        flat = both & cases["hausdorff_mm"].isna().to_numpy(dtype=bool)
        if flat.any():
            notes.append(f"{int(flat.sum())} cases have no distance in mm: {NO_SPACING}.")
            reasons |= dict.fromkeys((*MM_COLUMNS, "norm_hd", "surface_dice_1mm"), NO_SPACING)
    if counts["invalid"]:
        kinds = _tally(cases.loc[(cases["status"] == "invalid").to_numpy(dtype=bool), "reason"])
        shown = "; ".join(f"{count} x {what}" for what, count in list(kinds.items())[:3])
        notes.append(f"{counts['invalid']} masks are invalid and scored worst: {shown}.")
    if counts["undefined"]:
        notes.append(
            f"{counts['undefined']} cases are undefined and in no mean (both masks empty, or no value)."
        )
    _, absent = fairness_codes(cases, protocol.fairness)
    notes += absent
    extras = {"undefined_reasons": reasons} if reasons else {}
    return Scores(
        task="segmentation",
        protocol=protocol,
        cases=cases,
        counts=counts,
        flow=participant_flow(flow, cohort_cases=len(cases), status=cases["status"], what="mask"),
        warnings=tuple(notes),
        extras=extras,
    )


tasks.add("segmentation", SegmentationTask())
