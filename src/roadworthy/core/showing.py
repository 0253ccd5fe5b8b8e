"""How objects show themselves in a notebook: small pieces of HTML, escaped, without scripts, in light and dark."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

MOST_ROWS = 40
"""Rows of a table that are shown."""
MOST_TEXT = 400
"""Characters of a cell that are shown."""
MOST_PICTURES = 8
MOST_PIXELS = 192
"""Pictures that are shown, and their width and height at most."""
COLOURS = {"pass": "#1a7f4b", "fail": "#d4351c", "inconclusive": "#b27300"}
"""Of a status: readable on white and on black."""


class Html(str):
    """Text that is HTML already."""


def escaped(value: object) -> str:
    """A value as HTML: text is shown as it is, `Html` as what it is.

    >>> escaped("<b>"), escaped(Html("<b>a</b>"))
    ('&lt;b&gt;', '<b>a</b>')
    """
    if isinstance(value, Html):
        return value
    text = " ".join(str(value).split())
    return html.escape(text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…")


def status(word: str) -> Html:
    """A status in its colour; the word says it too."""
    colour = COLOURS.get(word)
    style = f' style="color:{colour};font-weight:600"' if colour else ""
    return Html(f"<span{style}>{escaped(word)}</span>")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """A table with a head; of many rows the first, and how many more there are."""
    cell = 'style="text-align:left;vertical-align:top"'
    listed = [*rows]
    columns = "".join(f'<th scope="col" {cell}>{escaped(name)}</th>' for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td {cell}>{escaped(value)}</td>" for value in row) + "</tr>" for row in listed[:MOST_ROWS]
    )
    more = len(listed) - MOST_ROWS
    rest = f"<tr><td {cell} colspan='{len(head)}'>… and {more:,} more</td></tr>" if more > 0 else ""
    return Html(f"<table><thead><tr>{columns}</tr></thead><tbody>{body}{rest}</tbody></table>")


def pairs(rows: Iterable[tuple[str, object]]) -> Html:
    """Names with their values, one below the other."""
    cell = 'style="text-align:left;vertical-align:top"'
    body = "".join(
        f'<tr><th scope="row" {cell}>{escaped(name)}</th><td {cell}>{escaped(value)}</td></tr>' for name, value in rows
    )
    return Html(f"<table><tbody>{body}</tbody></table>")


def pictures(images: Sequence[tuple[NDArray[np.uint8], str]]) -> Html:
    """The first images (H, W, C) of some, each with a caption, as pictures inside the page."""
    shown = "".join(
        f'<figure style="display:inline-block;margin:4px;text-align:center"><img alt="{escaped(caption)}" '
        f'src="data:image/png;base64,{_png(image)}" style="width:96px;image-rendering:pixelated">'
        f"<figcaption>{escaped(caption)}</figcaption></figure>"
        for image, caption in images[:MOST_PICTURES]
    )
    more = len(images) - MOST_PICTURES
    return Html(f"<div>{shown}{f'<p>… and {more:,} more</p>' if more > 0 else ''}</div>")


def _png(image: NDArray[np.uint8]) -> str:
    from PIL import Image

    picture, file = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image), io.BytesIO()
    picture.thumbnail((MOST_PIXELS, MOST_PIXELS))
    picture.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def card(title: object, *parts: object) -> str:
    """A title and what follows it."""
    return f"<div><p><strong>{escaped(title)}</strong></p>{''.join(map(_part, parts))}</div>"


def _part(part: object) -> str:
    return part if isinstance(part, Html) else f"<p>{escaped(part)}</p>"
