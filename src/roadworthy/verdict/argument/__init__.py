"""The argument of a verdict: claim, argument, evidence, as a tree that other tools and people can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.core.record import RunRecord
from roadworthy.verdict.argument.artefacts import Artefact, artefacts_of
from roadworthy.verdict.argument.mermaid import to_mermaid
from roadworthy.verdict.argument.picture import to_svg
from roadworthy.verdict.argument.tree import Node, build_tree
from roadworthy.verdict.argument.vnvspec import to_vnvspec

__all__ = ["Argument", "Artefact", "Node", "artefacts_of"]

FORMATS = {".mmd": "to_mermaid", ".json": "to_json", ".svg": "to_svg"}
"""What each ending of a file stands for: GSN as Mermaid, JSON for vnvspec, a picture."""


@dataclass(frozen=True)
class Argument:
    """Claim, argument and evidence of a verdict (the content of verdict.json).

    `record` is that of the run, which names the evidence; `protocols` is the protocol of each criterion, by its id.
    Without them the tree ends with the figures.
    """

    verdict: Mapping[str, Any]
    record: RunRecord | None = None
    protocols: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def root(self) -> Node:
        """The claim at the top; everything else is below it."""
        return build_tree(self.verdict, self.record, self.protocols)

    def to_mermaid(self) -> str:
        """As a Mermaid flowchart in the shapes of the Goal Structuring Notation."""
        return to_mermaid(self.root)

    def to_vnvspec(self) -> dict[str, Any]:
        """As content that `vnvspec` reads as a `Spec` and as a `Report`."""
        return to_vnvspec(self.root, self.verdict, self.record, self.protocols)

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.to_vnvspec(), indent=1, ensure_ascii=True, allow_nan=False) + "\n"

    def to_svg(self) -> str:
        """As a picture."""
        return to_svg(self.root)

    def inline_svg(self) -> str:
        """As a picture that is part of a page, in the colours of its text."""
        return to_svg(self.root, alone=False)

    def written_as(self, path: str | Path) -> str:
        """The text of a file of that name, whose ending says what it holds: .mmd, .json or .svg."""
        ending = Path(path).suffix.lower()
        if ending not in FORMATS:
            raise InputError(f"{path} must end in .mmd (Mermaid), .json (vnvspec) or .svg (a picture)")
        text: str = getattr(self, FORMATS[ending])()
        return text
