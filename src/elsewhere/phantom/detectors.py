"""Synthetic findings of many lesion detectors in tomosynthesis, without pixels: truth tables and prediction files.

A world has patients of several vendors in a validation and a test split, with the lesions of BCS-DBT: sizes, depths,
architectural distortion, and one lesion in the CC and the MLO view of a breast. The finders differ in ability,
in false positives, in the scale of their scores, in how exactly their boxes lie and in what they write as `Depth`.
What is hard for one is hard for all: a lesion's difficulty is shared, and so are the places that look like a lesion.
Their own errors are independent, which is why merging helps.

Planted: at vendor B each finder loses the given share of the lesions in dense breasts. Everything else is drawn
alike, so that a world and its twin without the drop differ in the lost lesions alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions.boxes import BoxPredictions, boxes_from_frame
from elsewhere.predictions.dbtex import DBTEX_COLUMNS

FloatArray = npt.NDArray[np.float64]
SPLITS = ("validation", "test")
FINDINGS = ("normal", "actionable", "benign", "cancer")
DENSITIES = ("A", "B", "C", "D")
DENSE = ("C", "D")
SITES = ("Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir")
"""The hospital of each vendor, in the order of the vendors."""
NAMES = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "mu",
)
ROWS, COLUMNS = 2457, (1996, 1890)
SCALES = ("0-1", "0-100", "percentile", "logarithm")
VIEWS = ("lcc", "lmlo", "rcc", "rmlo")
MOST_PATIENTS = 20_000
MOST_FINDERS = 60
_FIRST: tuple[tuple[float, float, float, str, int, float], ...] = (
    (1.4, 3.0, 14.0, "0-1", 8, 0.0),
    (1.2, 5.0, 22.0, "0-100", 5, 0.0),
    (1.25, 2.0, 16.0, "percentile", 10, 0.0),
    (1.1, 6.0, 26.0, "logarithm", 4, 0.1),
    (1.0, 4.0, 18.0, "0-1", -1, 0.0),
    (0.9, 9.0, 30.0, "0-100", 0, 0.2),
    (0.7, 2.0, 22.0, "0-1", 12, 0.0),
    (0.2, 6.0, 30.0, "percentile", 6, 0.0),
)
"""Ability, false positives, jitter, scale, depth and doubles of the first finders."""
_REPEATED = 0.03
_SECOND_STUDY = 0.1


@dataclass(frozen=True, kw_only=True)
class Finder:
    """One synthetic detector.

    Args:
        name: Its name, which is the name of its file.
        ability: How much higher it scores lesions than the average finder, in standard deviations.
        false_positives: Boxes per volume at places of its own, on average.
        jitter_px: Standard deviation of the centre of its boxes, in pixels.
        scale: The scale of its scores, one of `SCALES`; 'logarithm' has negative scores alone.
        depth: The depth that it writes: a number of slices, or -1 or 0 as some published files have.
        doubles: The share of its boxes that it writes twice, a few slices and pixels apart.
    """

    name: str
    ability: float
    false_positives: float
    jitter_px: float
    scale: str
    depth: int
    doubles: float = 0.0


@dataclass(frozen=True, kw_only=True)
class DetectorWorld:
    """What a world of finders is made from.

    Args:
        patients: Number of patients in each of the two splits, divided among the vendors in turn.
        finders: Number of finders, 1 to 60.
        vendors: Names of the vendors; each is a hospital of its own.
        drop: Share of the lesions in dense breasts at vendor B that each finder loses; 0: none.
        mix: Shares of normal, actionable, benign and cancer patients.
        false_positives: Factor on the false positives of all finders.
        boxless: Number of finders that find nothing: their files hold a header alone.
        seed: The seed of every draw.

    Raises:
        UserError: A number or share is out of range, or two vendors have one name.

    Example:
        >>> [finder.name for finder in DetectorWorld(finders=3).finders_drawn()]
        ['alpha', 'beta', 'gamma']
    """

    patients: int = 100
    finders: int = 8
    vendors: tuple[str, ...] = ("A", "B")
    drop: float = 0.0
    mix: tuple[float, ...] = (0.25, 0.15, 0.28, 0.32)
    false_positives: float = 1.0
    boxless: int = 0
    seed: int = 1

    def __post_init__(self) -> None:
        most = (("patients", self.patients, MOST_PATIENTS), ("finders", self.finders, MOST_FINDERS))
        for name, value, limit in most:
            if not 1 <= value <= limit:
                raise UserError(f"{value} {name}", where=f"--{name}", fix=f"A number from 1 to {limit:,}.")
        named = {name.strip().casefold() for name in self.vendors}
        if not self.vendors or "" in named or len(named) != len(self.vendors):
            raise UserError("every vendor needs a name of its own", where="--vendors", fix="E.g. A,B.")
        if len(self.vendors) > min(len(SITES), self.patients):
            raise UserError(
                f"{len(self.vendors)} vendors for {self.patients} patients in each split",
                where="--vendors",
                fix=f"At most {len(SITES)} vendors, and no fewer patients than vendors.",
            )
        if not 0.0 <= self.drop <= 1.0:
            raise UserError(f"a drop of {self.drop:g}", where="--drop", fix="A share from 0 to 1.")
        shares = np.asarray(self.mix, dtype=float)
        if shares.shape != (4,) or not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
            raise UserError(
                f"the mix {','.join(f'{share:g}' for share in self.mix)}",
                where="--mix",
                fix="Four shares of 0 or more: normal, actionable, benign and cancer patients.",
            )
        if not 0.0 <= self.false_positives <= 100.0:
            raise UserError(
                f"a factor of {self.false_positives:g} on the false positives",
                where="--false-positives",
                fix="A number from 0 to 100.",
            )
        if not 0 <= self.boxless <= self.finders:
            raise UserError(
                f"{self.boxless} of {self.finders} finders without a box",
                where="--boxless",
                fix="At most as many as there are finders.",
            )

    def finders_drawn(self) -> tuple[Finder, ...]:
        """List the finders: the first eight are the same in every world, the ones after them are drawn.

        Returns:
            The finders in the order of their names.
        """
        return tuple(self._finder(at) for at in range(self.finders))

    def _finder(self, at: int) -> Finder:
        name = NAMES[at] if at < len(NAMES) else f"finder{at + 1:02d}"
        if at < len(_FIRST):
            ability, false, jitter, scale, depth, doubles = _FIRST[at]
        else:
            rng = np.random.default_rng([self.seed, 11, at])
            ability, false, jitter = (
                float(v) for v in (rng.normal(0.6, 0.5), rng.uniform(1, 12), rng.uniform(12, 40))
            )
            scale, depth, doubles = SCALES[at % len(SCALES)], int(rng.integers(3, 14)), 0.0
        return Finder(
            name=name,
            ability=ability,
            false_positives=false * self.false_positives,
            jitter_px=jitter,
            scale=scale,
            depth=depth,
            doubles=doubles,
        )


@dataclass(frozen=True, kw_only=True)
class DetectorTables:
    """The truth of a world, and what each finder says.

    Args:
        world: What it was made from.
        finders: The finders.
        cases: One row per volume, in the form of the cohort table, with `split`, `site`, `vendor`,
            `breast_density`, `finding` and the extent of the volume.
        lesions: One row per lesion and volume, in the form of the cohort's lesion table; `subject` numbers the
            lesions of a patient, so that it links the views of one lesion.
        predictions: The boxes by the name of the finder and the split, in the columns of DBTex's csv.
        lost: The lesions that the planted drop takes from each finder, as pairs of case id and lesion id.
    """

    world: DetectorWorld
    finders: tuple[Finder, ...]
    cases: pd.DataFrame
    lesions: pd.DataFrame
    predictions: Mapping[str, Mapping[str, pd.DataFrame]]
    lost: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def cohort(self, split: str | None = None) -> Cohort:
        """Make the cohort of one split, or of all.

        Args:
            split: 'validation' or 'test'; None for both.

        Returns:
            The cohort, with the reader 'bcs-dbt', so that the challenge's rules score it.

        Example:
            >>> world = DetectorWorld(patients=4, finders=1)
            >>> made = draw_detectors(world)
            >>> set(made.cohort("test").cases["split"])
            {'test'}
        """
        whole = Cohort.from_frame(self.cases, lesions=self.lesions, reader="bcs-dbt", synthetic=True)
        return whole if split is None else whole.subset((whole.cases["split"] == split).to_numpy(dtype=bool))

    def boxes(self, finder: str, split: str) -> BoxPredictions:
        """Read what a finder says, as if it came from its file.

        Args:
            finder: The name of the finder.
            split: 'validation' or 'test'.

        Returns:
            Its boxes, checked.
        """
        return boxes_from_frame(self.predictions[finder][split], source=f"{finder}.csv")

    def labels(self, split: str) -> pd.DataFrame:
        """Make the published table of labels of one split.

        Args:
            split: 'validation' or 'test'.

        Returns:
            One row per volume, with the columns of BCS-DBT.
        """
        cases = self.cases[self.cases["split"] == split]
        table = pd.DataFrame(
            {"PatientID": cases["patient_id"], "StudyUID": cases["exam_id"], "View": cases["view"]}
        )
        for name in FINDINGS:
            table[name.capitalize()] = (cases["finding"] == name).astype("int64")
        return table.reset_index(drop=True)

    def truth_boxes(self, split: str) -> pd.DataFrame:
        """Make the published table of boxes of one split.

        Args:
            split: 'validation' or 'test'.

        Returns:
            One row per lesion and volume, with the columns of BCS-DBT.
        """
        cases = self.cases[self.cases["split"] == split].set_index("case_id")
        mine = self.lesions[self.lesions["case_id"].isin(cases.index)]
        of = cases.loc[mine["case_id"]]
        table = pd.DataFrame(
            {
                "PatientID": of["patient_id"].to_numpy(),
                "StudyUID": of["exam_id"].to_numpy(),
                "View": of["view"].to_numpy(),
            }
        )
        for published, own in (
            ("Subject", "subject"), ("Slice", "slice"), ("X", "x"), ("Y", "y"), ("Width", "width"), ("Height", "height"),
            ("Class", "class"), ("AD", "ad"), ("VolumeSlices", "volume_slices"),
        ):  # fmt: skip
            table[published] = mine[own].to_numpy()
        return table


def draw_detectors(world: DetectorWorld | None = None) -> DetectorTables:
    """Draw a world of finders in memory.

    Args:
        world: What to make; None for the defaults of `DetectorWorld`.

    Returns:
        Its tables.

    Example:
        >>> made = draw_detectors(DetectorWorld(patients=6, finders=2, seed=3))
        >>> sorted(made.predictions), list(made.predictions["alpha"]), len(made.cases) >= 48
        (['alpha', 'beta'], ['validation', 'test'], True)
    """
    world = world or DetectorWorld()
    finders = world.finders_drawn()
    cases, lesions = [], []
    said: dict[str, dict[str, pd.DataFrame]] = {finder.name: {} for finder in finders}
    lost: dict[str, tuple[tuple[str, str], ...]] = {finder.name: () for finder in finders}
    for number, split in enumerate(SPLITS):
        rng = np.random.default_rng([world.seed, 7, number])
        mine, marks = _truth(world, split, first=number * world.patients, rng=rng)
        look = _lookalikes(mine, rng)
        for at, finder in enumerate(finders):
            own = np.random.default_rng([world.seed, 13, number, at])
            table, gone = _say(world, finder, mine, marks, look, own)
            said[finder.name][split] = table.iloc[:0] if at >= world.finders - world.boxless else table
            lost[finder.name] += gone
        cases.append(mine)
        lesions.append(marks)
    return DetectorTables(
        world=world,
        finders=finders,
        cases=pd.concat(cases, ignore_index=True),
        lesions=pd.concat(lesions, ignore_index=True).drop(columns="difficulty"),
        predictions=said,
        lost=lost,
    )


def _truth(
    world: DetectorWorld, split: str, *, first: int, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The volumes of one split, and their lesions with a difficulty that all finders share."""
    shares = np.asarray(world.mix, dtype=float) / sum(world.mix)
    cases: list[dict[str, object]] = []
    marks: list[dict[str, object]] = []
    for number in range(first, first + world.patients):
        vendor = (number - first) % len(world.vendors)
        finding = FINDINGS[int(rng.choice(4, p=shares))]
        density = DENSITIES[int(rng.choice(4, p=[0.10, 0.35, 0.35, 0.20]))]
        side = "lr"[int(rng.integers(2))]
        patient = {
            "patient_id": f"DBT-P{number + 1:05d}",
            "dataset": "BCS-DBT",
            "site": SITES[vendor],
            "vendor": world.vendors[vendor],
            "breast_density": density,
            "split": split,
            "modality": "tomosynthesis",
        }
        findings = _findings(finding, density, rng)
        earlier = rng.random() < _SECOND_STUDY
        for study in range(2 if earlier else 1):
            exam = f"DBT-S{2 * number + study + 1:05d}"
            views = [*VIEWS]
            if rng.random() < 4 * _REPEATED:
                views.append(f"{VIEWS[int(rng.integers(4))]}2")
            for view in views:
                shows = view[0] == side and study == int(earlier)
                slices = int(np.clip(rng.normal(73, 15), 24, 114))
                case = f"{exam}/{view}"
                cases.append(
                    {
                        "case_id": case,
                        **patient,
                        "exam_id": exam,
                        "view": view,
                        "laterality": {"l": "left", "r": "right"}[view[0]],
                        "finding": finding if shows else "normal",
                        "label": int(shows and finding == "cancer"),
                        "volume_slices": slices,
                        "image_width": COLUMNS[vendor % 2],
                        "image_height": ROWS,
                    }
                )
                if shows:
                    marks += _marks(findings, case, slices, COLUMNS[vendor % 2], rng)
    columns = ["case_id", "lesion_id", "x", "y", "width", "height", "slice", "volume_slices", "class", "ad", "subject", "difficulty"]  # fmt: skip
    return pd.DataFrame(cases), pd.DataFrame(marks, columns=columns)


