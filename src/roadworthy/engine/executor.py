"""What does all that a graph asks for: on this machine, or on others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any

from roadworthy.engine.artifacts import is_built, read_artifact
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.ledger import Outcome
from roadworthy.engine.plan import ArtifactNode, CaseNode, Graph, PlannedCase
from roadworthy.engine.progress import ProgressBar, no_progress


class Executor(ABC):
    """Does all that a graph asks for and that the store does not hold yet."""

    @abstractmethod
    def run(self, graph: Graph, store: RunFolder) -> Outcome:
        """Do it all; every artifact that is there is ready for use then."""


class GraphExecutor(Executor):
    """Does a graph in its order.

    A node that fails is recorded, what requires it fails for the same reason, and all others go on. Stopped at any
    instant, a second run goes on where the first one was: stored parts are kept, but for those that are not as they
    were written. Artifacts come first, level by level, each level after the cases it requires; all other cases follow
    together.
    """

    def __init__(self, progress: ProgressBar = no_progress, title: str = "testing") -> None:
        self.progress, self.title = progress, title

    def run(self, graph: Graph, store: RunFolder) -> Outcome:
        """Do it all."""
        outcome = Outcome(
            failures={hash_: node.planned.refused for hash_, node in graph.cases.items() if node.planned.refused}
        )
        first = [node for node in graph.cases.values() if node.early and not node.level]
        self._show_nodes(first, graph, store, outcome)
        for level in graph.levels:
            nodes = [node for node in graph.artifacts.values() if node.level == level]
            self._build_level(nodes, graph, store, outcome)
            early = [node for node in graph.cases.values() if node.early and node.level == level]
            self._show_nodes(early, graph, store, outcome)
        self._show_nodes([node for node in graph.cases.values() if not node.early], graph, store, outcome)
        outcome.failures = graph.reasons(outcome.failures)
        return outcome

    def _show_nodes(self, nodes: Sequence[CaseNode], graph: Graph, store: RunFolder, outcome: Outcome) -> None:
        lost = graph.reasons(outcome.failures)
        cases = [node.planned for node in nodes if node.planned.case.hash not in lost]
        if cases:
            title = self.title if not nodes[0].early else "reading training data"
            with self.progress(title, sum(len(planned.showing.data) for planned in cases)) as advance:
                self._show(cases, graph, store, outcome, advance)

    @abstractmethod
    def _build_level(self, nodes: Sequence[ArtifactNode], graph: Graph, store: RunFolder, outcome: Outcome) -> None:
        """Build artifacts that do not require each other."""

    @abstractmethod
    def _show(
        self,
        cases: Sequence[PlannedCase],
        graph: Graph,
        store: RunFolder,
        outcome: Outcome,
        progress: Callable[[int], None],
    ) -> None:
        """Run cases whose requirements are there; `progress` is told how many answers have been given."""


def load_artifact(node: ArtifactNode, store: RunFolder) -> dict[str, Any]:
    """Make an artifact of the store ready for all that use it; what its manifest says."""
    home = store.artifact(node.hash)
    for part in node.parts:
        part.load(home)
    return read_artifact(home)


def load_built(graph: Graph, store: RunFolder, hashes: Collection[str]) -> None:
    """Make those of some artifacts ready that are in the store."""
    for hash_, artifact in graph.artifacts.items():
        if hash_ in hashes and is_built(store, artifact.parts[0].recipe):
            load_artifact(artifact, store)
