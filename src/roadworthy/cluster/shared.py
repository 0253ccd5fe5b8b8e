"""The folder of a run as the driver and all workers see it, and the mark by which they know that it is theirs."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from roadworthy.core.errors import InputError
from roadworthy.core.files import TEMPORARY, write_bytes
from roadworthy.core.hashing import digest
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.plan import Graph

RESUME = "run the same command again, on this or another cluster, to go on from here"
"""What is said where a cluster is lost."""
MARK = f"driver.0{TEMPORARY}"
"""The file that says which driver writes to the folder; whoever opens the folder next removes it, as all of these."""


@contextmanager
def marked(store: RunFolder) -> Iterator[str]:
    """The folder with a mark of this driver in it, which workers must see; yields what the mark says."""
    token = secrets.token_hex(8)
    _write_mark(store, token.encode())
    try:
        yield token
    finally:
        _remove_mark(store)


def _write_mark(store: RunFolder, content: bytes) -> None:
    if store.mirror:
        store.mirror.remote.write(MARK, content)
    else:
        write_bytes(store.path / MARK, content)


def _remove_mark(store: RunFolder) -> None:
    if store.mirror:
        store.mirror.remote.remove([MARK])
    else:
        (store.path / MARK).unlink(missing_ok=True)


def _read_mark(store: RunFolder) -> bytes:
    try:
        return (store.mirror.remote.read(MARK) or b"") if store.mirror else (store.path / MARK).read_bytes()
    except OSError:
        return b""


def check_mark(store: RunFolder, token: str, where: str) -> None:
    """Refuse to work in a folder that this machine does not see, or that another command has opened since."""
    if _read_mark(store) != token.encode():
        raise InputError(
            f"the worker on {where} does not see the run in {store.path} as the driver does: put it on a file system "
            "that all machines share under the same path with `out=`, or at an address such as s3://bucket/run"
        )


def fetch_nodes(store: RunFolder, graph: Graph, hashes: Iterable[str]) -> None:
    """Bring the folders of artifacts and cases here that are needed; a run on a shared disk has them."""
    for hash_ in hashes if store.mirror else ():
        store.fetch_node(
            store.artifact(hash_) if hash_ in graph.artifacts else store.case(graph.cases[hash_].planned.case.key)
        )


def graph_digest(graph: Graph) -> str:
    """A hash of all nodes of a graph: those who prepare the same study have the same."""
    return digest([*sorted(graph.artifacts), *sorted(graph.cases)])
