"""Figures as parts of a section."""

from __future__ import annotations

from collections.abc import Mapping

from elsewhere.report.page.blocks import Picture
from elsewhere.report.result.figures import FigureSpec

Specs = Mapping[str, FigureSpec]


def picture(specs: Specs, name: str, caption: str = "", *, wide: bool = False) -> Picture | None:
    spec = specs.get(name)
    return Picture(name=name, caption=caption or spec.title, alt=spec.alt, wide=wide) if spec else None


def pictures(specs: Specs, prefix: str) -> list[Picture]:
    return [p for p in (picture(specs, name) for name in specs if name.startswith(prefix)) if p]
