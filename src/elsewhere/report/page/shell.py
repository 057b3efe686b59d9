"""The frame of every page: templates, styles, and figures at the positions that a section names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from elsewhere.report.page.blocks import Fold, Pair, Picture, Section
from elsewhere.report.page.numbers import count

MOST_BYTES = 2_000_000
"""The largest page that is written."""


def read_template(name: str) -> str:
    """Read a template or a style sheet that ships with the package.

    Args:
        name: Its file name, such as `style.css`.

    Returns:
        Its text.
    """
    return resources.files("elsewhere.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def environment() -> Any:
    """Make the jinja2 environment with the page's templates; every value that is filled in is escaped.

    Returns:
        The environment, the same one for every page: its templates are compiled once.
    """
    from jinja2 import DictLoader, Environment, StrictUndefined

    loader = DictLoader({name: read_template(name) for name in ("page.html.j2", "blocks.html.j2")})
    made = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.globals["num"] = count
    return made


def with_pictures(section: Section, drawn: Mapping[str, str]) -> Section:
    """Put the drawn figures where the blocks of a section refer to them.

    Args:
        section: A section without pictures.
        drawn: SVG elements by figure name.

    Returns:
        The section with its pictures.
    """
    return replace(section, blocks=[_filled(block, drawn) for block in section.blocks])


def _filled(block: Any, drawn: Mapping[str, str]) -> Any:
    if isinstance(block, Picture):
        return replace(block, svg=drawn.get(block.name, ""))
    if isinstance(block, Pair):
        return replace(block, pictures=[replace(p, svg=drawn.get(p.name, "")) for p in block.pictures])
    if isinstance(block, Fold):
        return replace(block, blocks=[_filled(b, drawn) for b in block.blocks])
    return block
