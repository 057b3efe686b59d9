"""Macenko's normalisation by TIAToolbox's rules, step by step in plain numpy: what the fast form has to equal."""

from __future__ import annotations

import numpy as np

STAINS = np.array([[0.60, 0.67, 0.43], [0.46, 0.81, 0.37]])


def tissue_picture(
    rng: np.random.Generator, shape=(96, 96), stains=STAINS, glass: float = 0.2, strength=(1.0, 0.7)
) -> np.ndarray:
    """A picture of two stains with glass, made by Beer and Lambert's law."""
    unit = stains / np.linalg.norm(stains, axis=1, keepdims=True)
    amounts = rng.gamma((1.2, 2.5), np.asarray(strength) / (1.2, 2.5), (*shape, 2))
    amounts[rng.random(shape) < glass] = 0.0
    density = np.maximum(amounts @ unit + rng.normal(0, 0.01, (*shape, 3)), 0.0)
    return np.clip(np.rint(245.0 * np.exp(-density)), 0, 255).astype(np.uint8)


def density(picture: np.ndarray) -> np.ndarray:
    values = np.where(picture == 0, 1, picture)
    return np.maximum(-np.log(values / 255.0), 1e-6)


def tissue(picture: np.ndarray, threshold: float = 0.8) -> np.ndarray:
    low, high = np.percentile(picture, (2, 98))
    if low >= high:
        low, high = picture.min(), picture.max()
    stretched = picture.astype(float)
    if high > low:
        stretched = (np.clip(stretched, low, high) - low) / (high - low) * 255.0
    part = np.floor(stretched) / 255.0
    linear = np.where(part > 0.04045, ((part + 0.055) / 1.055) ** 2.4, part / 12.92)
    luminance = linear[..., 0] * 0.212671 + linear[..., 1] * 0.715160 + linear[..., 2] * 0.072169
    lightness = np.where(luminance > 0.008856, 116 * np.cbrt(luminance) - 16, 903.3 * luminance)
    return np.rint(lightness * 2.55) / 255.0 < threshold


def stain_matrix(picture: np.ndarray) -> np.ndarray:
    values = density(picture)[tissue(picture)]
    _, vectors = np.linalg.eigh(np.cov(values, rowvar=False))
    plane = vectors[:, [2, 1]]
    plane = plane * np.where(plane[0] < 0, -1, 1)
    projected = values @ plane
    angles = np.arctan2(projected[:, 1], projected[:, 0])
    ends = [plane @ (np.cos(a), np.sin(a)) for a in (np.percentile(angles, 1), np.percentile(angles, 99))]
    ends = np.array(ends if ends[0][0] > ends[1][0] else ends[::-1])
    return ends / np.linalg.norm(ends, axis=1, keepdims=True)


def concentrations(picture: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    return np.linalg.lstsq(matrix.T, density(picture).reshape(-1, 3).T, rcond=-1)[0].T


def transform(
    picture: np.ndarray, target_matrix: np.ndarray, target_strength: np.ndarray, matrix=None, strength=None
) -> np.ndarray:
    matrix = stain_matrix(picture) if matrix is None else matrix
    amounts = concentrations(picture, matrix)
    strength = np.percentile(amounts, 99, axis=0) if strength is None else strength
    made = 255 * np.exp(-(amounts * (target_strength / strength)) @ target_matrix)
    return np.clip(made, 0, 255).reshape(picture.shape).astype(np.uint8)
