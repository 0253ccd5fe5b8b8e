"""The viewer in a real browser: from the list to the very images, at every width, for everybody."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser import overflow, violations, watched
from roadworthy.viewer.bundling import write_bundle
from roadworthy.viewer.index import run_id
from viewer_runs import HOSTILE, listening, write_runs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

WIDTHS = (390, 1280, 1920)
DECODED = """Promise.all([...document.images].map(async (image) => {
  image.loading = "eager";
  await image.decode();
  return image.naturalWidth;
}))"""
"""The widths of all pictures of a page, once they are there."""


@pytest.fixture(scope="module")
def runs(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_runs(tmp_path_factory.mktemp("viewer"), {})


@pytest.fixture(scope="module")
def viewer(runs: Path) -> Iterator[str]:
    with listening(runs) as address:
        yield address


def follow(page: Page, link: Locator) -> None:
    """Click a link or a button and wait until its page is loaded: before that its script hears nothing."""
    with page.expect_navigation():
        link.click()


def test_a_cell_leads_to_its_images(browser: Browser, viewer: str) -> None:
    with watched(browser, viewer) as seen:
        page = seen.page
        follow(page, page.get_by_role("link", name="signs/v1"))
        follow(page, page.get_by_role("link", name="classification", exact=True))
        page.get_by_label("shift").select_option("fog")  # asks at once
        page.wait_for_url("**where.shift=fog*")
        page.get_by_label("metric").select_option("accuracy")
        page.wait_for_url("**where.metric=accuracy*")
        follow(page, page.locator("table.rows tbody a").last)
        images = page.locator("ul.images img")
        assert images.count() == 48
        assert {*page.evaluate(DECODED)} == {32}
        page.get_by_label("Answers").select_option("wrong")
        page.wait_for_url("**show=wrong*")
        assert page.locator("ul.images li.right").count() == 0
        assert page.locator("ul.images li.wrong").count() > 0
        assert seen.complaints == []
        assert all(request.startswith(viewer) for request in seen.requests)


def test_two_runs_are_marked_and_compared(browser: Browser, viewer: str) -> None:
    with watched(browser, viewer) as seen:
        button = seen.page.get_by_role("button", name="Compare two runs")
        boxes = seen.page.get_by_role("checkbox")
        assert button.is_disabled()
        boxes.nth(0).check()
        assert button.is_disabled()
        boxes.nth(1).check()
        follow(seen.page, button)
        assert "cannot be compared" in seen.page.locator("main").inner_text()
        assert seen.complaints == []


def test_a_report_is_shown_with_its_charts(browser: Browser, viewer: str) -> None:
    with watched(browser, f"{viewer}run/{run_id('signs/v1')}/report.html") as seen:
        seen.page.locator(".chart[data-drawn]").first.wait_for()
        assert seen.complaints == []
        assert seen.requests == []
        origin = seen.page.evaluate("window.origin")
        assert origin == "null"  # it belongs to nobody, and reads nothing of the viewer


@pytest.fixture(scope="module")
def addresses(viewer: str) -> list[str]:
    hostile = f"{viewer}run/{run_id('hostile')}"
    return [
        viewer,
        hostile,
        f"{hostile}/table/classification_confusion?where.shift=none",
        f"{hostile}/images?table=classification&row=0",
        f"{viewer}compare",
    ]


def test_every_page_fits_and_shows_names_as_text(browser: Browser, addresses: list[str]) -> None:
    for address in addresses:
        with watched(browser, address, bypass_csp=True) as seen:
            for width in WIDTHS:
                seen.page.set_viewport_size({"width": width, "height": 800})
                assert overflow(seen.page) == 0, (address, width)
            assert "owned" not in seen.page.title()
            assert seen.page.locator("img[onerror]").count() == 0
            assert seen.complaints == [], address
            assert violations(seen.page) == [], address
    with watched(browser, addresses[3]) as seen:
        assert HOSTILE in seen.page.locator("main").inner_text()
        assert seen.complaints == []


def test_a_bundle_needs_nothing_but_a_web_server(browser: Browser, runs: Path, tmp_path: Path) -> None:
    write_bundle(runs, tmp_path / "site")
    handler = functools.partial(_Quiet, directory=str(tmp_path / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/index.html"
        try:
            with watched(browser, address) as seen:
                page = seen.page
                page.locator("#runs tbody tr").nth(1).wait_for()
                page.get_by_label("Words").fill("worse")
                assert page.locator("#runs tbody tr").count() == 1
                follow(page, page.get_by_role("link", name="signs/v1"))
                follow(page, page.get_by_role("link", name="classification", exact=True))
                before = page.locator("#rows tbody tr").count()
                page.get_by_label("Words").fill("fog accuracy_drop")
                page.get_by_text("rows match").wait_for()
                assert 0 < page.locator("#rows tbody tr").count() < before
                assert overflow(page) == 0
                assert seen.complaints == []
            with watched(browser, address, bypass_csp=True) as seen:
                seen.page.locator("#runs tbody tr").nth(1).wait_for()
                assert violations(seen.page) == []
        finally:
            server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass
