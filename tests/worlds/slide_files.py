"""Small slides of synthetic tissue, written as the published formats are: Philips, Aperio and plain tiled TIFF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter

APERIO_SECRETS = ("b414003d-9", "12/29/09", "Smith-1", "09:59:15")
"""What an Aperio description says that no output may: user, date, original file name, time."""


def tissue_picture(width: int, height: int, *, seed: int = 0) -> np.ndarray:
    """Purple blobs on glass, with grain."""
    rng = np.random.default_rng(seed)
    coarse = gaussian_filter(rng.normal(size=(height, width)).astype(np.float32), 12)
    inside = np.clip(coarse / coarse.std() * 0.8 + 0.3, 0, 1)[..., None]
    glass, stain = np.array([243, 242, 244.0]), np.array([150, 70, 160.0])
    picture = glass * (1 - inside) + stain * inside + rng.normal(0, 5, (height, width, 3))
    return np.clip(picture, 0, 255).astype(np.uint8)


def halved(picture: np.ndarray) -> np.ndarray:
    """The mean of each 2 x 2 pixels, rounded; an odd last row or column is dropped."""
    height, width = picture.shape[0] // 2 * 2, picture.shape[1] // 2 * 2
    blocks = picture[:height, :width].astype(np.uint16).reshape(height // 2, 2, width // 2, 2, -1)
    return ((blocks.sum(axis=(1, 3)) + 2) // 4).astype(np.uint8)


def padded(picture: np.ndarray, tile: int) -> np.ndarray:
    """White to the right and below, up to whole tiles."""
    height, width = -(-picture.shape[0] // tile) * tile, -(-picture.shape[1] // tile) * tile
    out = np.full((height, width, 3), 255, np.uint8)
    out[: picture.shape[0], : picture.shape[1]] = picture
    return out


def philips_description(mpp: float, levels: int) -> str:
    """The part of a Philips description that readers need."""
    spacing = "".join(
        '<DataObject ObjectType="PixelDataRepresentation"><Attribute Name="DICOM_PIXEL_SPACING" Group="0x0028" '
        f'Element="0x0030" PMSVR="IDoubleArray">&quot;{mpp * 2**n / 1000:.9f}&quot; '
        f"&quot;{mpp * 2**n / 1000:.9f}&quot;</Attribute>"
        '<Attribute Name="PIIM_PIXEL_DATA_REPRESENTATION_NUMBER" Group="0x1001" Element="0x8002" '
        f'PMSVR="IUInt16">{n}</Attribute></DataObject>'
        for n in range(levels)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8" ?><DataObject ObjectType="DPUfsImport"><Attribute '
        'Name="DICOM_MANUFACTURER" Group="0x0008" Element="0x0070" PMSVR="IString">PHILIPS</Attribute><Attribute '
        'Name="PIM_DP_SCANNED_IMAGES" Group="0x301D" Element="0x1003" PMSVR="IDataObjectArray"><Array>'
        '<DataObject ObjectType="DPScannedImage"><Attribute Name="PIM_DP_IMAGE_TYPE" Group="0x301D" '
        'Element="0x1004" PMSVR="IString">WSI</Attribute><Attribute '
        'Name="PIIM_PIXEL_DATA_REPRESENTATION_SEQUENCE" Group="0x1001" Element="0x8B01" PMSVR="IDataObjectArray">'
        f'<Array>{spacing}</Array></Attribute></DataObject><DataObject ObjectType="DPScannedImage"><Attribute '
        'Name="PIM_DP_IMAGE_TYPE" Group="0x301D" Element="0x1004" PMSVR="IString">LABELIMAGE</Attribute>'
        "</DataObject></Array></Attribute></DataObject>"
    )


def aperio_description(mpp: float | None = 0.25, objective: float = 40) -> str:
    """An Aperio description with a user, a date, a time and a file name."""
    size = "" if mpp is None else f"|MPP = {mpp}"
    user, date, name, time = APERIO_SECRETS
    return (
        f"Aperio Image Library v11.2.1 \r\n46000x32914 [0,0 2220x2967] (240x240) JPEG/RGB Q=30|AppMag = {objective:g}"
        f"|ScanScope ID = CP|Filename = {name}|Date = {date}|Time = {time}|User = {user}{size}|Left = 25.69"
    )


def write_tiff(
    path: Path,
    pictures: Sequence[np.ndarray],
    *,
    mpp: float | None = 0.25,
    tile: int = 256,
    compression: Any = "jpeg",
    colour: str = "YCBCR",
    description: str | None = None,
    software: str | None = None,
    missing: Sequence[int] = (),
    bigtiff: bool = False,
    byteorder: str = "<",
    **options: Any,
) -> Path:
    """Write a tiled TIFF with the pictures as its levels; `missing` tiles of level 0 are left out.

    `colour` is how JPEG tiles are stored: YCBCR or RGB.
    """
    import tifffile

    with tifffile.TiffWriter(path, bigtiff=bigtiff, byteorder=byteorder) as file:
        for number, picture in enumerate(pictures):
            keys: dict[str, Any] = {
                "tile": (tile, tile) if tile else None,
                "compression": compression,
                "photometric": "rgb",
                "subfiletype": int(number > 0),
                "metadata": None,
                "software": software or False,
            }
            if picture.ndim == 2:
                keys["photometric"] = "minisblack"
            if compression == "jpeg":
                keys["compressionargs"] = {"level": 85} | (
                    {} if picture.ndim == 2 else {"outcolorspace": colour}
                )
            if number == 0 and description is not None:
                keys["description"] = description
            if mpp is not None:
                per_cm = 1e4 / (mpp * pictures[0].shape[1] / picture.shape[1])
                keys |= {"resolution": (per_cm, per_cm), "resolutionunit": "CENTIMETER"}
            keys |= options
            if number == 0 and missing:
                tiles = padded(picture, tile)
                down, across = tiles.shape[0] // tile, tiles.shape[1] // tile
                blocks = tiles.reshape(down, tile, across, tile, 3).swapaxes(1, 2).reshape(-1, tile, tile, 3)
                chosen = (None if n in missing else block for n, block in enumerate(blocks))
                file.write(chosen, shape=picture.shape, dtype=np.uint8, **keys)
            else:
                file.write(picture, **keys)
    return path


def pyramid(picture: np.ndarray, levels: int) -> list[np.ndarray]:
    """The picture and its halves."""
    found = [picture]
    while len(found) < levels:
        found.append(halved(found[-1]))
    return found


def write_philips(
    path: Path, picture: np.ndarray, *, mpp: float = 0.243, levels: int = 3, tile: int = 512
) -> Path:
    """Write a slide as CAMELYON's are: every level padded to whole tiles, its size known from the spacings alone."""
    stored = [padded(level, tile) for level in pyramid(padded(picture, tile), levels)]
    return write_tiff(
        path,
        stored,
        mpp=None,
        tile=tile,
        description=philips_description(mpp, levels),
        software="Philips DP v1.0",
        bigtiff=True,
    )


def write_aperio(
    path: Path, picture: np.ndarray, *, mpp: float | None = 0.25, levels: int = 1, **options: Any
) -> Path:
    """Write an svs; its description holds what no output may."""
    return write_tiff(
        path,
        pyramid(picture, levels),
        mpp=None,
        tile=240,
        description=aperio_description(mpp),
        **({"colour": "RGB"} | options),
    )