def _findings(finding: str, density: str, rng: np.random.Generator) -> list[dict[str, float | str]]:
    """The biopsied lesions of a patient: one, now and then two."""
    if finding not in ("benign", "cancer"):
        return []
    made: list[dict[str, float | str]] = []
    for _ in range(2 if rng.random() < 0.12 else 1):
        distortion = float(rng.random() < 0.34)
        diagonal = float(np.clip(np.exp(rng.normal(np.log(299.0), 0.52)), 83, 929))
        hard = 0.9 * rng.normal() + 0.6 * distortion - 0.8 * np.log(diagonal / 299.0)
        made.append(
            {
                "class": finding,
                "ad": distortion,
                "diagonal": diagonal,
                "shape": float(np.exp(rng.normal(0.0, 0.2))),
                "difficulty": float(
                    hard + (0.35 if density in DENSE else 0.0) - (0.3 if finding == "cancer" else 0.0)
                ),
                "height": float(rng.uniform(0.2, 0.8)),
                "depth": float(np.clip(rng.normal(0.42, 0.16), 0.08, 0.92)),
            }
        )
    return made


def _marks(
    findings: list[dict[str, float | str]], case: str, slices: int, columns: int, rng: np.random.Generator
) -> list[dict[str, object]]:
    """The boxes of a patient's lesions in one view."""
    made: list[dict[str, object]] = []
    for subject, one in enumerate(findings):
        noise = rng.normal(size=4)
        diagonal = float(np.clip(float(one["diagonal"]) * np.exp(0.12 * noise[0]), 83, 929))
        angle = np.arctan(float(one["shape"]) * np.exp(0.1 * noise[1]))
        width, height = (
            max(20, round(float(v))) for v in (diagonal * np.cos(angle), diagonal * np.sin(angle))
        )
        reach = rng.uniform(0.15, 0.55) * columns
        centre_x = reach if "/l" in case else columns - reach
        centre_y = (float(one["height"]) + 0.05 * noise[2]) * ROWS
        if rng.random() < 0.06 and subject == 0 and len(findings) > 1:
            continue
        made.append(
            {
                "case_id": case,
                "lesion_id": f"{case}/{len(made) + 1}",
                "x": int(np.clip(centre_x - width / 2, 0, columns - width)),
                "y": int(np.clip(centre_y - height / 2, 0, ROWS - height)),
                "width": width,
                "height": height,
                "slice": int(np.clip(round(float(one["depth"]) * slices + noise[3]), 4, slices - 5)),
                "volume_slices": slices,
                "class": one["class"],
                "ad": int(one["ad"]),
                "subject": subject,
                "difficulty": float(one["difficulty"]) + 0.45 * rng.normal(),
            }
        )
    return made


