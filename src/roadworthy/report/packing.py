"""Packing: what a large page keeps compressed until a reader asks for it.

A page is one file, so its data comes along: as base64 of gzip in a script element that is no script, which report.js
unpacks (`DecompressionStream`) when a chart comes near the window, or a table is filtered, sorted or paged through.
Pages of a usual size have nothing packed: they work without scripts and print whole.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from markupsafe import Markup, escape

LONG_TABLE = 300
"""A table of more rows is packed."""
SHOWN_ROWS = 100
"""So many rows of a packed table stand in the page from the start; report.js shows as many at a time."""
PLAIN_CHARTS = 3_000_000
"""Charts are packed where their JSON is longer than this."""
GZIP = 31
"""What zlib calls the format of gzip, with a header that names no date."""
SPANS = re.compile(r"<t[dh][^>]* (?:col|row)span=")
Block = tuple[str, Markup]


def packed(text: str) -> str:
    """A text as base64 of gzip, the same every time.

    >>> import gzip
    >>> gzip.decompress(base64.b64decode(packed("fog"))).decode()
    'fog'
    """
    return _packed_pieces([text])


def _packed_pieces(pieces: Iterable[str]) -> str:
    """As `packed` of the pieces put together, of which no more than one is held at a time."""
    compressor = zlib.compressobj(6, zlib.DEFLATED, GZIP)
    parts = [compressor.compress(piece.encode("utf-8", "backslashreplace")) for piece in pieces]
    return base64.b64encode(b"".join([*parts, compressor.flush()])).decode()


def table_end(rows: Iterable[Any], file: str = "", *, caller: Callable[[Any], str]) -> Markup:
    """The body and the end of a table, for templates: `caller` makes a row of the table of each of `rows`.

    A long one is packed while it is made, so that its whole text is never held. `file` is where the run holds all
    rows. The rows must have as many cells as the table has columns.

    >>> table_end(["fog"], caller="<tr><td>{}</td></tr>".format)
    Markup('<tbody>\\n<tr><td>fog</td></tr>\\n</tbody></table>')
    """
    lines = (_one_line(caller(row)) for row in rows)
    first = [*islice(lines, LONG_TABLE + 1)]
    if len(first) <= LONG_TABLE:
        return Markup("<tbody>\n" + "\n".join(first) + "\n</tbody></table>")
    count = 0

    def pieces() -> Iterator[str]:
        nonlocal count
        for count, line in enumerate(chain(first, lines), 1):
            yield line if count == 1 else f"\n{line}"

    block = _packed_pieces(pieces())
    return Markup("<tbody>" + _packed_end(first[:SHOWN_ROWS], block, count, file))


def _one_line(row: str) -> str:
    return " ".join(row.split("\n")).strip()


def _packed_end(shown: Sequence[str], block: str, count: int, file: str = "") -> str:
    """The first rows of a packed table and what follows them: all rows, and how many are not shown, for print."""
    rows = "\n".join(shown)
    elsewhere = f"in <code>{escape(file)}</code> of the run, and " if file else ""
    return (
        f'\n{rows}\n</tbody><script type="application/gzip" data-rows="{count}">{block}</script></table>'
        f'<p class="left-out">Left out here: <b>{count - len(shown):,}</b> of {count:,} rows. All of them: {elsewhere}'
        "on this page in a browser that runs JavaScript, where &ldquo;Save as CSV&rdquo; saves them.</p>"
    )


def pack_tables(html: str) -> str:
    """HTML with the rows of its long tables packed, but for the first.

    A table is left as it is where it has several bodies, or cells that span several columns or rows.

    >>> table = "<table><thead></thead><tbody>" + LONG_TABLE * "<tr></tr>" + "{}</tbody></table>"
    >>> pack_tables(table.format("")) == table.format("")
    True
    >>> pack_tables(table.format("<tr></tr>")).count("<tr>")
    100
    """
    pieces, done = [], 0
    for start in (match.end() for match in re.finditer("<tbody>", html)):
        end = html.index("</tbody>", start)
        if html.count("<tr", start, end) <= LONG_TABLE:
            continue
        head = html.rindex("<table", 0, start)
        body = html[start:end]
        ends = ("</tbody></table>", "</tbody>\n</table>")
        alone = html.startswith(ends, end) and "<tbody>" not in html[head : start - len("<tbody>")]
        if alone and not SPANS.search(body):
            rows = [_one_line(f"{row}</tr>") for row in body.split("</tr>")[:-1]]
            pieces += [html[done:start], _packed_end(rows[:SHOWN_ROWS], packed("\n".join(rows)), len(rows))]
            done = html.index("</table>", end) + len("</table>")
    return "".join([*pieces, html[done:]]) if pieces else html


def chart_blocks(charts: dict[str, Any]) -> tuple[Markup, list[Block]]:
    """The charts of a page as JSON that can stand in a script element; of a large page packed, each by itself.

    >>> chart_blocks({"name": "</script><b>&"})
    (Markup('{"name":"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e\\\\u0026"}'), [])
    """
    texts = {name: json.dumps(chart, separators=(",", ":"), allow_nan=False) for name, chart in charts.items()}
    if sum(map(len, texts.values())) > PLAIN_CHARTS:
        return Markup("{}"), [(name, Markup(packed(text))) for name, text in texts.items()]
    plain = "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in texts.items()) + "}"
    return Markup(plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")), []
