"""What is curated: the rows of a patch table that are for training, features by name, and the slides that they were cut from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort.patch_table import PatchTable, read_patch_table
from elsewhere.commands.slide_patches.cases import SlideCase, find_cases
from elsewhere.curation.clusters import FEWEST, GROUPS, MOST
from elsewhere.curation.features import Values
from elsewhere.curation.leaks import SlideName, slide_names
from elsewhere.curation.sets import SINGLE, canonical_order
from elsewhere.errors import UserError, near_matches
from elsewhere.inputs.patches.spec import StoreSpec
from elsewhere.inputs.patches.store import PatchStore
from elsewhere.tables import is_table, read_table
from elsewhere.untrusted import printable

KEYS = ("dataset", "case_id", "i", "j")
WEIGHTS = "imagenet"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_WEIGHT_WORDS = {"none": "random"}


@dataclass(frozen=True, kw_only=True)
class FeatureSpec:
    """Features that a user asked for.

    Attributes:
        name: What the clustering is called.
        network: An encoder; "" where the features are read from a file.
        weights: "imagenet", "none", or a file of weights.
        file: A table of features; None where an encoder computes them.
    """

    name: str
    network: str = ""
    weights: str = ""
    file: Path | None = None


def read_feature_specs(texts: Sequence[str], networks: Sequence[str]) -> list[FeatureSpec]:
    """Read which features a user asks for.

    Args:
        texts: Each NETWORK, NETWORK:WEIGHTS or FILE, with NAME= in front of it or not.
        networks: The encoders that there are.

    Returns:
        One entry per text.

    Raises:
        UserError: A network is unknown, a file is missing, or a name is there twice or no name.

    Example:
        >>> read_feature_specs(["resnet18:none", "own=mobilenet-v2"], ["resnet18", "mobilenet-v2"])[0].name
        'resnet18-random'
    """
    made = [_read_spec(text, networks) for text in texts]
    names = [spec.name for spec in made]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"two clusterings are called '{name}'", fix="Name each: --features NAME=NETWORK:WEIGHTS."
            )
    return made


def _read_spec(text: str, networks: Sequence[str]) -> FeatureSpec:
    named, equals, rest = text.partition("=")
    name, source = (named.strip(), rest.strip()) if equals and _NAME.fullmatch(named.strip()) else ("", text)
    network, _, weights = source.partition(":")
    if network in networks:
        weights = weights.strip() or WEIGHTS
        default = _WEIGHT_WORDS.get(weights, Path(weights).stem if weights != WEIGHTS else WEIGHTS)
        spec = FeatureSpec(name=name or _as_name(f"{network}-{default}"), network=network, weights=weights)
    elif is_table(source):
        path = Path(source)
        if not path.is_file():
            raise UserError("there is no such file of features", where=source)
        spec = FeatureSpec(name=name or _as_name(path.stem), file=path)
    else:
        close = near_matches(network, networks)
        raise UserError(
            f"'{printable(source)[:80]}' is neither an encoder nor a table of features",
            fix=(f"Did you mean {close[0]}? " if close else "")
            + f"Encoders: {', '.join(networks)}; with weights as resnet18:FILE. Tables end in .parquet or .csv.",
        )
    if not _NAME.fullmatch(spec.name) or spec.name == SINGLE:
        raise UserError(
            f"'{printable(spec.name)[:60]}' cannot be the name of a clustering",
            fix=f"Use letters, digits, '.', '_' and '-', at most 40 of them, and not '{SINGLE}'.",
        )
    return spec


def _as_name(text: str) -> str:
    return _NOT_IN_NAMES.sub("-", text).strip("-.")[:40]


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingRows:
    """The patches that sets are drawn from.

    Attributes:
        table: The patch table.
        rows: Its rows for training whose group and type are known, in canonical order.
        counts: Rows of the table, and those that were left out by reason.
    """

    table: PatchTable
    rows: pd.DataFrame
    counts: Mapping[str, int]


def read_training_rows(path: Path) -> TrainingRows:
    """Read the rows of a patch table that are for training.

    Args:
        path: The patch table.

    Returns:
        The rows.

    Raises:
        UserError: It cannot be read, a patch is in it twice, or no row is for training.
    """
    table = read_patch_table(path)
    rows = table.rows
    training = rows["training"].to_numpy(bool)
    known = rows["group"].isin(GROUPS).to_numpy(bool) & rows["type"].notna().to_numpy(bool)
    used = training & known
    if not used.any():
        raise UserError(
            "no row of the patch table is drawn for training",
            where=str(path),
            fix="Cut slides with annotations: elsewhere slides patches; its column `training` says what is drawn.",
        )
    return TrainingRows(
        table=table,
        rows=canonical_order(rows[used]),
        counts={
            "rows": len(rows),
            "not for training": int((~training).sum()),
            "tumour not known": int((training & ~known).sum()),
        },
    )


def check_grid(table: PatchTable, spec: StoreSpec, *, where: str) -> None:
    """Refuse a store whose patches lie in another grid than those of a table.

    Args:
        table: The patch table.
        spec: What the patches of the store have in common.
        where: The store, for the message.

    Raises:
        UserError: Size, scale or microns per pixel differ; the message names both.
    """
    cut = table.provenance.get("settings")
    if not isinstance(cut, Mapping):
        return
    scale = str(cut.get("scale") or spec.scale)
    size = cut.get("size_px", spec.size)
    mpp = cut.get("patch_mpp", spec.mpp) if scale == "mpp" else None
    close = (
        mpp is None
        or spec.mpp is None
        or (isinstance(mpp, int | float) and abs(float(mpp) - spec.mpp) <= 1e-6 * spec.mpp)
    )
    if scale != spec.scale or size != spec.size or not close:
        at = f"{mpp:g} microns per pixel" if isinstance(mpp, int | float) else "the study's scale"
        raise UserError(
            f"the store holds patches of another grid ({spec.grid_words()}) than the table ({size} px at {at})",
            where=where,
            fix="Name the store that was packed from this table: elsewhere slides pack.",
        )


def open_store(path: Path, table: PatchTable) -> PatchStore:
    """Open the store of a table's patches.

    Args:
        path: The folder of the store.
        table: The patch table.

    Returns:
        The store.

    Raises:
        UserError: It is no store, or one of another grid.
    """
    store = PatchStore(path)
    check_grid(table, store.spec, where=str(path))
    return store


def read_features(path: Path, rows: pd.DataFrame) -> Values:
    """Read features of patches from a table.

    Args:
        path: A table with `case_id`, `i`, `j`, if need be `dataset`, and one column per feature.
        rows: The patches whose features are needed.

    Returns:
        [patches, features], in the order of the rows.

    Raises:
        UserError: A patch is missing or there twice, or a feature is no finite number.
    """
    frame = read_table(path, required=("case_id", "i", "j"), strings=("dataset", "case_id", "patient_id"))
    keys = [name for name in KEYS if name in frame.columns]
    features = [name for name in frame.columns if name not in (*KEYS, "patient_id", "group", "type")]
    if not features:
        raise UserError(
            "the table has no column of features",
            where=str(path),
            fix="Give one column of numbers per feature, beside case_id, i and j.",
        )
    values = np.empty((len(frame), len(features)), np.float32)
    for at, name in enumerate(features):
        numbers = pd.to_numeric(frame[name], errors="coerce").to_numpy(np.float64)
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            raise UserError(
                f"'{printable(frame[name].iloc[int(bad[0])])[:40]}' is no number",
                where=f"{path}, column '{printable(name)[:60]}', row {int(bad[0]) + 1}",
            )
        values[:, at] = numbers
    places = frame[keys].copy()
    for name in ("i", "j"):
        whole = pd.to_numeric(places[name], errors="coerce")
        if whole.isna().any() or (whole % 1 != 0).any():
            raise UserError(f"the column '{name}' holds something else than whole numbers", where=str(path))
        places[name] = whole.astype("int64")
    wanted = rows[keys].copy()
    for part in (places, wanted):
        for name in ("dataset", "case_id"):
            if name in keys:
                part[name] = part[name].fillna("").astype("str")
    wanted[["i", "j"]] = wanted[["i", "j"]].astype("int64")
    twice = places.duplicated()
    if twice.any():
        one = places[twice].iloc[0]
        raise UserError(
            f"{int(twice.sum()):,} patches are in the table twice, such as column {one['i']}, row {one['j']} of "
            f"{printable(one['case_id'])}",
            where=str(path),
        )
    places["_at"] = np.arange(len(places))
    found = wanted.merge(places, on=keys, how="left")["_at"].to_numpy(np.float64)
    missing = np.flatnonzero(np.isnan(found))
    if len(missing):
        one = wanted.iloc[int(missing[0])]
        raise UserError(
            f"{len(missing):,} of {len(wanted):,} patches have no features; the first is column {one['i']}, row "
            f"{one['j']} of {printable(one['case_id'])}",
            where=str(path),
        )
    return values[found.astype(np.int64)]


@dataclass(frozen=True, kw_only=True)
class SlideFiles:
    """The files of the slides of a table.

    Attributes:
        files: The file of each slide.
        mpp: Microns per pixel that are stated, by slide.
        missing: Slides without a file.
    """

    files: Mapping[SlideName, Path]
    mpp: Mapping[SlideName, float]
    missing: int


def find_slide_files(paths: Sequence[Path], rows: Sequence[pd.DataFrame]) -> SlideFiles:
    """Find the files of the slides that rows were cut from.

    Args:
        paths: Slides, folders of slides, or one cohort.
        rows: Rows of patch tables.

    Returns:
        The files.

    Raises:
        UserError: Nothing is there, or two files have one name.
    """
    known: dict[SlideName, SlideCase] = {}
    alone: dict[str, list[SlideCase]] = {}
    for case in find_cases(paths).cases:
        name = case.facts.case_id.strip().casefold()
        known[case.facts.dataset, name] = case
        alone.setdefault(name, []).append(case)
    files: dict[SlideName, Path] = {}
    mpp: dict[SlideName, float] = {}
    wanted = {name for part in rows for name in slide_names(part)}
    for slide in sorted(wanted):
        name = slide[1].strip().casefold()
        same = alone.get(name, [])
        found = known.get((slide[0], name), same[0] if len(same) == 1 else None)
        if found is None or found.slide is None:
            continue
        files[slide] = found.slide
        if isinstance(found.mpp, float):
            mpp[slide] = found.mpp
    return SlideFiles(files=files, mpp=mpp, missing=len(wanted) - len(files))


def number_values(values: pd.Series) -> npt.NDArray[np.int64]:
    """Number the values of a column.

    Args:
        values: The column.

    Returns:
        A number per row, from 0; -1 where it is missing.

    Example:
        >>> number_values(pd.Series(["b", None, "a"])).tolist()
        [1, -1, 0]
    """
    return pd.factorize(values, sort=True)[0].astype(np.int64)


def read_cluster_numbers(text: str) -> tuple[int, int, dict[str, int]]:
    """Read which numbers of clusters a user asks for.

    Args:
        text: FROM-TO, such as 2-10; one number for all groups; or GROUP=NUMBER, comma-separated.

    Returns:
        The smallest and the largest number that are tried, and the stated numbers by group.

    Raises:
        UserError: It is none of these.

    Example:
        >>> read_cluster_numbers("2-10"), read_cluster_numbers("NN=6,TT=5")
        ((2, 10, {}), (2, 10, {'NN': 6, 'TT': 5}))
    """
    plain = text.replace(" ", "")
    if found := re.fullmatch(r"(\d{1,4})-(\d{1,4})", plain):
        return int(found[1]), int(found[2]), {}
    if re.fullmatch(r"\d{1,4}", plain):
        return FEWEST, MOST, dict.fromkeys(GROUPS, int(plain))
    stated = {}
    for part in plain.split(","):
        found = re.fullmatch(r"([A-Za-z]{2})=(\d{1,4})", part)
        if found is None or found[1].upper() not in GROUPS or found[1].upper() in stated:
            raise UserError(
                f"'{printable(text)[:60]}' is no number of clusters",
                fix=f"Give a range such as 2-10, one number, or numbers by group: {','.join(f'{g}=6' for g in GROUPS)}.",
            )
        stated[found[1].upper()] = int(found[2])
    return FEWEST, MOST, stated
