"""Names in a study file that only other parts of the program know: looked up before hours are spent on them."""

from __future__ import annotations

from collections.abc import Sequence

from elsewhere.errors import UserError, unknown_name
from elsewhere.study.file import Study

NETWORKS = ("efficientnet-b0", "efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2", "vit-b-16")
FINDERS = ("finder-lite0", "finder-small", "finder-tiny")
"""Known without loading torch; any other name is looked up where the networks are."""
PUBLISHED = ("ultrasound",)
"""Published studies whose numbers ship with the package."""


def check_names(study: Study, datasets: Sequence[str], *, where: str) -> None:
    """Check the names in a study that only other parts of the program know.

    These are networks, finders, published studies, the datasets to leave out, and the margin that the others
    are compared with.

    Args:
        study: The study.
        datasets: The datasets of its table, among which those of `analyses.without` must be.
        where: The file, for messages.

    Raises:
        UserError: A name is unknown (the message lists similar ones), or no input has the margin that
            `analyses.margin_reference` names.
    """
    try:
        for model in study.models.values():
            _known("network", model.network, NETWORKS)
        if any(seen.boxes == "found" for seen in study.inputs.values()):
            _known("finder", study.finder.network, FINDERS)
        for name in study.analyses.without:
            if name not in datasets:
                raise unknown_name("dataset", name, list(datasets))
        reference = study.analyses.reference
        if reference and reference not in PUBLISHED:
            raise unknown_name("published study", reference, PUBLISHED)
    except UserError as mistake:
        raise UserError(mistake.what, where=where, fix=mistake.fix) from None
    wanted = study.analyses.margin_reference
    margins = sorted({seen.margin for seen in study.inputs.values() if seen.kind == "roi"})
    if wanted is not None and wanted not in margins:
        raise UserError(
            f"no input has the margin {wanted:g} that analyses.margin_reference names",
            where=where,
            fix=f"The study's margins: {', '.join(f'{m:g}' for m in margins) or 'none'}.",
        )


def _known(kind: str, name: str, names: tuple[str, ...]) -> None:
    if name in names:
        return
    found: set[str] = set(names)
    try:
        if kind == "network":
            from elsewhere.networks import NETWORKS as HERE

            found |= set(HERE)
        else:
            from elsewhere.networks.finder import FINDERS as THERE

            found |= set(THERE)
    except ImportError:
        pass
    if name not in found:
        raise unknown_name(kind, name, sorted(found))
