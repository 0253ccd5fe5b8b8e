"""A real browser for tests of pages: chromium through Playwright, with an empty profile, one for each test file.

A test asks for the fixture `browser` and opens a page with `watched`, which keeps what the page complains of and what
it asks the network for. Where chromium or Playwright is missing the test is skipped with the reason; where the variable
ROADWORTHY_NO_SKIP is set, as in .ci/run, it fails.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NO_SKIP = "ROADWORTHY_NO_SKIP"
"""Set where a missing browser must fail a test."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
TIMEOUT = 15_000
"""Milliseconds after which a page that does not do what is waited for fails its test."""
SERIOUS = ("serious", "critical")
"""The impacts of axe that no page of ours may have."""
OF_COLOURS = ("color-contrast", "link-in-text-block")
"""The rules of axe that another choice of colours can break."""


def no_browser(reason: str) -> NoReturn:
    """Skip a test for want of a browser, or fail it where nothing may be skipped."""
    if os.environ.get(NO_SKIP):
        pytest.fail(f"{reason} ({NO_SKIP} is set, so that this is not skipped)")
    pytest.skip(reason)


def browser_program() -> str:
    """The path of chromium."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        no_browser(
            "no chromium on this machine: install it (Debian: apt-get install chromium) to test pages in a browser"
        )
    return program


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for all tests of a file.

    It lives no longer than the file: as long as Playwright runs, asyncio takes the thread of the tests for one with a
    running loop.
    """
    program = browser_program()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        no_browser("Playwright is not installed: pip install -c constraints.txt -e '.[dev]'")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=[*FLAGS])
        yield chromium
        chromium.close()


@dataclass
class Watched:
    """A page, what its console and its scripts complained of, and the addresses it asked for beside its own."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def watched(
    browser: Browser, address: Path | str, width: int = 1280, height: int = 800, **context: Any
) -> Iterator[Watched]:
    """A page at an address or in a file, in a window of its own; `context` goes to Playwright (color_scheme, ...)."""
    target = address.resolve().as_uri() if isinstance(address, Path) else address
    window = browser.new_context(viewport={"width": width, "height": height}, **context)
    try:
        seen = Watched(window.new_page())
        seen.page.set_default_timeout(TIMEOUT)
        seen.page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
        seen.page.on("pageerror", lambda error: seen.complaints.append(f"error: {error}"))
        seen.page.on("request", lambda request: _note_request(seen, request.url, target))
        seen.page.goto(target)
        yield seen
    finally:
        window.close()


def _note_request(seen: Watched, url: str, own: str) -> None:
    if url != own and not url.startswith(("data:", "blob:")):
        seen.requests.append(url)


def violations(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """What axe finds serious or critical on a page: the rule, why, and the first elements that break it.

    With `rules` only these are asked. What is inside a chart is left out: it is one picture to those who cannot see
    it, with a name and a table beside it.
    """
    from axe_playwright_python.sync_playwright import Axe

    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": [*rules]}
    response = Axe().run(page, context={"exclude": [[".svg-container"]]}, options=options).response
    return [
        f"{broken['id']} ({broken['impact']}): {broken['help']}: {[node['html'][:160] for node in broken['nodes'][:4]]}"
        for broken in response["violations"]
        if broken["impact"] in SERIOUS
    ]


def wait_until(page: Page, expression: str) -> None:
    """Wait until an expression of JavaScript is true; Playwright's own wait needs `eval`, which our pages forbid."""
    for _ in range(TIMEOUT // 25):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(25)
    pytest.fail(f"after {TIMEOUT / 1000:g} seconds still not true in the page: {expression}")


def overflow(page: Page) -> int:
    """By how many pixels a page is wider than its window; 0 where it does not scroll sideways."""
    wider: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wider
