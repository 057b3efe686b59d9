"""Write the results pages of docs/results/ from the committed tables of finished studies.

    python docs/make_results.py                                   every page, from the tables that are there
    python docs/make_results.py ultrasound --take NAME STUDY      copy a study's tables first (patient, image, ...)
    python docs/make_results.py mri-response --take STUDY --command COMMAND --machine WORDS    (tomosynthesis likewise)
    python docs/make_results.py tomosynthesis --take STUDY SCORES --command ... --machine ...  (synthetic vendors)

The tables lie under benchmarks/results/, and `page.md` beside them is the page with a mark where a block goes; the
blocks are the functions in docs/results_pages/.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType

from results_pages import mri_response, mri_segmentation, tomosynthesis, ultrasound
from results_pages.tables import ROOT
from results_pages.ultrasound_figures import write_figures

PAGES: dict[str, ModuleType] = {
    "ultrasound": ultrasound,
    "mri-response": mri_response,
    "mri-segmentation": mri_segmentation,
    "tomosynthesis": tomosynthesis,
}


def write_page(name: str) -> Path:
    """Write one page, and the figures that belong to it.

    Args:
        name: A key of `PAGES`.

    Returns:
        The page.
    """
    if name == "ultrasound":
        write_figures(ultrasound.STUDY.folder, ROOT / "docs" / "images")
    path = ROOT / "docs" / "results" / f"{name}.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(PAGES[name].page())
    return path


def main() -> None:
    """Parse the command line, copy tables where it says so, and write the pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", nargs="?", choices=list(PAGES), help="one page; default: all")
    parser.add_argument("--take", nargs="+", metavar="STUDY", help="copy the tables of this study first")
    parser.add_argument(
        "--command", default="elsewhere run mri-response", help="mri-response, tomosynthesis: what ran it"
    )
    parser.add_argument("--machine", default="", help="mri-response, tomosynthesis: where it ran")
    parser.add_argument(
        "--regions", metavar="DATA", type=Path, help="mri-response: measure automatic regions"
    )
    parser.add_argument("--leak", nargs=2, metavar=("IMAGE_STUDY", "PATIENT_STUDY"), type=Path)
    parser.add_argument("--shape", metavar="DATA", type=Path, help="ultrasound: what outlines alone tell")
    given = parser.parse_args()
    if given.take and given.page is None:
        parser.error("--take needs the name of a page")
    if given.take and given.page == "ultrasound":
        name, study = given.take
        ultrasound.take(name, Path(study))
    elif given.take and given.page == "mri-response":
        mri_response.take(Path(given.take[0]), command=given.command, machine=given.machine)
    elif given.take and given.page == "tomosynthesis" and len(given.take) == 2:
        study, scores = map(Path, given.take)
        tomosynthesis.take_vendors(study, scores, command=given.command, machine=given.machine)
    elif given.take and given.page == "tomosynthesis":
        tomosynthesis.take(Path(given.take[0]), command=given.command, machine=given.machine)
    elif given.take:
        parser.error("the tables of mri-segmentation were made by an earlier revision, which the page names")
    if given.regions:
        mri_response.take_regions(given.regions)
    if given.leak:
        ultrasound.take_leak(*given.leak)
    if given.shape:
        ultrasound.take_shape(given.shape)
    for name in [given.page] if given.page else PAGES:
        print(write_page(name))


if __name__ == "__main__":
    main()
