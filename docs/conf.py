"""The documentation site: README, ARCHITECTURE and docs/ as Sphinx pages, built by `make docs`.

The source folder is the root of the project, so that every relative link of a page leads to the same file here and
where the Markdown is read as it is. Nothing is downloaded when the site is built or read.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "docs" / "_site")]

from plain_docstrings import convert  # noqa: E402

project = "Roadworthy"
author = "Roadworthy"
copyright = "Roadworthy, MIT licence"
release = version = installed_version("roadworthy")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**"]
exclude_patterns = [".*", "src", "tests", "runs", "build", "dist", "examples", "studies", "benchmarks", "docs/_site"]

myst_heading_anchors = 4
myst_enable_extensions: list[str] = []

nitpicky = True
INNER = (
    r"core\.(record\..*|registry\.T)|engine\.(plan|folder)\..*|report\..*|models\.signals\.Answer|verdict\.(failures|why)\..*"
    r"|metrics\.(base\.\w+Rows|base\.MetricValues|binning\..*|ranking\..*)|statistics\.paired\.PairedChange"
    r"|protocols\.(joint_test|repeat_analysis)\..*|models\.task_training\..*|monitors\.(learned\.Made|onnx_export\..*)"
    r"|metrics\.names\..*|verdict\.(answers\..*|criteria\.Decision|questions\..*)"
)
nitpick_ignore_regex = [(r"py:.*", r"(?!roadworthy\.).*"), (r"py:.*", rf"roadworthy\.({INNER})")]
"""Every reference must lead somewhere, but for types of other libraries and of inner modules, which have no page."""

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
add_module_names = False

html_theme = "furo"
html_title = "Roadworthy"
html_static_path = ["_site/static"]
templates_path = ["_site/templates"]
html_css_files = ["roadworthy.css"]
html_additional_pages = {"index": "redirect.html"}
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5394", "color-brand-content": "#0b5394"},
    "dark_css_variables": {"color-brand-primary": "#8ab4f8", "color-brand-content": "#8ab4f8"},
}

FROM_OUTSIDE = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["'](?:https?:)?//|@import\s+url\((?:https?:)?//"""
)
STYLES_FROM_OUTSIDE = re.compile(
    r"""<link\b(?=[^>]*\brel=["'](?:stylesheet|preload|preconnect|icon)["'])[^>]*\bhref=["'](?:https?:)?//"""
)


MAYBE = re.compile(r"[\w/]*\[\w\]")


def plain_docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Turn the docstring of a public name into reStructuredText."""
    lines[:] = convert(lines)


def only_present_pages(app: Any, docname: str, source: list[str]) -> None:
    """Drop entries such as `pag[e]` from the navigation where there is no such page; all others must be there."""
    if docname == root_doc:
        folder = Path(app.srcdir) / "docs"
        lines = source[0].split("\n")
        source[0] = "\n".join(line for line in lines if not MAYBE.fullmatch(line) or any(folder.glob(f"{line}.md")))


def nothing_from_outside(app: Any, failure: Exception | None) -> None:
    """Fail the build where a page would load a script, a style or a picture from an address."""
    if failure is not None:
        return
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if FROM_OUTSIDE.search(text) or STYLES_FROM_OUTSIDE.search(text):
            raise RuntimeError(f"{page} loads something from an address: the site must work without a network")


def setup(app: Any) -> None:
    """Connect the functions above to the build."""
    app.connect("source-read", only_present_pages)
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("build-finished", nothing_from_outside)
