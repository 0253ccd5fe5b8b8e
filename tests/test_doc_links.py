"""Every link of the docs leads to a file or a heading that exists, and every page is in the navigation of the site."""

from __future__ import annotations

import doctest
import importlib.util
import re
import sys
import unicodedata
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import roadworthy as rw
from tutorials import BLOCK

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(
    [*(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING")), *DOCS.rglob("*.md")]
)
LINK = re.compile(r"(?<!\\)\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\(")
CODE = re.compile(r"`[^`\n]*`")
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def without_code(text: str) -> str:
    return CODE.sub("`", BLOCK.sub("", text))


def slug(heading: str) -> str:
    """The anchor that GitHub and MyST give a heading.

    >>> slug("The paper's findings, one by one"), slug("Sizes: `a_b` and [c](d.md)")
    ('the-papers-findings-one-by-one', 'sizes-a_b-and-c')
    """
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "").strip().lower()
    kept = "".join(
        c for c in plain if c in "-_ " or unicodedata.category(c)[0] in "LN" or unicodedata.category(c) == "Mn"
    )
    return kept.replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of all headings of a page; the second of the same name gets -1."""
    found: list[str] = []
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", BLOCK.sub("", page.read_text()), re.MULTILINE):
        name = slug(heading)
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return frozenset(found)


def test_all_pages_are_looked_at() -> None:
    assert {"README.md", "docs/index.md", "docs/api/index.md", "docs/tutorials/thesis.md"} <= {*map(shown, PAGES)}


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(without_code(page.read_text())):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{shown(page)} links to {link}: there is no such file"
        assert file.is_relative_to(ROOT), f"{shown(page)} links to {link}, outside the project"
        if anchor:
            assert anchor in anchors(file), f"{shown(page)} links to {link}: no heading of {file.name} is called that"


def test_pictures_are_described() -> None:
    for page in ("index.md", "gallery.md"):
        for words in PICTURE.findall((DOCS / page).read_text()):
            assert len(words.split()) >= 5, f"{page}: a picture is described by {words!r} alone"


def listed(page: Path) -> tuple[set[Path], set[str]]:
    """Pages that the navigation below a page lists, and patterns such as `nam[e]` of pages that may be missing."""
    pages: set[Path] = set()
    patterns: set[str] = set()
    for block in TOCTREE.findall(page.read_text()):
        for line in filter(None, map(str.strip, block.splitlines())):
            if line.startswith(":"):
                continue
            name = re.sub(r"^.*<(.*)>$", r"\1", line)
            matched = [*page.parent.glob(f"{name}.md")] if "[" in name else [page.parent / f"{name}.md"]
            patterns |= {name} if "[" in name else set()
            pages |= {file.resolve() for file in matched}
    return pages, patterns


def test_every_page_is_in_the_navigation_once() -> None:
    seen, waiting = {DOCS / "index.md"}, [DOCS / "index.md"]
    while waiting:
        pages, _ = listed(waiting.pop())
        assert not pages & seen, f"listed twice: {[*map(shown, pages & seen)]}"
        missing = [shown(page) for page in pages if not page.exists()]
        assert not missing, f"the navigation names {missing}, which do not exist"
        seen |= pages
        waiting += pages
    forgotten = sorted(shown(page) for page in {*PAGES} - seen)
    assert not forgotten, f"name {forgotten} in a toctree of docs/index.md, or nobody finds them"


def test_every_public_name_is_in_the_api_reference() -> None:
    text = "\n".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    documented = {*re.findall(r"^\.\. (?:auto)?(?:function|class|data):: roadworthy\.(\w+)$", text, re.MULTILINE)}
    forgotten = {*rw.__all__} - documented
    assert not forgotten, f"add {sorted(forgotten)} to a page of docs/api"
    assert documented <= {*rw.__all__}, f"docs/api names {sorted(documented - {*rw.__all__})}, which are not exported"


def module_of(path: Path) -> ModuleType:
    """A Python file of the docs, imported from where it lies."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_docstrings_become_what_the_site_can_read() -> None:
    assert doctest.testmod(module_of(DOCS / "_site" / "plain_docstrings.py")) == (0, 3)


@pytest.mark.parametrize(
    ("page", "outside"),
    [
        ('<script src="https://cdn.example/x.js"></script>', True),
        ('<img alt="a" src="//example.org/a.png">', True),
        ('<link rel="stylesheet" href="https://fonts.example/css">', True),
        ("<style>@import url(https://fonts.example/css)</style>", True),
        ('<script src="_static/x.js"></script><a href="https://example.org">there</a>', False),
        ('<link rel="canonical" href="https://example.org/page.html">', False),
    ],
)
def test_what_a_page_loads_from_an_address_is_found(page: str, outside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    settings = module_of(DOCS / "conf.py")
    assert bool(settings.FROM_OUTSIDE.search(page) or settings.STYLES_FROM_OUTSIDE.search(page)) == outside
