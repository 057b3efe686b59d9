"""Patches of phantom slides of two laboratories that differ in one planted thing, and a small model of patches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np
import pandas as pd

from elsewhere.inputs.rendering.compression import JpegQuality, compress
from elsewhere.phantom.slides.centres import BASE, centre_at, shift_from
from elsewhere.phantom.slides.drawing import Drawing
from elsewhere.phantom.slides.patients import World

SIZE = 128
STEP = 8
STAIN_CENTRE = 4
"""Its stain differs from the base centre's in colour and strength; no stain here is a power of another one."""


@dataclass(frozen=True)
class Laboratory:
    """What a laboratory has in place of the base centre's: stain 1 is as far as the real one, the rest None for as it is."""

    stain: float = 0.0
    blur_um: float | None = None
    mpp: float | None = None
    quality: int | None = None


@dataclass(eq=False)
class Patches:
    """Patches of one laboratory."""

    pixels: np.ndarray
    truth: np.ndarray
    slides: np.ndarray
    patients: np.ndarray
    mpp: float

    @property
    def labels(self):
        return self.truth.any(axis=(1, 2))


def _specs(patients, seed, laboratory):
    centre = centre_at(BASE, shift_from({"stain": 0}))
    scanner = centre.scanner
    if laboratory.stain:
        centre = replace(centre, stain=centre_at(STAIN_CENTRE, shift_from({"stain": laboratory.stain})).stain)
    centre = replace(
        centre,
        scanner=replace(
            scanner,
            blur_um=laboratory.blur_um or scanner.blur_um,
            mpp=(laboratory.mpp or 2 * scanner.mpp) / 2,
            quality=laboratory.quality or scanner.quality,
        ),
    )
    world = World(patients=patients, nodes=1, centres=(BASE,), size="small", seed=seed)
    return [replace(spec, centre=centre, stage="macro") for spec in world.slides()]


