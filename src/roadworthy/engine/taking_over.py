"""Taking over from an earlier run what is unchanged: finished nodes with the same hash are not made again."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from roadworthy.core.files import TEMPORARY, remove, write_bytes
from roadworthy.core.manifests import MANIFEST, is_committed, is_whole, named_parts
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.plan import Graph


@dataclass(frozen=True)
class TakenOver:
    """How many artifacts and cases are those of the earlier run, and which of its nodes are damaged and made again."""

    artifacts: int = 0
    cases: int = 0
    damaged: tuple[str, ...] = ()


def take_over(graph: Graph, folder: RunFolder, earlier: RunFolder) -> TakenOver:
    """Put every finished node of an earlier run that a graph needs, and that the folder lacks, into the folder.

    A node counts where each of its files has the hash that its manifest states. Files are linked where the disk allows
    it, else copied: nobody writes to a finished node. Only for who holds the lock of the folder; the earlier run stays
    as it is.
    """
    damaged: list[str] = []
    homes = [(earlier.artifact(node), folder.artifact(node), node) for node in graph.artifacts]
    artifacts = sum(_take(*home, damaged) for home in homes)
    cases = [node.planned.case for node in graph.cases.values()]
    shown = sum(_take(earlier.case(case.key), folder.case(case.key), case.hash, damaged) for case in cases)
    return TakenOver(artifacts, shown, tuple(damaged))


def _take(source: Path, target: Path, node: str, damaged: list[str]) -> bool:
    """Whether a node is now that of the earlier run; one that is damaged there is named."""
    if not (source / MANIFEST).is_file():
        return False
    if is_committed(target):
        return (target / MANIFEST).is_file() and (target / MANIFEST).read_bytes() == (source / MANIFEST).read_bytes()
    if not is_whole(source, node):
        damaged.append(f"{source.parent.name}/{source.name}")
        return False
    if target.exists():
        remove(*target.iterdir())
    for name in named_parts(source):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        _link(source / name, target / name)
    write_bytes(target / MANIFEST, (source / MANIFEST).read_bytes())
    return True


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        temporary = target.with_name(f"{target.name}.{os.getpid()}{TEMPORARY}")
        shutil.copyfile(source, temporary)
        temporary.replace(target)
