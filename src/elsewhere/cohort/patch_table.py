"""The patch table: one row per patch of a slide, with its tissue, its tumour, its group and whether it is for training.

Types (LN-05): `FT` all tumour, `FN` none, `PT` in between. Groups (LN-04): `TT` a patch with tumour, `NT` one without in a slide with
tumour, `NN` one in a slide without. Any tumour makes a tumour patch; one with less than 10 % is left out of training and
kept for tests (LN-02). Drawn for training are all tumour patches of at least 10 %, as many `NT` of the same slide, and 500 `NN` per slide.
Every slide is drawn from a generator of its own, so that a draw does not depend on the other slides.

What a table was made of stands in its metadata: settings, digests of slides and annotations, and the hash of the rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq

from elsewhere.errors import UserError, check_seed
from elsewhere.inputs.slides.grid import PatchGrid
from elsewhere.tables import content_hash, read_table, write_table
from elsewhere.tables.identifiers import note_ids
from elsewhere.untrusted import parse_json

COLUMNS = (
    "dataset", "patient_id", "case_id", "i", "j", "x", "y", "mpp", "tissue", "tumour", "group", "type", "stage", "site",
    "domain", "training",
)  # fmt: skip
TEXTS = ("dataset", "patient_id", "case_id", "group", "type", "stage", "site", "domain")
METADATA_KEY = "elsewhere"
LEAST_TISSUE = 0.1
LEAST_TUMOUR = 0.1
NORMALS_PER_SLIDE = 500
NORMAL_STAGES = ("negative", "normal")
TUMOUR_STAGES = ("macro", "micro", "itc")
_MOST_METADATA = 64 << 20


@dataclass(frozen=True, kw_only=True)
class SlideFacts:
    """What the rows of a slide have in common. Empty text stands for what is not known.

    Attributes:
        dataset: The dataset.
        patient_id: The patient.
        case_id: The slide.
        stage: macro, micro, itc or negative.
        site: The hospital.
        domain: Whether slides of this kind trained the model.
    """

    dataset: str
    patient_id: str
    case_id: str
    stage: str = ""
    site: str = ""
    domain: str = ""

    @property
    def key(self) -> str:
        """Dataset and case: what a slide is called in draws and orders."""
        return f"{self.dataset}\0{self.case_id}"


@dataclass(frozen=True, kw_only=True)
class PatchRules:
    """Which patches are kept and drawn.

    Attributes:
        least_tissue: The tissue share that a patch without tumour needs.
        least_tumour: The tumour share that a tumour patch needs for training.
        normals_per_slide: Patches drawn from a slide without tumour.
        seed: Seed of the draw.

    Raises:
        UserError: A share is not from 0 to 1, or a number is negative.
    """

    least_tissue: float = LEAST_TISSUE
    least_tumour: float = LEAST_TUMOUR
    normals_per_slide: int = NORMALS_PER_SLIDE
    seed: int = 42

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name in ("least_tissue", "least_tumour"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise UserError(f"{name} is {value}", fix="Give a share from 0 to 1.")
        if self.normals_per_slide < 0:
            raise UserError(f"normals_per_slide is {self.normals_per_slide}", fix="Give 0 or more.")


@dataclass(frozen=True, kw_only=True)
class PatchTable:
    """Patches and what they were made of.

    Attributes:
        rows: The rows, in the columns `COLUMNS`.
        provenance: Settings, slides and software; empty where the file has none.
        hash: SHA-256 of the rows' content.
    """

    rows: pd.DataFrame
    provenance: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    hash: str = ""


def patch_types(tumour: npt.NDArray[np.float64]) -> npt.NDArray[np.str_]:
    """Name the type of patches (LN-05).

    Args:
        tumour: The tumour share of each patch.

    Returns:
        FT, PT or FN; empty where the share is not known.

    Example:
        >>> patch_types(np.array([1.0, 0.3, 0.0, np.nan])).tolist()
        ['FT', 'PT', 'FN', '']
    """
    return np.select([tumour >= 1, tumour > 0, tumour == 0], ["FT", "PT", "FN"], default="")


def slide_generator(facts: SlideFacts, seed: int) -> np.random.Generator:
    """Make the generator of a slide, which depends on its name and the seed alone.

    Args:
        facts: The slide.
        seed: The seed.

    Returns:
        The generator.

    Example:
        >>> one = SlideFacts(dataset="a", patient_id="p", case_id="c")
        >>> bool(slide_generator(one, 1).random() == slide_generator(one, 1).random())
        True
    """
    digest = hashlib.sha256(facts.key.encode("utf-8", "surrogatepass")).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest, "<u4").tolist()])


def compose_rows(
    facts: SlideFacts,
    grid: PatchGrid,
    tissue: npt.NDArray[np.float32] | None,
    tumour: npt.NDArray[np.float64] | None,
    rules: PatchRules | None = None,
) -> pd.DataFrame:
    """Make the rows of a slide: patches with enough tissue, and all with tumour.

    Args:
        facts: The slide.
        grid: Its patches.
        tissue: [rows, columns]; None where the slide itself is not there: then only patches with tumour have rows.
        tumour: [rows, columns]; None where it is not known.
        rules: Which patches are kept and drawn; None for the defaults.

    Returns:
        The rows, line by line from the upper left corner.

    Example:
        >>> grid = PatchGrid(scale="mpp", size_px=256, mpp=0.5, patch_px=512.0, columns=3, rows=1)
        >>> facts = SlideFacts(dataset="a", patient_id="p", case_id="c")
        >>> made = compose_rows(facts, grid, np.array([[0.5, 0.05, 0.05]], "f4"), np.array([[0, 0.04, 0.0]]))
        >>> made[["i", "x", "group", "type", "training"]].values.tolist()
        [[0, 0.0, 'NT', 'FN', False], [1, 512.0, 'TT', 'PT', False]]
    """
    rules = rules or PatchRules()
    keep = np.zeros((grid.rows, grid.columns), bool)
    if tissue is not None:
        keep |= tissue >= np.float32(rules.least_tissue)
    if tumour is not None:
        keep |= tumour > 0
    j, i = np.nonzero(keep)
    count = len(i)
    share = np.full(count, np.nan) if tumour is None else tumour[keep]
    has_tumour = tumour is not None and bool((tumour > 0).any())
    of_tumour_slide = has_tumour or facts.stage.casefold() in TUMOUR_STAGES
    groups = np.select(
        [np.isnan(share), share > 0], ["", "TT"], default="NT" if of_tumour_slide else "NN"
    ).astype(object)
    texts = {
        name: np.full(count, getattr(facts, name), dtype=object)
        for name in TEXTS
        if name not in ("group", "type")
    }
    columns: dict[str, Any] = texts | {
        "i": i.astype(np.int32),
        "j": j.astype(np.int32),
        "x": i * grid.patch_px,
        "y": j * grid.patch_px,
        "mpp": np.full(count, grid.mpp),
        "tissue": np.full(count, np.nan, np.float32) if tissue is None else tissue[keep],
        "tumour": share.astype(np.float32),
        "group": groups,
        "type": patch_types(share).astype(object),
        "training": _drawn(facts, share, groups, rules),
    }
    return typed_rows(pd.DataFrame({name: columns[name] for name in COLUMNS}))


def _drawn(
    facts: SlideFacts, share: npt.NDArray[np.float64], groups: npt.NDArray[Any], rules: PatchRules
) -> npt.NDArray[np.bool_]:
    """The patches for training (LN-04). Fewer are a part of more: every patch has its rank."""
    tumour = (groups == "TT") & (share >= rules.least_tumour)
    normal = np.flatnonzero((groups == "NN") | (groups == "NT"))
    wanted = int(tumour.sum()) if (groups == "NT").any() else rules.normals_per_slide
    ranks = slide_generator(facts, rules.seed).permutation(len(normal))
    drawn = tumour.copy()
    drawn[normal[ranks < wanted]] = True
    return drawn


def typed_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Give the columns of a patch table their types; empty text becomes missing.

    Args:
        frame: The rows.

    Returns:
        The rows in the order of `COLUMNS`.

    Example:
        >>> typed_rows(pd.DataFrame({name: [] for name in COLUMNS})).dtypes["i"]
        dtype('int32')
    """
    made: dict[str, pd.Series] = {}
    for name in COLUMNS:
        column = frame[name]
        if name in TEXTS:
            made[name] = column.astype("str").where(column.notna() & (column != ""), None).astype("str")
        elif name in ("i", "j"):
            made[name] = column.astype("int32")
        elif name == "training":
            made[name] = column.astype("bool")
        else:
            made[name] = column.astype("float32" if name in ("tissue", "tumour") else "float64")
    return pd.DataFrame(made, columns=list(COLUMNS))


