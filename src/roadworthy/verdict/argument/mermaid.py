"""An argument as a Mermaid flowchart, in the shapes of the Goal Structuring Notation.

Names come from files: whatever Mermaid or HTML could act on is written as a character code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from roadworthy.core.errors import one_line
from roadworthy.verdict.argument.tree import Kind, Node

SHAPES: Mapping[Kind, tuple[str, str]] = {
    "goal": ("[", "]"),
    "strategy": ("[/", "/]"),
    "solution": ("([", "])"),
    "context": ("(", ")"),
}
COLOURS = {"pass": ("#e6f4ec", "#14693a"), "fail": ("#fdecec", "#a61b1b"), "inconclusive": ("#fdf3da", "#7a5200")}
LONGEST = 200
"""Characters of a line of a node; a longer one loses its end."""
_HARMLESS = re.compile(r"[\w .,:()/=+-]")


def label(text: object) -> str:
    """A line of text in a node; all but letters, digits and plain punctuation as character codes.

    >>> label('a"b; <i> %%{init}')
    'a#34;b#59; #60;i#62; #37;#37;#123;init#125;'
    """
    line = one_line(str(text))
    line = line if len(line) <= LONGEST else f"{line[: LONGEST - 4]} ..."
    return "".join(character if _HARMLESS.match(character) else f"#{ord(character)};" for character in line)


def to_mermaid(root: Node) -> str:
    """The argument below a goal; evidence that supports several goals is one node."""
    return "\n".join(["flowchart TD", *dict.fromkeys(_lines(root)), *_classes(root), ""])


def _lines(node: Node) -> Iterator[str]:
    opening, closing = SHAPES[node.kind]
    status = f"<b>{node.status}</b><br/>" if node.status else ""
    text = "<br/>".join(label(line) for line in node.lines if line)
    yield f'    {node.id}{opening}"{status}{text}"{closing}'
    for context in node.contexts:
        yield from _lines(context)
        yield f"    {node.id} -.-> {context.id}"
    for child in node.children:
        yield from _lines(child)
        yield f"    {node.id} --> {child.id}"


def _classes(root: Node) -> Iterator[str]:
    for status, (fill, stroke) in COLOURS.items():
        members = [*dict.fromkeys(node.id for node in root.nodes() if node.status == status)]
        if members:
            yield f"    classDef {status} fill:{fill},stroke:{stroke},color:{stroke}"
            yield f"    class {','.join(members)} {status}"
