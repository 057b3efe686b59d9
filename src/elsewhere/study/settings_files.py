"""Files that a recipe's settings name: weights, and masks that a segmentation made before.

Their bytes decide a training's numbers, so that they are in its key; and a folder of masks must not be the experts',
which would show the truth of the test part to a recipe that is to find it (MRI-02).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

from elsewhere.errors import UserError
from elsewhere.inputs.mri.files import file_digest

MASKS, SEGMENTATIONS = "masks", "segmentations"


def digests_of_files(
    files: Mapping[str, Path], experts: Collection[Path], *, where: str = ""
) -> dict[str, str]:
    """Digest the files that settings name.

    Args:
        files: By setting.
        experts: The files of the experts' annotations, which a folder 'masks' must not hold.
        where: For messages.

    Returns:
        The digest of each file, or of a folder's names and bytes, by setting.

    Raises:
        UserError: A file is not there, or a folder holds the experts' masks.
    """
    told = {}
    for setting, path in files.items():
        if not path.exists():
            raise UserError(
                f"there is no such {'folder' if setting == MASKS else 'file'} ({setting} = '{path}')",
                where=where,
                fix="Paths are taken from where the program is started.",
            )
        if path.is_file():
            told[setting] = file_digest(path)
            continue
        held = {
            one.relative_to(path).as_posix(): file_digest(one)
            for one in sorted(path.rglob("*"))
            if one.is_file()
        }
        if setting == MASKS:
            _no_experts(path, held, experts, where=where)
        whole = hashlib.sha256("".join(f"{name}\0{digest}\n" for name, digest in held.items()).encode())
        told[setting] = whole.hexdigest()
    return told


def _no_experts(folder: Path, held: Mapping[str, str], experts: Collection[Path], *, where: str) -> None:
    """Neither a folder of the cohort's segmentations, nor one that holds them, nor a copy of them."""
    own = folder.resolve()
    for kept in {_segmentations(path.resolve()) for path in experts}:
        if own.is_relative_to(kept) or kept.is_relative_to(own):
            raise _refused(folder, where, f"lies with the cohort's segmentations ('{kept}')")
    if not held or not experts:
        return
    sizes = {(folder / name).stat().st_size for name in held}
    drawn = {file_digest(path) for path in experts if path.is_file() and path.stat().st_size in sizes}
    same = sum(digest in drawn for digest in held.values())
    if 2 * same > len(held):
        raise _refused(folder, where, f"holds copies of the experts' masks ({same} of {len(held)} files)")


def _segmentations(mask: Path) -> Path:
    """The folder of this name that an expert's mask lies in, else its own folder."""
    return next((up for up in mask.parents if up.name.casefold() == SEGMENTATIONS), mask.parent)


def _refused(folder: Path, where: str, why: str) -> UserError:
    return UserError(
        f"the folder masks = '{folder}' {why}: it would show the experts' masks of the tested cases",
        where=where,
        fix="Give masks that a segmentation predicted without these cases, in a folder of their own.",
    )
