"""Pages opened in a browser as a reader sees them, and what is measured there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

SHOTS = os.environ.get("ELSEWHERE_SHOTS")
CONTRAST = """() => {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const bend = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * bend(c[0] / 255) + 0.7152 * bend(c[1] / 255) + 0.0722 * bend(c[2] / 255);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const c = rgba(getComputedStyle(e).backgroundColor);
      if (c[3] > 250) return c;
    }
    return [255, 255, 255, 255];
  };
  const bad = [];
  let seen = 0;
  const texts = 'h1,h2,h3,p,dt,dd,th,td,li,figcaption,caption,.sub,.word,svg.fig text';
  for (const e of document.querySelectorAll(texts)) {
    if (!e.textContent.trim() || !e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    const picture = e.tagName === 'text' ? e.ownerSVGElement : null;
    if (picture && style.fill === getComputedStyle(document.body).backgroundColor) continue;
    const a = light(rgba(picture ? style.fill : style.color));
    const b = light(behind(picture ? picture.parentElement : e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen += 1;
    if (ratio < 4.5) bad.push([e.tagName, e.textContent.slice(0, 30), ratio]);
  }
  return {seen, bad: bad.slice(0, 10)};
}"""
"""Texts whose contrast with what is behind them is below 4.5, and how many were measured."""


def visit(browser: Any, path: Path, *, width: int, dark: bool = False) -> tuple[Any, Any]:
    """Open a page offline, and record its messages and its requests from before it is opened.

    Args:
        browser: The session's fixture `browser`.
        path: The file of the page.
        width: Of the window, in CSS pixels.
        dark: Whether the reader prefers dark colours.

    Returns:
        The context, to be closed by the caller, and the page with its lists `noise` and `requests`.

    Example:
        context, page = visit(browser, folder / "report.html", width=390)
    """
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=True
    )
    page = context.new_page()
    page.noise = []
    page.requests = []
    page.on("console", lambda message: page.noise.append(message.text))
    page.on("pageerror", lambda error: page.noise.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    page.goto(path.as_uri())
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{SHOTS}/{path.stem}-{width}{'-dark' if dark else ''}.png", full_page=True)
    return context, page
