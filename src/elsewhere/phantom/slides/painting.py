"""From what a region holds to its pixels: the same tensor operations with numpy and with torch.

All operations are elementwise or take a maximum, so that their result does not depend on the region's size or on the
order of the nuclei. Torch on a GPU differs from numpy in the last digit of float32, which is at most one grey level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.phantom.slides.nuclei import bank_of

if TYPE_CHECKING:
    from elsewhere.phantom.slides.drawing import Drawing, Plan

STRENGTH = (0.82, 1.15)
"""Factors that bring the 99th percentile of both stains in a slide near 1."""
INK = (1.6, 0.9, 0.25)
"""Optical density of a blue-green pen in red, green and blue."""


class Painter:
    """Paints regions of one slide at one level.

    Args:
        drawing: The slide.
        reduction: The level, as in `Drawing.region`.
        xp: `numpy` or `torch`.
        device: Where torch paints; ignored by numpy.
    """

    def __init__(self, drawing: Drawing, reduction: int, xp: Any = np, device: Any = None) -> None:
        from elsewhere.phantom.slides.drawing import textures_of

        self._drawing, self._xp, self._device = drawing, xp, device
        self._mpp = round(drawing.spec.mpp * reduction, 6)
        self._textures = textures_of(drawing.spec.mpp, reduction)
        self._on_device: dict[str, Any] = {}

    def paint(self, plans: list[Plan]) -> Any:
        """Paint regions of one shape.

        Args:
            plans: What the regions hold.

        Returns:
            uint8 RGB by region, row and column.
        """
        haematoxylin, eosin, ink, defocus, solid = self._densities(plans)
        return self._colours(plans, haematoxylin, eosin, ink, defocus, solid)

    def densities(self, plans: list[Plan]) -> tuple[Any, Any]:
        """Return the amounts of haematoxylin and eosin, before the scanner.

        Args:
            plans: What the regions hold.

        Returns:
            Both amounts by region, row and column, margins included; 1 is the 99th percentile of a slide.
        """
        haematoxylin, eosin, *_ = self._densities(plans)
        return haematoxylin, eosin

    def _densities(self, plans: list[Plan]) -> tuple[Any, Any, Any, Any, Any]:
        xp = self._xp
        fields = self._upsampled(plans)
        nuclei = self._nuclei(plans)
        grain, cloud, cleft, strand = (
            self._window(plans, name) for name in ("grain", "cloud", "cleft", "strand")
        )
        solid, eosin, haze, fibre, gaps, phase, gain, ink, defocus, red = fields
        white = xp.clip(solid * (1.0 / 0.9) + 0.5 + 0.35 * cloud, 0, 1)
        # clefts between cells: the ridge of a texture, never across a nucleus
        ridge = xp.clip(gaps * (0.62 - xp.abs(cleft)) * 2.2 - 0.15, 0, 1)
        # fibres: waves along the contours of the phase
        wave = phase * (1.0 / 5.5) + 0.55 * strand
        wave = xp.abs(wave - xp.floor(wave) - 0.5) * 4.0 - 1.0
        # red cells are discs of about 6 microns
        cells = xp.clip(0.55 + 0.5 * strand, 0.15, 1.0)
        body = eosin * (1.0 + 0.22 * cloud * (1.0 - fibre) + fibre * 0.34 * wave + 0.10 * grain)
        # fine collagen between the cells of the node
        reticulum = xp.clip(1.0 - xp.abs(strand) * 5.0, 0, 1) * xp.clip(gaps, 0, 1) * fibre
        reticulum = reticulum * xp.clip(eosin * 6.0 - 1.5, 0, 1)
        body = body + reticulum * 2.4 * eosin
        body = body * (1.0 - red) + red * eosin * cells
        nuclear = xp.clip(nuclei * 3.6 - 0.35, 0, 1)
        keep = white * (1.0 - ridge * (1.0 - nuclear) * (1.0 - 0.8 * reticulum))
        body = xp.clip(body, 0, 1.3) * keep
        body = body * (1.0 - nuclear) + nuclear * xp.clip(0.16 + 0.12 * cloud, 0, 1)
        haze = xp.clip(haze * (1.0 + 0.35 * cloud + 0.25 * grain), 0, 1) * keep
        blue = xp.maximum(nuclei * (1.0 + 0.08 * grain), haze * (1.0 - reticulum))
        return blue * gain * STRENGTH[0], body * gain * STRENGTH[1], ink, defocus, solid

    def _colours(self, plans: list[Plan], blue: Any, pink: Any, ink: Any, defocus: Any, solid: Any) -> Any:
        from elsewhere.phantom.slides.drawing import MARGIN

        xp = self._xp
        scanner, stain = self._drawing.spec.centre.scanner, self._drawing.stain
        blurred = [self._scanned(one, scanner.blur_um, scanner.sharpening) for one in (blue, pink)]
        if bool((defocus > 0).any()):
            soft = [self._blur(one, 1.4 / self._mpp) for one in (blue, pink)]
            blurred = [b * (1.0 - defocus) + s * defocus for b, s in zip(blurred, soft, strict=True)]
        inner = slice(MARGIN, -MARGIN)
        blue, pink = (one[:, inner, inner] for one in blurred)
        ink = ink[:, inner, inner]
        inked = bool((ink > 0).any())
        grain = self._window(plans, "noise")[:, inner, inner] * scanner.noise
        contrast = 1.0 + 1.1 * max(0.0, stain.strength[1] / stain.strength[0] - 0.6)
        if contrast > 1:  # where eosin is strong it lies in collagen and blood more than in cytoplasm
            pink = pink**contrast
        rows, columns = plans[0].shape[0] - 2 * MARGIN, plans[0].shape[1] - 2 * MARGIN
        made = self._empty((len(plans), rows, columns, 3))
        for channel in range(3):
            density = blue * (stain.haematoxylin[channel] * stain.strength[0])
            density = density + pink * (stain.eosin[channel] * stain.strength[1])
            if inked:
                density = density + ink * INK[channel]
            value = xp.exp(-density) * float(scanner.white[channel]) + grain
            made[..., channel] = self._bytes(value)
        return made

    def _scanned(self, plane: Any, blur_um: float, sharpening: float) -> Any:
        """Blur a plane as the scanner does, and sharpen what is left."""
        soft = self._blur(plane, blur_um / self._mpp)
        if sharpening <= 0:
            return soft
        wide = self._blur(soft, 0.45 / self._mpp)
        return self._xp.clip(soft + sharpening * (soft - wide), 0, 4)

    def _blur(self, plane: Any, sigma: float) -> Any:
        """Blur by a Gaussian of at most 2 pixels on each side; the border of the margin stays as it is."""
        if sigma < 0.15:
            return plane
        reach = min(4, max(1, int(np.ceil(2.0 * sigma))))
        weights = np.exp(-0.5 * (np.arange(reach + 1) / max(sigma, 0.2)) ** 2)
        weights /= weights[0] + 2 * weights[1:].sum()
        for axis in (1, 2):
            size = plane.shape[axis]
            inner: list[Any] = [slice(None)] * 3
            inner[axis] = slice(reach, size - reach)
            total = plane[tuple(inner)] * float(weights[0])
            for k in range(1, reach + 1):
                low, high = list(inner), list(inner)
                low[axis] = slice(reach - k, size - reach - k)
                high[axis] = slice(reach + k, size - reach + k)
                total = total + (plane[tuple(low)] + plane[tuple(high)]) * float(weights[k])
            made = self._copy(plane)
            made[tuple(inner)] = total
            plane = made
        return plane

    def _upsampled(self, plans: list[Plan]) -> list[Any]:
        """Return every field at every pixel of the regions, by bilinear interpolation."""
        rows, columns = plans[0].shape
        coarse = np.stack([plan.fields for plan in plans], axis=1)
        across = [self._between(plan.corner[0], columns, plan.first[0]) for plan in plans]
        down = [self._between(plan.corner[1], rows, plan.first[1]) for plan in plans]
        made = []
        for at in range(coarse.shape[0]):
            values = coarse[at]
            if float(values.max()) == float(values.min()):
                made.append(self._full((len(plans), rows, columns), float(values.flat[0])))
                continue
            parts = []
            for n in range(len(plans)):
                (i, t), (j, s) = across[n], down[n]
                wide = values[n][:, i] * (1 - t) + values[n][:, i + 1] * t
                if self._xp is np:
                    parts.append(wide[j] * (1 - s)[:, None] + wide[j + 1] * s[:, None])
                else:
                    tall, share, index = self._to(wide), self._to(s)[:, None], self._to(j)
                    parts.append(tall[index] * (1 - share) + tall[index + 1] * share)
            made.append(parts[0][None] if len(parts) == 1 else self._xp.stack(parts))
        return made

    def _between(self, corner: int, count: int, first: int) -> tuple[Any, Any]:
        """Return for each pixel the field's place before it, and how far it lies towards the next."""
        from elsewhere.phantom.slides.drawing import PITCH_UM

        at = (np.arange(corner, corner + count) + 0.5) * (self._mpp / PITCH_UM)
        before = np.floor(at)
        return before.astype(np.int64) - first, (at - before).astype(np.float32)

    def _window(self, plans: list[Plan], name: str) -> Any:
        """Return the part of an endless texture that lies under each region."""
        whole = self._textures[name]
        source = self._to(whole) if name not in self._on_device else self._on_device[name]
        self._on_device[name] = source
        side = whole.shape[0] // 2
        rows, columns = plans[0].shape
        parts = []
        for plan in plans:
            r, c = plan.corner[1] % side, plan.corner[0] % side
            if r + rows > 2 * side or c + columns > 2 * side:
                index_r = self._to(np.arange(r, r + rows) % side)
                index_c = self._to(np.arange(c, c + columns) % side)
                parts.append(source[index_r[:, None], index_c[None]])
            else:
                parts.append(source[r : r + rows, c : c + columns])
        return parts[0][None] if len(parts) == 1 else self._xp.stack(parts)

    def _nuclei(self, plans: list[Plan]) -> Any:
        """Lay the nuclei on a canvas; where two overlap the darker one counts."""
        if self._xp is np:
            return np.stack([self._nuclei_numpy(plan) for plan in plans])
        return self._nuclei_torch(plans)

    def _nuclei_numpy(self, plan: Plan) -> Any:
        rows, columns = plan.shape
        canvas = np.zeros((rows, columns), dtype=np.float32)
        for name, marks in plan.marks:
            bank = bank_of(name, self._mpp)
            middle = bank.pictures.shape[1] // 2
            halves = bank.halves.tolist()
            for variant, column, row in marks.T.tolist():
                half = halves[variant]
                y0, y1, x0, x1 = row - half, row + half + 1, column - half, column + half + 1
                top, left = max(0, -y0), max(0, -x0)
                if y1 > rows:
                    y1 = rows
                if x1 > columns:
                    x1 = columns
                target = canvas[y0 + top : y1, x0 + left : x1]
                p, q = middle - half + top, middle - half + left
                picture = bank.pictures[variant, p : p + y1 - y0 - top, q : q + x1 - x0 - left]
                np.maximum(target, picture, out=target)
        return canvas

    def _nuclei_torch(self, plans: list[Plan]) -> Any:
        torch = self._xp
        rows, columns = plans[0].shape
        names = [name for name, _ in plans[0].marks]
        names += [name for plan in plans for name, _ in plan.marks if name not in names]
        pad = max(bank_of(name, self._mpp).pictures.shape[1] for name in names)
        high, wide = rows + 2 * pad, columns + 2 * pad
        canvas = torch.zeros(len(plans) * high * wide, dtype=torch.float32, device=self._device)
        for name in dict.fromkeys(names):
            bank = bank_of(name, self._mpp)
            side = bank.pictures.shape[1]
            held = [
                np.concatenate([np.full((1, marks.shape[1]), n), marks])
                for n, plan in enumerate(plans)
                for known, marks in plan.marks
                if known == name
            ]
            marks = np.concatenate(held, axis=1)
            if not marks.shape[1]:
                continue
            pictures = self._to(bank.pictures).reshape(len(bank.halves), -1)
            y, x = np.divmod(np.arange(side * side), side)
            offsets = torch.as_tensor(y * wide + x, device=self._device)
            start = (marks[0] * high + marks[3] - side // 2 + pad) * wide + marks[2] - side // 2 + pad
            for first in range(0, marks.shape[1], 20000):
                part = slice(first, first + 20000)
                index = torch.as_tensor(start[part], device=self._device)[:, None] + offsets
                values = pictures[torch.as_tensor(marks[1, part], device=self._device)]
                canvas.scatter_reduce_(0, index.reshape(-1), values.reshape(-1), "amax")
        return canvas.reshape(len(plans), high, wide)[:, pad : pad + rows, pad : pad + columns]

    def _to(self, values: Any) -> Any:
        if self._xp is np:
            return values
        return self._xp.as_tensor(values, device=self._device)

    def _full(self, shape: tuple[int, ...], value: float) -> Any:
        if self._xp is np:
            return np.full((1, 1, 1), value, dtype=np.float32) * np.ones((1, *shape[1:]), np.float32)
        return self._xp.full(shape, value, dtype=self._xp.float32, device=self._device)

    def _copy(self, plane: Any) -> Any:
        return plane.copy() if self._xp is np else plane.clone()

    def _empty(self, shape: tuple[int, ...]) -> Any:
        if self._xp is np:
            return np.empty(shape, dtype=np.uint8)
        return self._xp.empty(shape, dtype=self._xp.uint8, device=self._device)

    def _bytes(self, value: Any) -> Any:
        xp = self._xp
        if xp is np:
            return np.clip(value + np.float32(0.5), 0, 255).astype(np.uint8)
        return xp.clip(value + 0.5, 0, 255).to(xp.uint8)
