"""Fills docs/benchmark.md, and draws its pictures, from the results in results/benchmark.

    python scripts/fill_benchmark.py

The script fills the blocks between markers such as `<!-- tops -->` and `<!-- /tops -->`; the rest of the page is
written by hand and says nothing about results. What is said about them are the claims of the study, each of which is
checked against the numbers: the script refuses to write a claim that they contradict. A test checks that the blocks
agree with the results on record.
"""

from pathlib import Path

from fedfv.reports import fill_blocks
from fedfv.studies import Analysis, Results, Study, analyse, overview, prose, read_study, section, write_pictures

ROOT = Path(__file__).parents[1]
RESULTS, IMAGES, PAGE = ROOT / "results" / "benchmark", ROOT / "docs" / "images", ROOT / "docs" / "benchmark.md"
COMMAND = "fedfv study benchmark"


def analysed(study: Study) -> list[Analysis]:
    """The numbers of all tracks."""
    results = Results(RESULTS)
    return [analyse(study, track, results) for track in study.tracks]


def blocks(study: Study, analyses: list[Analysis]) -> dict[str, str]:
    """The text of each block, by the name of its markers."""
    by_name = {analysis.track.name: analysis for analysis in analyses}
    texts = {"in-short": prose(study, by_name), "overview": "No track has results on record yet."}
    if any(analysis.lines for analysis in analyses):
        texts["overview"] = overview(study, analyses)
    for name, analysis in by_name.items():
        texts[name] = section(study, analysis, COMMAND, f"images/{image_of(analysis).name}")
    return texts


def image_of(analysis: Analysis) -> Path:
    """The files of the pictures of a track, without their endings."""
    return IMAGES / f"benchmark-{analysis.track.name}"


def filled(page: str) -> str:
    """The page with its blocks filled from the results."""
    study = read_study("benchmark")
    return fill_blocks(page, blocks(study, analysed(study)))


def main() -> None:
    study = read_study("benchmark")
    for analysis in analysed(study):
        if analysis.lines:
            write_pictures(study, analysis, image_of(analysis))
    PAGE.write_text(filled(PAGE.read_text()))


if __name__ == "__main__":
    main()