@cache
def _places(patients, seed, per_slide):
    """Middles of patches in microns, per slide: as many with tumour alone as with tissue without any."""
    made = []
    for spec in _specs(patients, seed, Laboratory()):
        drawing = Drawing(spec)
        rng = np.random.default_rng([seed, spec.member])
        width, height = (edge // STEP for edge in drawing.size_px)
        truth = drawing.truth(0, 0, width, height, reduction=STEP)
        white = drawing.region(0, 0, width, height, reduction=STEP).min(axis=2) > 190
        side = SIZE // STEP
        found = []
        for sick in (True, False):
            fits = []
            for y in range(0, height - side, side // 2):
                for x in range(0, width - side, side // 2):
                    window = slice(y, y + side), slice(x, x + side)
                    inside = truth[window].all() if sick else not truth[window].any()
                    if inside and white[window].mean() < 0.4:
                        fits.append(((x + side / 2) * STEP * spec.mpp, (y + side / 2) * STEP * spec.mpp))
            chosen = rng.choice(len(fits), min(per_slide, len(fits)), replace=False) if fits else []
            found += [fits[at] for at in sorted(chosen)]
        made.append(found)
    return made


def draw(laboratory=Laboratory(), *, patients=6, per_slide=8, seed=1):
    """Draw the same tissue as any laboratory would scan it, one slide per patient."""
    pixels, truth, slides, people = [], [], [], []
    mpp = 0.0
    places = _places(patients, seed, per_slide)
    for spec, found in zip(_specs(patients, seed, laboratory), places, strict=True):
        drawing = Drawing(spec)
        mpp = spec.mpp
        corners = [(round(x / mpp - SIZE / 2), round(y / mpp - SIZE / 2)) for x, y in found]
        made, masks = drawing.patches(corners, SIZE)
        stored = JpegQuality(quality=int(spec.centre.scanner.quality))
        pixels.append(np.stack([compress(one, stored) for one in made]))
        truth.append(masks)
        slides += [spec.slide_id] * len(corners)
        people += [spec.patient_id] * len(corners)
    return Patches(np.concatenate(pixels), np.concatenate(truth), np.array(slides), np.array(people), mpp)


def features(patch):
    """Colour and texture of a patch, below the frequencies of the scanner's noise."""
    density = -np.log((patch.astype(np.float64) + 1) / 256)
    green = density[..., 1] - density[..., 1].mean()
    power = np.abs(np.fft.rfft2(green * np.outer(*[np.hanning(SIZE)] * 2))) ** 2
    radius = np.hypot(np.fft.fftfreq(SIZE)[:, None], np.fft.rfftfreq(SIZE)[None])
    edges = np.geomspace(0.02, 0.25, 8)
    bands = [np.log(power[(radius >= a) & (radius < b)].mean() + 1e-9) for a, b in pairwise(edges)]
    colour = density.reshape(-1, 3)
    chroma = patch[..., 0].astype(np.float64) - patch[..., 2]
    step = [np.log(np.abs(np.diff(chroma, axis=axis)).mean() + 0.1) for axis in (0, 1)]
    return np.array([*colour.mean(axis=0), *colour.std(axis=0), *bands, *step])


class TextureModel:
    """Quadratic discriminant analysis of colour and texture, fitted on internal patches: sure of itself, and fragile.

    Without colour it reads the bands of the spectrum alone.
    """

    def __init__(self, patches, labels, *, colour=True):
        from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        self.columns = slice(None) if colour else slice(6, 13)
        self.fitted = make_pipeline(StandardScaler(), QuadraticDiscriminantAnalysis(reg_param=0.1))
        self.fitted.fit(self._values(patches), labels)

    def _values(self, patches):
        return np.array([features(one) for one in patches])[:, self.columns]

    def __call__(self, patches):
        return self.fitted.predict_proba(self._values(patches))[:, 1]


@dataclass(frozen=True)
class PlantedWorld:
    """One difference between two laboratories, and a model that suffers from it."""

    name: str
    part: str
    internal: Laboratory = Laboratory()
    external: Laboratory = Laboratory()
    colour: bool = True


WORLDS = (
    PlantedWorld("another stain", "stain", external=Laboratory(stain=1.5), colour=False),
    PlantedWorld("a blurrier scanner", "sharpness", external=Laboratory(blur_um=1.2), colour=False),
    PlantedWorld("a sharper scanner", "sharpness", internal=Laboratory(blur_um=0.9), colour=False),
    PlantedWorld("stronger compression", "compression", external=Laboratory(quality=10)),
    PlantedWorld("a finer scale", "scale", external=Laboratory(mpp=0.3), colour=False),
)


def arrays(world, folder, *, patients=6, per_slide=8, seed=1):
    """Write both laboratories' patches as `slides rerender` reads them; the same tissue, other patients' names."""
    folder.mkdir(parents=True)
    sides = [
        draw(one, patients=patients, per_slide=per_slide, seed=seed)
        for one in (world.internal, world.external)
    ]
    np.save(folder / "pixels.npy", np.concatenate([one.pixels for one in sides]))
    np.save(folder / "truth.npy", np.concatenate([one.truth for one in sides]))
    rows = [
        pd.DataFrame(
            {
                "case_id": [f"{word}-{name}" for name in one.slides],
                "patient_id": [f"{word}-{name}" for name in one.patients],
                "domain": word,
                "mpp": one.mpp,
            }
        )
        for word, one in zip(("ID", "OOD"), sides, strict=True)
    ]
    pd.concat(rows).to_csv(folder / "patches.csv", index=False)
    return folder


def model_of(world, *, patients=8, per_slide=20, seed=101):
    """Fit the world's model on other internal slides."""
    training = draw(world.internal, patients=patients, per_slide=per_slide, seed=seed)
    return TextureModel(training.pixels, training.labels, colour=world.colour)
