"""The page of curated training sets: the clusters of each group, what they are, and the sets (LN-08).

It names no patient and no hospital. Sample patches are pixels of patients, so that they stand on the page on request alone.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from elsewhere._version import __version__
from elsewhere.files import write_bytes
from elsewhere.report.page import blocks
from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.figures import FigureSpec, inline_figures
from elsewhere.report.page.shell import environment, read_template, with_pictures
from elsewhere.report.result.first_page import FirstPage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_POINTS = 3000
"""Points in all pictures of the page together."""
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
_QUALITY = 82
_GAP = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupFigures:
    """What the page shows of the clusters of a group.

    Attributes:
        name: Its id on the page.
        title: The group, in words.
        words: The clusters in one sentence.
        numbers: The numbers of clusters that were tried.
        harabasz: The Calinski-Harabasz index of each.
        davies: The Davies-Bouldin index of each.
        entropy: The mean entropy of each.
        chosen: The number that was chosen; None where it was stated.
        points: Some patches on the first two principal components.
        labels: The cluster of each of them, from 0.
        samples: By cluster, some patches, [patches, rows, columns, 3]; none where no pixels are shown.
    """

    name: str
    title: str
    words: str
    numbers: Sequence[int] = ()
    harabasz: Sequence[float] = ()
    davies: Sequence[float] = ()
    entropy: Sequence[float] = ()
    chosen: int | None = None
    points: npt.NDArray[np.float64] | None = None
    labels: npt.NDArray[np.int64] | None = None
    samples: Sequence[npt.NDArray[np.uint8]] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusteringSection:
    """What the page shows of a clustering.

    Attributes:
        name: What it is called.
        words: What its features are.
        groups: Its groups.
        sentences: What the clusters are, in sentences.
        audit: One row per group and attribute, with the keys of `AUDIT_COLUMNS`.
    """

    name: str
    words: str
    groups: Sequence[GroupFigures]
    sentences: Sequence[str]
    audit: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class CurationPage:
    """What the page shows.

    Attributes:
        masthead: What was curated, in a few words each.
        clusterings: The clusterings.
        sets: One row per set, with `name`, `patches`, `NN`, `NT`, `TT`, `PT`, `of_set`, `of_tumour`, `slides`, `hash` and
            `remarks`.
        warnings: What a reader must know, as sentences.
        notes: What the page leaves out, as sentences.
    """

    masthead: Sequence[str]
    clusterings: Sequence[ClusteringSection]
    sets: Sequence[Mapping[str, Any]]
    warnings: Sequence[str] = ()
    notes: Sequence[str] = field(default=())


def write_page(page: CurationPage, path: Path) -> None:
    """Write the page, whole or not at all.

    Args:
        page: What it shows.
        path: The file; one that exists is replaced.

    Raises:
        FileSystemError: The system refuses.
    """
    write_bytes(render_page(page).encode(), path)


def render_page(page: CurationPage) -> str:
    """Render the page as text.

    Args:
        page: What it shows.

    Returns:
        The HTML.

    Example:
        >>> render_page(CurationPage(masthead=[], clusterings=[], sets=[])).startswith("<!doctype html>")
        True
    """
    specs: dict[str, FigureSpec] = {}
    samples: dict[str, str] = {}
    sections = [_sets(page)]
    for number, clustering in enumerate(page.clusterings, start=1):
        sections.append(_clustering(clustering, number, specs, samples))
    drawn = inline_figures(specs) | samples
    first = FirstPage(
        title="Curated training sets",
        question="Which patches are the training sets made of?",
        masthead=["Curated training sets", *page.masthead],
        word="",
        tone="none",
        plain="",
        sentence="",
        badges=[],
        facts=[],
        claims=None,
        figures=[],
        hero=None,
        grades=[],
        alarms=[],
        warnings=list(page.warnings),
    )
    made = (
        environment()
        .get_template("page.html.j2")
        .render(
            first=first,
            verdict_figure="",
            verdict_alt="",
            sections=[with_pictures(section, drawn) for section in sections],
            css=read_template("style.css"),
            script="",
            version=__version__,
            created="",
            cohort="",
        )
    )
    return "\n".join(line.rstrip() for line in made.splitlines() if line.strip()) + "\n"


def _sets(page: CurationPage) -> blocks.Section:
    rows = [
        [
            blocks.text(row["name"]),
            blocks.cnt(row["patches"]),
            *(blocks.cnt(row[group]) for group in ("NN", "NT", "TT")),
            blocks.cnt(row["PT"]),
            blocks.pct(row["of_set"]),
            blocks.pct(row["of_tumour"]),
            blocks.cnt(row["slides"]),
            blocks.text(str(row["hash"])[:12], kind="code", title=str(row["hash"])),
        ]
        for row in page.sets
    ]
    table = blocks.Table(
        name="sets",
        caption="Training sets",
        columns=[
            "Set",
            "Patches",
            "NN",
            "NT",
            "TT",
            "PT",
            "PT of the set",
            "PT of tumour",
            "Slides",
            "Hash",
        ],
        rows=rows,
        note="NN: normal patches of normal slides. NT: normal patches of tumour slides. TT: tumour patches. PT: partly tumour.",
    )
    remarks: dict[str, list[str]] = {}
    for row in page.sets:
        for remark in row["remarks"]:
            remarks.setdefault(str(remark), []).append(str(row["name"]))
    shown: list[Any] = [table]
    if remarks:
        shown.append(
            blocks.Table(
                name="remarks",
                caption="What could not be reached",
                columns=["Remark", "Sets"],
                rows=[
                    [
                        blocks.text(remark),
                        blocks.text("all" if len(names) == len(page.sets) else ", ".join(names)),
                    ]
                    for remark, names in remarks.items()
                ],
            )
        )
    if page.notes:
        shown.append(blocks.Text(paragraphs=list(page.notes)))
    return blocks.Section(
        id="sets",
        title="Training sets",
        short="Sets",
        lead="One set for each clustering and each share of partly tumour patches, even over groups and clusters as far as the patches allow.",
        blocks=shown,
    )


def _clustering(
    clustering: ClusteringSection, number: int, specs: dict[str, FigureSpec], samples: dict[str, str]
) -> blocks.Section:
    shown: list[Any] = [blocks.Text(paragraphs=list(clustering.sentences))] if clustering.sentences else []
    if clustering.audit:
        shown.append(_audit(clustering, number))
    for group in clustering.groups:
        name = f"clustering-{number}-{group.name}"
        shown += [blocks.Heading(text=group.title), blocks.Text(paragraphs=[group.words])]
        pictures = []
        if len(group.numbers) > 1:
            specs[f"{name}-indices"] = _curves(group, f"{name}-indices")
        if group.points is not None and len(group.points):
            specs[f"{name}-points"] = _scatter(group, f"{name}-points")
        for kind in ("points", "indices"):
            if (spec := specs.get(f"{name}-{kind}")) is not None:
                pictures.append(blocks.Picture(name=spec.name, caption=spec.title, alt=spec.alt))
        if pictures:
            shown.append(blocks.Pair(pictures=pictures))
        for at, patches in enumerate(group.samples, start=1):
            if not len(patches):
                continue
            alt = f"{len(patches)} patches of cluster {at} of {group.title}"
            samples[f"{name}-samples-{at}"] = _montage(patches, alt)
            shown.append(
                blocks.Picture(name=f"{name}-samples-{at}", caption=f"Cluster {at}", alt=alt, wide=True)
            )
        if group.numbers:
            shown.append(
                blocks.Fold(summary="Indices as numbers", blocks=[_indices(group, name)], closed=True)
            )
    return blocks.Section(
        id=f"clustering-{number}",
        title=f"Clusters: {clustering.name}",
        short=clustering.name,
        lead=f"Features: {clustering.words}.",
        blocks=shown,
    )


def _audit(clustering: ClusteringSection, number: int) -> blocks.Table:
    return blocks.Table(
        name=f"audit-{number}",
        caption="What the clusters are",
        columns=[
            "Group",
            "Compared with",
            "Information",
            "By chance",
            "p",
            "Guessed with",
            "Guessed without",
        ],
        rows=[
            [
                blocks.text(row["group"]),
                blocks.text(row["attribute"]),
                blocks.num(row["information"], 2),
                blocks.num(row["chance"], 2),
                blocks.p_cell(row["p_value"]),
                blocks.pct(row["purity"], 0),
                blocks.pct(row["guessing"], 0),
            ]
            for row in clustering.audit
        ],
        note="Information: mutual information over the smaller entropy; 1 where one tells the other. By chance: patients given "
        "to hospitals at random, otherwise patches shuffled. Guessed: patches whose value is guessed right with and without "
        "their cluster. Sharpness and stain are cut into three parts of equal size.",
    )


def _indices(group: GroupFigures, name: str) -> blocks.Table:
    return blocks.Table(
        name=f"{name}-table",
        caption="Indices by number of clusters",
        columns=["Clusters", "Calinski-Harabasz", "Davies-Bouldin", "Mean entropy"],
        rows=[
            [
                blocks.cnt(number, sub="chosen" if number == group.chosen else ""),
                blocks.num(harabasz, 1),
                blocks.num(davies),
                blocks.num(entropy),
            ]
            for number, harabasz, davies, entropy in zip(
                group.numbers, group.harabasz, group.davies, group.entropy, strict=True
            )
        ],
    )


def _curves(group: GroupFigures, name: str) -> FigureSpec:
    chosen = f"{group.chosen} clusters were chosen" if group.chosen is not None else "the number was stated"
    return FigureSpec(
        name=name,
        title="Indices by number of clusters, each scaled to 0 to 1"
        + (f"; {group.chosen} chosen" if group.chosen is not None else ""),
        alt=f"Calinski-Harabasz and Davies-Bouldin indices for {group.numbers[0]} to {group.numbers[-1]} clusters; {chosen}.",
        build=lambda pal: draw_indices(group, pal),
    )


def draw_indices(group: GroupFigures, pal: Palette) -> Figure:
    """Draw both indices against the number of clusters, with the chord of each and the number that was chosen.

    Args:
        group: The clusters of a group.
        pal: The colours.

    Returns:
        The figure.
    """
    figure, axes = new_figure(3.3, pal)
    style(axes, pal)
    for values, colour, marker, label in (
        (group.harabasz, pal.accent, "o", "Calinski-Harabasz"),
        (group.davies, pal.second, "s", "Davies-Bouldin"),
    ):
        y = np.asarray(values, np.float64)
        known = np.isfinite(y)
        if not known.any():
            continue
        low, high = y[known].min(), y[known].max()
        scaled = (y - low) / (high - low if high > low else 1.0)
        axes.plot(
            group.numbers, scaled, color=colour, marker=marker, markersize=5, linewidth=1.6, label=label
        )
        axes.plot(
            [group.numbers[0], group.numbers[-1]],
            [scaled[0], scaled[-1]],
            color=colour,
            linewidth=0.9,
            linestyle=(0, (4, 3)),
        )
    if group.chosen is not None:
        axes.axvline(group.chosen, color=pal.ink, linewidth=1.1, linestyle=(0, (2, 2)))
    axes.set_xticks(list(group.numbers))
    axes.set_xlabel("Clusters")
    legend = figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=10.5)
    for text in legend.get_texts():
        text.set_color(pal.ink)
    return figure


def _scatter(group: GroupFigures, name: str) -> FigureSpec:
    labels = group.labels if group.labels is not None else np.zeros(0, np.int64)
    return FigureSpec(
        name=name,
        title="Patches on the first two principal components, by cluster",
        alt=f"{len(labels):,} patches in {len(np.unique(labels))} clusters on the first two principal components.",
        build=lambda pal: draw_points(group, pal),
    )


def draw_points(group: GroupFigures, pal: Palette) -> Figure:
    """Draw patches on the first two principal components; colour and mark tell the cluster, and its number stands at its centre.

    Args:
        group: The clusters of a group.
        pal: The colours.

    Returns:
        The figure.
    """
    figure, axes = new_figure(3.3, pal)
    style(axes, pal, grid="none")
    colours = (pal.accent, pal.second, pal.good, pal.bad, pal.warn, pal.above, pal.muted)
    points = group.points if group.points is not None else np.zeros((0, 2))
    labels = group.labels if group.labels is not None else np.zeros(0, np.int64)
    for cluster in np.unique(labels).tolist():
        inside = points[labels == cluster]
        colour = colours[cluster % len(colours)]
        axes.plot(
            inside[:, 0],
            inside[:, 1],
            linestyle="none",
            marker=_MARKERS[cluster % len(_MARKERS)],
            markersize=3.2,
            color=colour,
            markeredgewidth=0,
            alpha=0.65,
        )
    for cluster in np.unique(labels).tolist():
        centre = np.median(points[labels == cluster], axis=0)
        axes.annotate(
            str(cluster + 1),
            (float(centre[0]), float(centre[1])),
            color=pal.ink,
            fontsize=12,
            fontweight="bold",
            ha="center",
            va="center",
            bbox={
                "boxstyle": "circle,pad=0.25",
                "facecolor": pal.paper,
                "edgecolor": pal.ink,
                "linewidth": 0.8,
            },
        )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_xlabel("First component")
    axes.set_ylabel("Second component")
    return figure


def _montage(patches: npt.NDArray[np.uint8], caption: str) -> str:
    from PIL import Image

    count, rows, columns, _ = patches.shape
    sheet = np.full((rows, count * (columns + _GAP) - _GAP, 3), 255, np.uint8)
    for at in range(count):
        begin = at * (columns + _GAP)
        sheet[:, begin : begin + columns] = patches[at]
    held = io.BytesIO()
    Image.fromarray(sheet).save(held, format="JPEG", quality=_QUALITY)
    data = base64.b64encode(held.getvalue()).decode()
    return f'<img alt="{escape(caption, quote=True)}" src="data:image/jpeg;base64,{data}">'