def summarise_rows(rows: pd.DataFrame, *, least_tumour: float = LEAST_TUMOUR) -> dict[str, Any]:
    """Count patches by group and by type.

    Args:
        rows: The rows.
        least_tumour: The tumour share that a tumour patch needs for training.

    Returns:
        `patches`, `groups`, `types`, tumour patches `under_least`, and those for `training` by group.

    Example:
        >>> summarise_rows(typed_rows(pd.DataFrame({name: [] for name in COLUMNS})))["groups"]
        {'NN': 0, 'NT': 0, 'TT': 0, 'unknown': 0}
    """

    def counted(column: pd.Series, names: Sequence[str]) -> dict[str, int]:
        found = column.value_counts()
        return {name: int(found.get(name, 0)) for name in names} | {"unknown": int(column.isna().sum())}

    little = (rows["tumour"] > 0) & (rows["tumour"] < least_tumour)
    drawn = rows.loc[rows["training"], "group"].value_counts()
    return {
        "patches": len(rows),
        "groups": counted(rows["group"], ("NN", "NT", "TT")),
        "types": counted(rows["type"], ("FT", "PT", "FN")),
        "under_least": int(little.sum()),
        "training": {name: int(drawn.get(name, 0)) for name in ("NN", "NT", "TT")},
    }


