"""`curate`: features, clusters and their audit, and the training sets, written as one folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere._version import __version__
from elsewhere.cohort.patch_table import TEXTS, read_patch_table, write_patch_table
from elsewhere.commands.curate.inputs import (
    FeatureSpec,
    TrainingRows,
    find_slide_files,
    number_values,
    open_store,
    read_feature_specs,
    read_features,
    read_training_rows,
)
from elsewhere.commands.curate.page import write_curation_page
from elsewhere.commands.curate.result import Clustering, CurateReport, EstimateReport
from elsewhere.commands.output import Report
from elsewhere.curation.appearance import APPEARANCES
from elsewhere.curation.audit import AuditRow, Stability, audit_group, judge_stability, split_by_rank
from elsewhere.curation.clusters import GROUPS, ClusterSettings, GroupClusters, cluster_group, single_cluster
from elsewhere.curation.features import (
    NETWORKS,
    Appearance,
    PatchEncoder,
    Values,
    compute_features,
    count_missing,
    make_network_encoder,
    select_patches,
)
from elsewhere.curation.leaks import (
    KINDS,
    Leak,
    number_patients,
    same_tissue,
    shared_names,
    slide_names,
)
from elsewhere.curation.projection import without_site_means
from elsewhere.curation.sets import SINGLE, CuratedSet, SetSettings, draw_sets, plan_sets
from elsewhere.errors import UserError
from elsewhere.files import check_out, staged_directory
from elsewhere.inputs.patches.store import PatchSet, PatchStore
from elsewhere.tables import content_hash, write_json, write_table

ON_LEAK = ("refuse", "leave-out")
_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class CurateSettings:
    """How training sets are curated.

    Attributes:
        clusters: How groups are clustered.
        sets: How sets are drawn.
        remove_site_mean: Whether the mean of its hospital is subtracted from every feature before clustering.
        seeds: Seeds whose clusters are compared; 1 for no test of stability.
        device: Where features are computed: auto, cpu, cuda or cuda:N.
        on_leak: What to do with training slides that the test shares: "refuse" or "leave-out".
        sample_patches: Patches of each cluster that the page shows; 0 for a page without pixels.

    Raises:
        UserError: A word is unknown, or a number is negative.
    """

    clusters: ClusterSettings = field(default_factory=ClusterSettings)
    sets: SetSettings = field(default_factory=SetSettings)
    remove_site_mean: bool = False
    seeds: int = 5
    device: str = "auto"
    on_leak: str = "refuse"
    sample_patches: int = 0

    def __post_init__(self) -> None:
        if self.on_leak not in ON_LEAK:
            raise UserError(f"on_leak is '{self.on_leak}'", fix=f"Choose {' or '.join(ON_LEAK)}.")
        if self.seeds < 1 or self.sample_patches < 0:
            raise UserError(
                "a number of seeds or of sample patches is not possible",
                fix="Give 1 seed or more, and 0 samples or more.",
            )

    def stated(self) -> dict[str, Any]:
        """Return what the sets depend on, as plain values.

        Returns:
            One entry per setting.
        """
        clusters, sets = self.clusters, self.sets
        return {
            "clusters": {
                "fewest": clusters.fewest,
                "most": clusters.most,
                "fixed": dict(clusters.fixed),
                "dimensions": clusters.dimensions,
                "seed": clusters.seed,
                **{f"mixture_{name}": value for name, value in vars(clusters.mixture).items()},
            },
            "sets": {
                "size": sets.size,
                "shares": list(sets.shares),
                "of": sets.of,
                "same_size": sets.same_size,
                "seed": sets.seed,
            },
            "remove_site_mean": self.remove_site_mean,
        }


@dataclass(frozen=True, kw_only=True)
class CurateInputs:
    """What is curated.

    Attributes:
        table: The patch table.
        store: The store of its patches; None where all features come from files.
        features: Features by name, as `read_feature_specs` reads them.
        tests: Patch tables of the test, with which training must share no patient and no slide.
        slides: Slides, folders of slides, or one cohort, in which slides of the same tissue are searched; none: no search.
    """

    table: Path
    store: Path | None = None
    features: tuple[str, ...] = ()
    tests: tuple[Path, ...] = ()
    slides: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Prepared:
    specs: list[FeatureSpec]
    training: TrainingRows
    rows: pd.DataFrame
    store: PatchStore | None
    leaks: list[Leak]
    notes: list[str]


def curate(
    inputs: CurateInputs,
    *,
    out: Path,
    settings: CurateSettings | None = None,
    replace_earlier: bool = False,
    progress: Report | None = None,
) -> CurateReport:
    """Cluster patches, say what the clusters are, and draw training sets from them.

    Args:
        inputs: What is curated.
        out: The folder to write.
        settings: How; None for the defaults.
        replace_earlier: Whether an earlier result in the folder may be replaced.
        progress: Called with a step, how much of it is done, and how much there is; None for no reports.

    Returns:
        What was made.

    Raises:
        UserError: The table, the store or the features cannot be used, training and test share patients or
            slides, or no set can be drawn.
        FileSystemError: The disk is full or refuses.
    """
    settings = settings or CurateSettings()
    read = [inputs.table, inputs.store, *inputs.tests, *inputs.slides]
    check_out(out, replace=replace_earlier, inputs=read)
    prepared = _prepare(inputs, settings, progress)
    rows, notes = prepared.rows, list(prepared.notes)
    # What cannot be drawn is refused before hours of features.
    plan_sets(rows, settings.sets)
    patches = None if prepared.store is None else select_patches(prepared.store, rows)
    clusterings = [_cluster(spec, prepared, patches, settings, progress) for spec in prepared.specs]
    labels = {one.name: one.labels for one in clusterings}
    labels[SINGLE] = np.zeros(len(rows), np.int64)
    sets = draw_sets(rows, labels, settings.sets)
    attributes, unknown = _attributes(rows, patches, progress)
    notes += unknown
    clusterings = [_audited(one, rows, attributes, settings, progress) for one in clusterings]
    report = CurateReport(
        out=out,
        table_hash=prepared.training.table.hash,
        counts={**prepared.training.counts, "patches": len(rows), **_left_out(prepared)},
        settings=settings.stated(),
        clusterings=tuple(clusterings),
        sets=tuple(sets),
        leaks=tuple(prepared.leaks),
        notes=tuple(notes),
    )
    with staged_directory(out, replace=replace_earlier, inputs=read) as folder:
        _write(report, rows, prepared, folder)
        write_curation_page(
            report, folder / "curation.html", rows=rows, patches=patches, samples=settings.sample_patches
        )
    return report


def estimate(
    inputs: CurateInputs,
    *,
    out: Path,
    settings: CurateSettings | None = None,
    replace_earlier: bool = False,
    progress: Report | None = None,
) -> EstimateReport:
    """Say what `curate` would do; nothing is written and no feature is computed.

    Args:
        inputs: What would be curated.
        out: The folder that would be written.
        settings: How; None for the defaults.
        replace_earlier: Whether an earlier result in the folder may be replaced.
        progress: Called with a step, how much of it is done, and how much there is; None for no reports.

    Returns:
        The numbers of patches and of features to compute, and the plan of the sets.

    Raises:
        UserError: As `curate`.
    """
    settings = settings or CurateSettings()
    check_out(
        out, replace=replace_earlier, inputs=[inputs.table, inputs.store, *inputs.tests, *inputs.slides]
    )
    prepared = _prepare(inputs, settings, progress)
    missing: dict[str, int] = {}
    if prepared.store is not None:
        patches = select_patches(prepared.store, prepared.rows)
        for spec in prepared.specs:
            if spec.file is None:
                encoder = make_network_encoder(spec.name, spec.network, spec.weights, device=settings.device)
                missing[spec.name] = count_missing(patches, encoder)
    for spec in prepared.specs:
        if spec.file is not None:
            read_features(spec.file, prepared.rows)
            missing[spec.name] = 0
    return EstimateReport(
        out=out,
        patches=len(prepared.rows),
        groups={name: int((prepared.rows["group"] == name).sum()) for name in GROUPS},
        missing=missing,
        plans=plan_sets(prepared.rows, settings.sets),
        clusterings=(*(spec.name for spec in prepared.specs), SINGLE),
        leaks=tuple(prepared.leaks),
        notes=tuple(prepared.notes),
    )


def _prepare(inputs: CurateInputs, settings: CurateSettings, progress: Report | None) -> _Prepared:
    specs = read_feature_specs(inputs.features, NETWORKS)
    training = read_training_rows(inputs.table)
    computed = [spec.name for spec in specs if spec.file is None]
    if computed and inputs.store is None:
        raise UserError(
            f"the features '{computed[0]}' are computed from pixels, and no store of patches was named",
            fix="Pack the patches (elsewhere slides pack) and name the store: --store FOLDER; or give a table of features.",
        )
    store = None if inputs.store is None else open_store(inputs.store, training.table)
    leaks, notes = _leaks(inputs, training.rows, progress)
    rows = training.rows
    harmful = [leak for leak in leaks if not leak.is_between_folds]
    if harmful and settings.on_leak == "refuse":
        shown = "; ".join(f"{leak.what} ({leak.kind})" for leak in harmful[:_NAMED])
        more = f" and {len(harmful) - _NAMED} more" if len(harmful) > _NAMED else ""
        counted = ", ".join(
            f"{sum(leak.kind == kind for leak in harmful)} {words}"
            for kind, words in KINDS.items()
            if any(leak.kind == kind for leak in harmful)
        )
        raise UserError(
            f"training and test are not apart: {counted}: {shown}{more}",
            where=str(inputs.table),
            fix="Take these slides out of one of the two; or leave them out of training: --on-leak leave-out.",
        )
    if harmful:
        shared = frozenset().union(*(leak.slides for leak in harmful))
        rows = rows[[name not in shared for name in slide_names(rows)]].reset_index(drop=True)
        if rows.empty:
            raise UserError("every slide of training is shared with the test", where=str(inputs.table))
    for leak in leaks:
        if leak.is_between_folds:
            notes.append(
                f"Slides of different patients show the same tissue: {leak.what}. Keep both in one fold."
            )
    if rows["patient_id"].isna().any():
        notes.append("Some patches have no patient: each slide of theirs counts as a patient.")
    return _Prepared(specs=specs, training=training, rows=rows, store=store, leaks=leaks, notes=notes)


def _leaks(inputs: CurateInputs, rows: pd.DataFrame, progress: Report | None) -> tuple[list[Leak], list[str]]:
    notes: list[str] = []
    tests = [read_patch_table(path).rows for path in inputs.tests]
    test = pd.concat(tests, ignore_index=True) if tests else None
    found = [] if test is None else shared_names(rows, test)
    if not inputs.slides:
        if test is not None:
            notes.append(
                "Slides of the same tissue under two names were not searched: name the slides with --slides."
            )
        return found, notes
    parts = [rows] if test is None else [rows, test]
    files = find_slide_files(inputs.slides, parts)
    if files.missing:
        notes.append(
            f"{files.missing:,} slides of the tables were not found among --slides, and not compared with others."
        )
    found += same_tissue(rows, test, files.files, mpp=files.mpp, progress=progress)
    return found, notes


def _cluster(
    spec: FeatureSpec,
    prepared: _Prepared,
    patches: PatchSet | None,
    settings: CurateSettings,
    progress: Report | None,
) -> Clustering:
    rows = prepared.rows
    words, digest, values = _features(spec, rows, patches, settings, progress)
    group_of = rows["group"].to_numpy(dtype=str)
    sites = number_values(rows["site"]) + 1
    labels = np.zeros(len(rows), np.int64)
    shares = np.ones(len(rows))
    made: list[GroupClusters] = []
    threads = max(1, os.cpu_count() or 1)
    for at, group in enumerate(GROUPS):
        inside = group_of == group
        found = single_cluster(group, int(inside.sum()))
        if inside.any():
            part: npt.NDArray[Any] = values[inside]
            if settings.remove_site_mean:
                part = without_site_means(part, sites[inside])
            try:
                found = cluster_group(part, group, replace(settings.clusters, threads=threads))
            except UserError as error:
                raise UserError(f"{spec.name}, {group}: {error.what}", fix=error.fix) from error
        labels[inside], shares[inside] = found.labels, found.shares
        made.append(found)
        if progress is not None:
            progress(f"clusters: {spec.name}", at + 1, len(GROUPS))
    keyed = rows[["dataset", "case_id", "i", "j", "group"]].assign(cluster=labels + 1)
    return Clustering(
        name=spec.name,
        words=words,
        digest=digest,
        labels=labels,
        shares=shares,
        groups=tuple(made),
        hash=content_hash(keyed, text=[name for name in TEXTS if name in keyed.columns]),
    )


def _features(
    spec: FeatureSpec,
    rows: pd.DataFrame,
    patches: PatchSet | None,
    settings: CurateSettings,
    progress: Report | None,
) -> tuple[str, str, Values]:
    if spec.file is not None:
        values = read_features(spec.file, rows)
        digest = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
        return f"table of {values.shape[1]} features", digest, values
    encoder: PatchEncoder = make_network_encoder(
        spec.name, spec.network, spec.weights, device=settings.device
    )
    if patches is None:  # pragma: no cover - refused in _prepare
        raise UserError("no store of patches was named")
    return encoder.words, encoder.digest, compute_features(patches, encoder, progress=progress)


def _attributes(
    rows: pd.DataFrame, patches: PatchSet | None, progress: Report | None
) -> tuple[dict[str, npt.NDArray[np.int64]], list[str]]:
    """What clusters are compared with, by row."""
    slides = pd.Series([f"{dataset}\0{case}" for dataset, case in slide_names(rows)])
    found = {
        "slide": number_values(slides),
        "patient": number_patients(rows),
        "site": number_values(rows["site"]),
    }
    if patches is None:
        return found, ["Sharpness and stain were not measured: no store of patches was named."]
    values = compute_features(patches, Appearance(), progress=progress)
    groups = rows["group"].to_numpy(dtype=str)
    for at, name in enumerate(APPEARANCES):
        part = np.full(len(rows), -1, np.int64)
        for group in GROUPS:
            inside = groups == group
            part[inside] = split_by_rank(values[inside, at])
        found[name] = part
    return found, []


def _audited(
    clustering: Clustering,
    rows: pd.DataFrame,
    attributes: Mapping[str, npt.NDArray[np.int64]],
    settings: CurateSettings,
    progress: Report | None,
) -> Clustering:
    group_of = rows["group"].to_numpy(dtype=str)
    found: list[AuditRow] = []
    stability: list[Stability] = []
    fits = (settings.seeds + 1) * len(GROUPS)
    done = 0

    def fitted() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(f"stability: {clustering.name}", min(done, fits), fits)

    for clusters in clustering.groups:
        inside = group_of == clusters.group
        if not inside.any():
            continue
        values = {name: part[inside] for name, part in attributes.items()}
        found += audit_group(clusters, values, patients=values["patient"], seed=settings.clusters.seed)
        if settings.seeds < 2:
            continue
        one = judge_stability(
            clusters,
            values["patient"],
            seed=settings.clusters.seed,
            seeds=settings.seeds,
            settings=settings.clusters.mixture,
            progress=fitted,
        )
        if one is not None:
            stability.append(one)
    return replace(clustering, audit=tuple(found), stability=tuple(stability))


def _left_out(prepared: _Prepared) -> dict[str, int]:
    left = len(prepared.training.rows) - len(prepared.rows)
    return {"shared with the test": left} if left else {}


def _write(report: CurateReport, rows: pd.DataFrame, prepared: _Prepared, folder: Path) -> None:
    table = prepared.training.table
    made_of = {
        **{name: value for name, value in table.provenance.items() if name != "hash"},
        "patch_table_hash": table.hash,
    }
    (folder / "sets").mkdir()
    by_name = {one.name: one for one in report.clusterings}
    for one in report.sets:
        clustering = by_name.get(one.clustering)
        about = {
            **one.to_dict(),
            "elsewhere": __version__,
            "curation": report.settings,
            "features": None if clustering is None else clustering.words,
            "features_digest": None if clustering is None else clustering.digest,
            "clusters_hash": None if clustering is None else clustering.hash,
            "patch_table_hash": table.hash,
        }
        write_patch_table(
            one.rows, folder / "sets" / f"{one.name}.parquet", provenance={**made_of, "set": about}
        )
        write_json(about, folder / "sets" / f"{one.name}.json")
    clusters = rows[["dataset", "case_id", "i", "j", "group", "type"]].copy()
    for clustering in report.clusterings:
        clusters[f"{clustering.name}_cluster"] = clustering.labels + 1
        clusters[f"{clustering.name}_share"] = clustering.shares
    write_table(clusters, folder / "clusters.parquet")
    audit = [{"clustering": one.name, **row.to_dict()} for one in report.clusterings for row in one.audit]
    if audit:
        write_table(pd.DataFrame(audit), folder / "audit.csv")
    write_table(pd.DataFrame(list(_set_rows(report.sets))), folder / "sets.csv")
    write_json(report.to_dict(), folder / "summary.json")


def _set_rows(sets: Sequence[CuratedSet]) -> Iterator[dict[str, Any]]:
    for one in sets:
        quotas = one.quotas
        yield {
            "name": one.name,
            "clustering": one.clustering,
            "share": one.share,
            "patches": quotas.size,
            "NN": quotas.normal,
            "NT": quotas.normal_of_tumour,
            "TT": quotas.tumour,
            "PT": quotas.partial,
            "FT": quotas.full,
            "partial_of_set": one.partial_of_set,
            "partial_of_tumour": one.partial_of_tumour,
            "hash": one.hash,
        }
