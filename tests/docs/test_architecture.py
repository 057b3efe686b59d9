"""The page of the architecture names every registry that another package can extend."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_entry_point_group_is_on_the_page():
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    groups = {
        group
        for file in (ROOT / "src").rglob("*.py")
        if "Registry[" in (text := file.read_text(encoding="utf-8"))
        for group in re.findall(r'group="(elsewhere\.[a-z_]+)"', text)
    }
    assert {group for group in groups if f"`{group}`" not in page} == set()


def test_every_room_is_in_a_layer_of_the_page():
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    layers = page.partition("## Rooms")[2].partition("## Extension points")[0]
    block = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("```")[1].splitlines()
    rooms = [line.split()[0].rstrip("/").removesuffix(".py") for line in block if line.startswith("  ")]
    assert [room for room in rooms if f"`{room}`" not in layers] == []
