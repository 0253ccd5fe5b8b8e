"""An argument as a picture (SVG): from left to right the claim, its strategies, a goal per criterion, and evidence.

Lines and text take the colour of the text around them, so that the picture fits light and dark pages; the colours of
statuses are those of the report where it has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from roadworthy.core.errors import one_line
from roadworthy.verdict.argument.tree import Node

WIDTHS = (240, 230, 330, 360)
"""Of the columns, in pixels; what is deeper than the last has its width."""
GAP, ROW, LINE, PAD = 30, 12, 15, 9
"""Between columns, between nodes, between lines of text, and inside a node."""
CHARACTER, BOLD = 6.4, 7.0
"""The width of a character of 11.5 pixels, on the safe side, and of a bold one."""
MARGIN = 14
MOST_LINES = 5
"""Lines of one text in a node; a longer one loses its end."""
SIZE = 11.5
STATUSES = {"pass": "#14693a", "fail": "#a61b1b", "inconclusive": "#7a5200", "none": "#46515d"}
DARK = {"pass": "#5fd08f", "fail": "#ff8f8f", "inconclusive": "#f0c05a", "none": "#a9b4c0"}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class _Box:
    """A node where it is drawn, with its lines of text as they are wrapped."""

    node: Node
    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]
    bold: int = 0
    """How many of the lines are bold."""

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def to_svg(root: Node, *, alone: bool = True) -> str:
    """The picture; `alone` as a file of its own with colours for light and dark, else as part of a page."""
    boxes: list[_Box] = []
    lines: list[str] = []
    bottom = _draw(root, 0, 0.0, boxes, lines)
    margin = MARGIN if alone else 1
    width, height = max(box.x + box.width for box in boxes) + 2 * margin, bottom - ROW + 2 * margin
    title = escape(_clean(f"Argument: {root.lines[0]}: {root.status}"))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-margin} {-margin} {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label={_quoted(title)} font-family="{FONT}" font-size="{SIZE}" '
        'fill="currentColor">',
        f"<title>{title}</title>",
        *([_style()] if alone else []),
        '<g fill="none" stroke="currentColor" opacity="0.45">',
        *lines,
        "</g>",
        *(part for box in boxes for part in _shape(box)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _quoted(escaped: str) -> str:
    return '"' + escaped.replace('"', "&quot;") + '"'


def _style() -> str:
    light = ";".join(f"--{name}:{colour}" for name, colour in STATUSES.items())
    dark = ";".join(f"--{name}:{colour}" for name, colour in DARK.items())
    return (
        f"<style>svg{{color:#1c2530;background:#fff;{light}}}"
        f"@media (prefers-color-scheme:dark){{svg{{color:#e6eaef;background:#14181d;{dark}}}}}</style>"
    )


def _draw(node: Node, depth: int, top: float, boxes: list[_Box], lines: list[str]) -> float:
    """Place a node and all below it from `top` on; returns where the next one may begin."""
    column = min(depth, len(WIDTHS) - 1)
    x, width = sum(WIDTHS[:column]) + GAP * column, float(WIDTHS[column])
    box = _box(node, x, top, width)
    boxes.append(box)
    below = box.y + box.height + ROW
    for context in node.contexts:
        placed = _box(context, x + 14, below, width - 14)
        boxes.append(placed)
        lines.append(_path(f"M{x + 5:g} {box.y + box.height:g}V{placed.middle:g}H{placed.x:g}", dashed=True))
        below = placed.y + placed.height + ROW
    child_top = top
    for child in node.children:
        first = len(boxes)
        child_top = _draw(child, depth + 1, child_top, boxes, lines)
        placed, turn = boxes[first], x + width + GAP / 2
        start = box.y + min(box.height / 2, 20)
        lines.append(_path(f"M{x + width:g} {start:g}H{turn:g}V{placed.y + min(placed.height / 2, 20):g}H{placed.x:g}"))
    return max(below, child_top)


def _path(course: str, *, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="3 3"' if dashed else ""
    return f'<path d="{course}"{dash}/>'


def _box(node: Node, x: float, y: float, width: float) -> _Box:
    room, texts = width - 2 * PAD - 6, [text for text in node.lines if text]
    first = _wrapped(texts[0], int(room / (BOLD if node.kind == "goal" else CHARACTER)))
    lines = (*first, *(part for text in texts[1:] for part in _wrapped(text, int(room / CHARACTER))))
    head = 1 if node.status else 0
    bold = len(first) if node.kind == "goal" else 0
    return _Box(node, x, y, width, (len(lines) + head) * LINE + 2 * PAD - 3, lines, bold)


def _wrapped(text: str, most: int) -> list[str]:
    """A text in lines of so many characters at most; a longer word is cut.

    >>> _wrapped("a sign is misread in fog", 12)
    ['a sign is', 'misread in', 'fog']
    """
    lines = [""]
    for word in _clean(one_line(text)).split(" "):
        for part in [word[start : start + most] for start in range(0, len(word), most)]:
            if lines[-1] and len(lines[-1]) + 1 + len(part) > most:
                lines.append("")
            lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], f"{lines[MOST_LINES - 1][: most - 4]} ..."]


def _clean(text: str) -> str:
    """Without the control characters that XML forbids."""
    return _NOT_XML.sub("\ufffd", text)


def _shape(box: _Box) -> Iterator[str]:
    """A goal is a rectangle, a strategy a parallelogram, a solution and a context are round."""
    node, colour = box.node, _colour(box.node.status)
    yield f"<g><title>{escape(_clean(f'{node.id}: ' + ' / '.join(map(one_line, node.lines))))}</title>"
    stroke = f'style="stroke:{colour}" stroke-width="1.6"' if node.status else 'stroke="currentColor"'
    look = f'fill="currentColor" fill-opacity="0.04" {stroke}'
    corner = f'x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}"'
    if node.kind == "strategy":
        right, bottom, lean = box.x + box.width, box.y + box.height, 7
        points = [(box.x + lean, box.y), (right, box.y), (right - lean, bottom), (box.x, bottom)]
        yield f'<polygon points="{_points(points)}" {look}/>'
    else:
        radius = {"goal": 2, "context": 12, "solution": min(box.height / 2, 22)}[node.kind]
        yield f'<rect {corner} rx="{radius:g}" {look}/>'
    x, y = box.x + PAD + 5, box.y + PAD + SIZE - 2
    if node.status:
        words = f"{node.id} \u00b7 {node.status}"
        yield f'<text x="{x:g}" y="{y:g}" font-weight="700" style="fill:{colour}">{escape(words)}</text>'
        y += LINE
    for number, line in enumerate(box.lines):
        weight = ' font-weight="600"' if number < box.bold else ""
        yield f'<text x="{x:g}" y="{y + number * LINE:g}"{weight}>{escape(line)}</text>'
    yield "</g>"


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def _colour(status: str) -> str:
    return f"var(--{status},{STATUSES[status]})" if status in STATUSES else "currentColor"
