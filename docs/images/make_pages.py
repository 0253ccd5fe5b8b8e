"""Takes the pictures of the pages of a report anew that docs/gallery.md shows, with chromium and playwright.

roadworthy run studies/everything-builtin.yaml --out RUN
python docs/images/make_pages.py RUN

Each picture starts at an element of the report and is so many pixels high; colours are reduced, to keep files small.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

HERE = Path(__file__).parent
WIDTH = 1280
COLOURS = 256
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars"
)


class Shot(NamedTuple):
    """A picture: its name, the element at its top (a selector; of several the number `index`), and its height."""

    name: str
    selector: str
    height: int
    index: int = 0


SHOTS = (
    Shot("page-summary", "header", 1150),
    Shot("page-criteria", "#criteria", 800),
    Shot("page-classification", "#classification-heat", 860),
    Shot("page-shifts", "#classification-gallery", 900),
    Shot("page-confusions", "#classification-confusion .grid.wide", 700, 1),
    Shot("page-mistakes", "#classification-mistakes", 560),
    Shot("page-outliers", "#ood-outliers", 900),
    Shot("page-gan", "#ood-gans", 720),
    Shot("page-outlier-sets", "#ood-outliers .gallery", 860),
    Shot("page-dependability", "#dependability-dependability", 1000),
    Shot("page-heat-maps", "#dependability-dependability figure.heat", 720),
    Shot("page-localization", "#localization-shift", 960),
    Shot("page-boxes", "#localization-sets h3", 900),
    Shot("page-monitors", "#monitoring-matrix", 1000),
    Shot("page-stream", "#monitoring-stream", 820),
    Shot("page-benchmarks", "#monitoring-setup h3", 900, 1),
    Shot("page-od-test", "#od_test-ranking", 760),
    Shot("page-surest", "#od_test-surest", 820),
)


def take(page: Any, shot: Shot) -> None:
    """One picture, its colours reduced."""
    path = HERE / f"{shot.name}.png"
    page.set_viewport_size({"width": WIDTH, "height": shot.height})
    page.wait_for_timeout(300)
    top = page.locator(shot.selector).nth(shot.index).evaluate("e => e.getBoundingClientRect().top + window.scrollY")
    page.evaluate(f"window.scrollTo(0, {max(top - 12, 0)})")
    page.screenshot(path=str(path))
    Image.open(path).convert("RGB").quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    print(f"{path.name}: {path.stat().st_size // 1024} KB")


def main(report: Path, names: list[str]) -> None:
    """All pictures, or those that are named."""
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS.split())
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("html[data-charts=drawn]", state="attached", timeout=120_000)
        page.add_style_tag(content="nav { position: static !important }")
        for shot in SHOTS:
            if not names or shot.name in names:
                take(page, shot)
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("give the folder of a run of studies/everything-builtin.yaml, and names of pictures if not all")
    main(Path(sys.argv[1]) / "report.html", sys.argv[2:])
