"""The pictures of docs/viewer.md, from a folder of runs that holds a run named `demo`.

python docs/images/make_viewer.py DIR                      viewer.png and viewer-images.png, 1280x800
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "tests"))

from browser import FLAGS, browser_program  # noqa: E402
from viewer_runs import listening  # noqa: E402


def main(folder: Path) -> None:
    """Write both pictures beside this file."""
    from playwright.sync_api import sync_playwright

    with listening(folder) as address, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser_program(), args=[*FLAGS])
        page = chromium.new_page(viewport={"width": 1280, "height": 800})
        page.goto(address)
        page.screenshot(path=HERE / "viewer.png")
        page.set_viewport_size({"width": 1280, "height": 720})
        page.get_by_role("link", name="demo", exact=True).first.click()
        table = page.get_by_role("link", name="classification", exact=True).get_attribute("href")
        page.goto(f"{address[:-1]}{table}?where.shift=fog&where.level=3&where.metric=accuracy")
        page.locator("table.rows tbody a").first.click()
        page.get_by_label("Answers").select_option("wrong")
        page.wait_for_url("**show=wrong*")
        page.wait_for_load_state("networkidle")
        page.screenshot(path=HERE / "viewer-images.png")
        chromium.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
