"""The centres of CAMELYON16 and CAMELYON17, their scanners, and which slides are inside of a model's training domain.

Scanner and microns per pixel are those of table 2 of the lymph-node study, which prints two decimals; the slides
themselves state 0.243 and 0.226 where the table has 0.24 and 0.23.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from elsewhere.errors import UserError

ID, OOD = "ID", "OOD"
TRAINED_ON = ("RUMC", "UMCU")
"""The centres of the training part of CAMELYON16, on which the study trains."""


@dataclass(frozen=True, kw_only=True)
class Centre:
    """A centre that gave slides.

    Attributes:
        number: Its number in the tables of CAMELYON17.
        code: Its short name.
        name: Its name and city.
        scanned_at: The centre whose scanner was used.
        scanner: The scanner.
        microns_per_pixel: Of level 0, as table 2 of the study prints it.
    """

    number: int
    code: str
    name: str
    scanned_at: str
    scanner: str
    microns_per_pixel: float


_P250, _XR, _UFS = (
    "3DHistech P250",
    "Hamamatsu NanoZoomer-XR C12000-01",
    "Philips IntelliSite Ultra Fast Scanner",
)
CENTRES = tuple(
    Centre(number=number, code=code, name=name, scanned_at=at, scanner=scanner, microns_per_pixel=mpp)
    for number, (code, name, at, scanner, mpp) in enumerate((
        ("CWZ", "Canisius-Wilhelmina Hospital, Nijmegen", "RUMC", _P250, 0.24),
        ("RST", "Rijnstate Hospital, Arnhem", "RUMC", _P250, 0.24),
        ("UMCU", "University Medical Center Utrecht", "UMCU", _XR, 0.23),
        ("RUMC", "Radboud University Medical Center, Nijmegen", "RUMC", _P250, 0.24),
        ("LPON", "Laboratorium Pathologie Oost-Nederland, Hengelo", "LPON", _UFS, 0.25),
    ))
)  # fmt: skip
BY_NUMBER = {str(centre.number): centre for centre in CENTRES}
BY_CODE = {centre.code: centre for centre in CENTRES}


def add_centres(cases: pd.DataFrame, codes: Sequence[str | None]) -> None:
    """Add the columns of the centres to a table of slides: site, scanned_at, scanner and microns_per_pixel.

    Args:
        cases: One row per slide; it is changed.
        codes: The code of the centre of each row, such as 'RUMC'; None or another name: nothing but the site.

    Example:
        >>> cases = pd.DataFrame({"case_id": ["a", "b"]})
        >>> add_centres(cases, ["CWZ", None])
        >>> cases["scanned_at"].tolist()[0], cases["microns_per_pixel"].tolist()[0]
        ('RUMC', 0.24)
    """
    centres = [BY_CODE.get(code or "") for code in codes]
    for name, values in (
        ("site", list(codes)),
        ("scanned_at", [c.scanned_at if c else code for c, code in zip(centres, codes, strict=True)]),
        ("scanner", [c.scanner if c else None for c in centres]),
    ):
        cases[name] = pd.Series(values, index=cases.index, dtype="str")
    cases["microns_per_pixel"] = pd.Series(
        [c.microns_per_pixel if c else None for c in centres], index=cases.index, dtype="float64"
    )


def parse_trained_on(trained_on: str | Iterable[str] | None) -> tuple[str, ...]:
    """Read the centres on whose slides a model was trained.

    Args:
        trained_on: Names of centres, as a list or separated by commas; None for none.

    Returns:
        The names, each once.

    Raises:
        UserError: No name is left.

    Example:
        >>> parse_trained_on("RUMC, UMCU")
        ('RUMC', 'UMCU')
    """
    if trained_on is None:
        return ()
    parts = trained_on.split(",") if isinstance(trained_on, str) else list(trained_on)
    names = tuple(dict.fromkeys(str(part).strip() for part in parts if str(part).strip()))
    if not names:
        raise UserError("no centre of the training is named", fix="For example: --trained-on RUMC,UMCU.")
    return names


def add_domain(cases: pd.DataFrame, trained_on: Sequence[str], *, where: str) -> str:
    """Add the column `domain`, which is derived from the centres whose slides trained the model (LN-01).

    A slide is in domain (ID) if it was scanned at a centre whose slides trained the model, else out of domain (OOD);
    where the centre is not known, the domain is not known either. The scanner counts, not the hospital: CWZ and RST
    sent their slides to the scanner of RUMC.

    Args:
        cases: One row per slide, with `scanned_at` or, where that is not known, `site`; it is changed.
        trained_on: The centres of the training slides.
        where: The file, for messages.

    Returns:
        The rule, as a sentence for the audit.

    Raises:
        UserError: No slide was scanned at any of these centres, nor at another one that is known.

    Example:
        >>> cases = pd.DataFrame({"site": ["CWZ", "LPON"], "scanned_at": ["RUMC", "LPON"]})
        >>> rule = add_domain(cases, ["RUMC", "UMCU"], where="a.csv")
        >>> cases["domain"].tolist()
        ['ID', 'OOD']
    """
    site = cases["site"] if "site" in cases.columns else pd.Series(None, index=cases.index, dtype="str")
    at = cases["scanned_at"].fillna(site) if "scanned_at" in cases.columns else site
    if not at.notna().any():
        raise UserError(
            "no slide has a centre, so that none can be in or out of the training's domain",
            where=where,
            fix="Fill the column 'site' in, or leave --trained-on out.",
        )
    folded = {name.casefold() for name in trained_on}
    inside = at.str.strip().str.casefold().isin(folded)
    cases["domain"] = pd.Series(
        [
            None if pd.isna(name) else ID if one else OOD
            for name, one in zip(at, inside, strict=True)
        ],
        index=cases.index,
        dtype="str",
    )  # fmt: skip
    sent = sorted(
        {
            f"{own} sent its slides to the scanner of {scanned}"
            for own, scanned in zip(site, at, strict=True)
            if pd.notna(own) and pd.notna(scanned) and str(own).casefold() != str(scanned).casefold()
        }
    )
    return (
        f"a slide is ID if it was scanned at a centre whose slides trained the model ({', '.join(trained_on)}), "
        "else OOD" + (f"; {', '.join(sent)}" if sent else "")
    )