def _lookalikes(cases: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Places that look like a lesion to every finder: about five in two volumes."""
    row = np.repeat(np.arange(len(cases)), rng.poisson(2.5, len(cases)))
    return _places(cases, row, rng).assign(suspicion=rng.normal(-0.9, 0.75, row.size))


def _places(cases: pd.DataFrame, row: npt.NDArray[np.int64], rng: np.random.Generator) -> pd.DataFrame:
    """Boxes somewhere in the breast of some volumes, one per row number."""
    n = row.size
    columns = cases["image_width"].to_numpy(dtype=float)[row]
    slices = cases["volume_slices"].to_numpy(dtype=float)[row]
    left = (cases["laterality"] == "left").to_numpy(dtype=bool)[row]
    diagonal = np.clip(np.exp(rng.normal(np.log(260.0), 0.5, n)), 60, 929)
    angle = np.arctan(np.exp(rng.normal(0.0, 0.25, n)))
    reach = rng.uniform(0.08, 0.6, n) * columns
    return pd.DataFrame(
        {
            "row": row,
            "x": np.where(left, reach, columns - reach),
            "y": rng.uniform(0.1, 0.9, n) * ROWS,
            "width": diagonal * np.cos(angle),
            "height": diagonal * np.sin(angle),
            "slice": np.clip(rng.normal(0.45, 0.2, n), 0.05, 0.95) * slices,
        }
    )


def _say(
    world: DetectorWorld,
    finder: Finder,
    cases: pd.DataFrame,
    lesions: pd.DataFrame,
    look: pd.DataFrame,
    rng: np.random.Generator,
) -> tuple[pd.DataFrame, tuple[tuple[str, str], ...]]:
    """What a finder writes about one split, and the lesions that it loses by the planted drop."""
    index = pd.Index(cases["case_id"])
    n = len(lesions)
    row = index.get_indexer(pd.Index(lesions["case_id"])).astype(np.int64)
    seen = finder.ability - 1.3 - lesions["difficulty"].to_numpy(dtype=float) + 1.05 * rng.normal(size=n)
    chance = rng.random(n)
    in_drop = (cases["vendor"] == "B").to_numpy(dtype=bool) & cases["breast_density"].isin(DENSE).to_numpy(
        dtype=bool
    )
    drops = in_drop[row] & (chance < world.drop) if n else np.zeros(0, dtype=bool)
    true = pd.DataFrame(
        {
            "row": row,
            "x": lesions["x"].to_numpy(dtype=float) + lesions["width"].to_numpy(dtype=float) / 2,
            "y": lesions["y"].to_numpy(dtype=float) + lesions["height"].to_numpy(dtype=float) / 2,
            "width": lesions["width"].to_numpy(dtype=float),
            "height": lesions["height"].to_numpy(dtype=float),
            "slice": lesions["slice"].to_numpy(dtype=float),
            "logit": 1.6 * seen,
        }
    )
    known = 1.2 * (
        look["suspicion"].to_numpy(dtype=float) + 1.1 * rng.normal(size=len(look)) - 0.5 * finder.ability
    )
    alike = look.drop(columns="suspicion").assign(logit=known)
    strange = np.repeat(np.arange(len(cases)), rng.poisson(finder.false_positives, len(cases)))
    own = _places(cases, strange, rng)
    own["logit"] = 1.2 * (rng.normal(-2.3, 0.9, strange.size) - 0.25 * finder.ability)
    said = pd.concat([true, alike, own], ignore_index=True)
    jitter = rng.normal(0.0, finder.jitter_px, (len(said), 2))
    stretch = np.exp(rng.normal(0.0, 0.12, (len(said), 2)))
    steps = rng.normal(0.0, 2.0, len(said))
    said["x"] += jitter[:, 0]
    said["y"] += jitter[:, 1]
    said["width"] *= stretch[:, 0]
    said["height"] *= stretch[:, 1]
    said["slice"] += steps
    said["score"] = scores_on_scale(said["logit"].to_numpy(dtype=float), finder.scale)
    twice = said[rng.random(len(said)) < finder.doubles].copy()
    twice["x"] += rng.normal(0.0, 10.0, len(twice))
    twice["slice"] += rng.normal(0.0, 2.0, len(twice))
    kept = np.ones(len(said), dtype=bool)
    kept[:n] = (true["logit"] > -4.0).to_numpy(dtype=bool) & ~drops
    kept[n : n + len(look)] = known > -3.4
    said = pd.concat([said[kept], twice[kept[twice.index]]]).sort_values(
        ["row", "logit"], ascending=[True, False], kind="stable"
    )
    pairs = lesions.loc[drops, ["case_id", "lesion_id"]].itertuples(index=False, name=None)
    return _written(finder, cases, said), tuple((str(a), str(b)) for a, b in pairs)


def _written(finder: Finder, cases: pd.DataFrame, said: pd.DataFrame) -> pd.DataFrame:
    """The boxes as the finder writes them: its depth, whole pixels, inside the volume."""
    row = said["row"].to_numpy(dtype=np.int64)
    of = cases.iloc[row]
    columns, slices = (of[name].to_numpy(dtype=float) for name in ("image_width", "volume_slices"))
    width = np.clip(np.round(said["width"].to_numpy(dtype=float)), 10, columns)
    height = np.clip(np.round(said["height"].to_numpy(dtype=float)), 10, ROWS)
    depth = np.full(len(said), float(finder.depth))
    reach = np.maximum(depth, 0.0)
    z = np.clip(
        np.round(said["slice"].to_numpy(dtype=float) - reach / 2), 0, np.maximum(slices - 1 - reach, 0)
    )
    made = {
        "PatientID": of["patient_id"].to_numpy(),
        "StudyUID": of["exam_id"].to_numpy(),
        "View": of["view"].to_numpy(),
        "X": np.clip(np.round(said["x"].to_numpy(dtype=float) - width / 2), 0, columns - width).astype(
            np.int64
        ),
        "Width": width.astype(np.int64),
        "Y": np.clip(np.round(said["y"].to_numpy(dtype=float) - height / 2), 0, ROWS - height).astype(
            np.int64
        ),
        "Height": height.astype(np.int64),
        "Z": z.astype(np.int64),
        "Depth": depth.astype(np.int64),
        "Score": said["score"].to_numpy(dtype=float),
    }
    return pd.DataFrame(made, columns=list(DBTEX_COLUMNS))


def scores_on_scale(logit: FloatArray, scale: str) -> FloatArray:
    """Bring log-odds to one of the scales that published files have.

    Args:
        logit: The log-odds of each box.
        scale: '0-1', '0-100' (with two decimals, so that some are equal), 'percentile' (the share of the boxes with
            this score or a lower one), or 'logarithm' (of the probability: negative).

    Returns:
        The scores.

    Raises:
        UserError: The scale is unknown.

    Example:
        >>> [scores_on_scale(np.array([0.0, 2.0]), scale).round(2).tolist() for scale in SCALES]
        [[0.5, 0.88], [50.0, 88.08], [0.5, 1.0], [-0.69, -0.13]]
    """
    share: FloatArray = 1.0 / (1.0 + np.exp(-np.asarray(logit, dtype=np.float64)))
    if scale == "0-1":
        return share.round(6)
    if scale == "0-100":
        return (100.0 * share).round(2)
    if scale == "percentile":
        below = np.searchsorted(np.sort(logit), logit, side="right").astype(np.float64)
        ranks: FloatArray = below / max(1, logit.size)
        return ranks.round(6)
    if scale == "logarithm":
        logarithm: FloatArray = np.log(share)
        return logarithm.round(6)
    raise UserError(f"'{scale}' is no scale of scores", where="scale", fix=f"One of {', '.join(SCALES)}.")