def write_patch_table(rows: pd.DataFrame, path: str | Path, *, provenance: Mapping[str, Any]) -> PatchTable:
    """Write a patch table as parquet; the same rows and provenance give the same bytes.

    Args:
        rows: The rows.
        path: The file to write; one that exists is replaced.
        provenance: What the rows were made of.

    Returns:
        The table with its hash, which is in the file's metadata.

    Raises:
        UserError: The file's ending is not .parquet.

    Example:
        >>> import tempfile
        >>> rows = typed_rows(pd.DataFrame({name: [] for name in COLUMNS}))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     made = write_patch_table(rows, Path(folder) / "a.parquet", provenance={"seed": 1})
        ...     read_patch_table(Path(folder) / "a.parquet").hash == made.hash
        True
    """
    path = Path(path)
    check_ending(path)
    rows = typed_rows(rows)
    table = PatchTable(rows=rows, provenance=dict(provenance), hash=rows_hash(rows))
    text = json.dumps(
        {"hash": table.hash, **table.provenance}, sort_keys=True, ensure_ascii=True, allow_nan=False
    )
    write_table(rows, path, metadata={METADATA_KEY: text})
    return table


def check_ending(path: Path) -> None:
    """Refuse a name of a patch table that does not end in .parquet.

    Args:
        path: The file.

    Raises:
        UserError: It ends otherwise.

    Example:
        >>> check_ending(Path("patches.parquet"))
    """
    if path.suffix.lower() not in (".parquet", ".pq"):
        raise UserError(
            "a patch table is a parquet file", where=str(path), fix="Give a name that ends in .parquet."
        )


def rows_hash(rows: pd.DataFrame) -> str:
    """Compute the hash of a patch table's rows; their order and the file's format do not count.

    Args:
        rows: The rows.

    Returns:
        SHA-256, in hexadecimal.

    Example:
        >>> len(rows_hash(typed_rows(pd.DataFrame({name: [] for name in COLUMNS}))))
        64
    """
    return content_hash(rows, text=TEXTS)


def read_patch_table(path: str | Path) -> PatchTable:
    """Read a patch table and check its hash.

    Args:
        path: The parquet file.

    Returns:
        The table. Its ids are noted, so that nothing that is shared prints them.

    Raises:
        UserError: It cannot be read, lacks columns, or its rows were changed after it was written.

    Example:
        >>> read_patch_table("patches.csv")
        Traceback (most recent call last):
        elsewhere.errors.UserError: patches.csv: a patch table is a parquet file
        Give a name that ends in .parquet.
    """
    path = Path(path)
    check_ending(path)
    rows = typed_rows(read_table(path, required=COLUMNS, strings=TEXTS, allow_empty=True))
    note_ids(rows["patient_id"], rows["case_id"])
    provenance = _metadata(path)
    stated, found = provenance.pop("hash", None), rows_hash(rows)
    if stated is not None and stated != found:
        raise UserError(
            "the rows of this patch table were changed after it was written",
            where=str(path),
            fix="Cut the slides again: elsewhere slides patches.",
        )
    return PatchTable(rows=rows, provenance=provenance, hash=found)


def _metadata(path: Path) -> dict[str, Any]:
    with path.open("rb") as source:
        found = (pq.read_schema(source).metadata or {}).get(METADATA_KEY.encode(), b"{}")
    if len(found) > _MOST_METADATA:
        raise UserError("the metadata of this patch table is too large", where=str(path))
    tree = parse_json(
        found.decode("utf-8", "replace"), where=str(path), what="metadata of the patch table", any_name=True
    )
    if not isinstance(tree, dict):
        raise UserError("the metadata of this patch table is no object", where=str(path))
    return tree
