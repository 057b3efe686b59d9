"""The text of each page of a PDF that Chromium printed: enough of the format for that, and no more."""

from __future__ import annotations

import re
import zlib

_OBJECT = re.compile(rb"(\d+) 0 obj\b(.*?)\bendobj", re.S)


def pages_of(pdf: bytes) -> list[str]:
    objects = {int(m[1]): m[2] for m in _OBJECT.finditer(pdf)}
    pages = [body for body in objects.values() if re.search(rb"/Type\s*/Page\b", body)]
    return [_page(body, objects) for body in pages]


def _stream(body: bytes) -> bytes:
    start = re.search(rb"stream\r?\n", body)
    if not start:
        return b""
    raw = body[start.end() : body.rindex(b"endstream")]
    return zlib.decompressobj().decompress(raw) if b"FlateDecode" in body[: start.start()] else raw


def _page(body: bytes, objects: dict[int, bytes]) -> str:
    contents = re.search(rb"/Contents\s+(\d+) 0 R", body)
    fonts = {
        name.decode(): _unicode(objects[int(number)], objects)
        for name, number in re.findall(rb"/(F\d+)\s+(\d+) 0 R", body)
    }
    assert contents
    text: list[str] = []
    map_now: dict[int, str] = {}
    for token in re.finditer(
        rb"/(F\d+) [\d.]+ Tf|<([0-9A-Fa-f]+)>|\b(ET)\b", _stream(objects[int(contents[1])])
    ):
        if token[1]:
            map_now = fonts.get(token[1].decode(), {})
        elif token[2]:
            codes = [int(token[2][i : i + 4], 16) for i in range(0, len(token[2]), 4)]
            text.append("".join(map_now.get(code, "?") for code in codes))
        else:
            text.append("\n")
    return "".join(text)


def _unicode(font: bytes, objects: dict[int, bytes]) -> dict[int, str]:
    found = re.search(rb"/ToUnicode\s+(\d+) 0 R", font)
    if not found:
        return {}
    cmap = _stream(objects[int(found[1])])
    out: dict[int, str] = {}
    for block in re.findall(rb"beginbfchar(.*?)endbfchar", cmap, re.S):
        for code, char in re.findall(rb"<([0-9A-Fa-f]+)>\s*<([0-9A-Fa-f]+)>", block):
            out[int(code, 16)] = bytes.fromhex(char.decode()).decode("utf-16-be")
    for block in re.findall(rb"beginbfrange(.*?)endbfrange", cmap, re.S):
        for first, last, char in re.findall(
            rb"<([0-9A-Fa-f]+)>\s*<([0-9A-Fa-f]+)>\s*<([0-9A-Fa-f]+)>", block
        ):
            for step in range(int(last, 16) - int(first, 16) + 1):
                out[int(first, 16) + step] = chr(int(char, 16) + step)
    return out
