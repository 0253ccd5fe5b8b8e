"""Artifacts that are built in processes of their own, several at a time, where each uses one thread.

A process prepares the study anew from its recipe, so it has the same graph; it is told nodes by their hash and builds
them into the folder of the run, checkpoints included: a process that dies loses nothing.

Run as a program, it reads a line of JSON, `{"recipe": ..., "folder": ...}`, then a hash per line, and writes a line of
JSON for each advance and each node that is done. It ends when its input does.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from roadworthy.core.errors import InputError
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.local import Building, BuiltApart, LocalExecutor
from roadworthy.preparing import Prepared, prepare_recipe


def apart_builder(prepared: Prepared, folder: Path) -> BuiltApart | None:
    """What builds nodes of a study in other processes; None where something of it lives in this one alone."""
    try:
        recipe = prepared.recipe()
    except InputError:
        return None
    task = json.dumps({"recipe": recipe, "folder": str(folder)})

    def build(nodes: Sequence[str], processes: int, advance: Callable[[int], None]) -> dict[str, Building]:
        return build_apart(task, nodes, processes, advance)

    return build


def build_apart(task: str, nodes: Sequence[str], processes: int, advance: Callable[[int], None]) -> dict[str, Building]:
    """Build nodes in so many processes at a time: how each went, by the hash of the node.

    A node whose process ended without a word is not in the answer: it can be built here, from its checkpoint.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for node in nodes:
        waiting.put(node)
    done: dict[str, Building] = {}
    children: list[subprocess.Popen[str]] = []
    watchers = []
    try:
        for _ in range(min(processes, len(nodes))):
            children.append(_started(task))
            watchers.append(threading.Thread(target=_feed, args=(children[-1], waiting, done, advance), daemon=True))
            watchers[-1].start()
        for watcher in watchers:
            while watcher.is_alive():
                watcher.join(0.5)  # in steps, so that an interrupt is noticed
    finally:
        for child in children:
            child.kill()
            child.wait()
    return done


def _started(task: str) -> subprocess.Popen[str]:
    """A process that has its task."""
    command = [sys.executable, "-m", __name__]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    assert child.stdin is not None
    with suppress(BrokenPipeError):
        child.stdin.write(task + "\n")
        child.stdin.flush()
    return child


def _feed(
    child: subprocess.Popen[str],
    waiting: queue.SimpleQueue[str],
    done: dict[str, Building],
    advance: Callable[[int], None],
) -> None:
    """Give a process one node after the other until none waits, and note what it says."""
    assert child.stdin is not None
    assert child.stdout is not None
    with suppress(BrokenPipeError, queue.Empty):
        while True:
            child.stdin.write(waiting.get_nowait() + "\n")
            child.stdin.flush()
            for line in child.stdout:
                message = json.loads(line)
                if "node" in message:
                    done[message["node"]] = Building(*(message[name] for name in Building._fields))
                    break
                advance(message["advance"])
            else:
                return


def main() -> None:
    """Build what the lines of the input ask for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that started this one
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what somebody's code prints is no answer
    task = json.loads(sys.stdin.readline())
    asked: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(asked,), daemon=True).start()
    graph = prepare_recipe(task["recipe"]).plan.graph()
    executor, store = LocalExecutor(1, _reporting(answers)), RunFolder(Path(task["folder"]))
    while (node := asked.get()) is not None:
        try:
            building = executor.build_node(node, graph, store)
        except OSError:
            return  # of the disk, such as a full one: the process that started this one meets it too, and says so
        _say(answers, {"node": node, **building._asdict()})


def _read(asked: queue.SimpleQueue[str | None]) -> None:
    """Pass on the lines of the input; where it ends, so does the process, whatever it is doing."""
    for line in sys.stdin:
        asked.put(line.strip())
    os._exit(0)


def _reporting(answers: TextIO) -> Any:
    """A progress bar that tells the process that started this one."""

    @contextmanager
    def report(title: str, total: int) -> Iterator[Callable[[int], None]]:
        yield lambda amount: _say(answers, {"advance": amount})

    return report


def _say(answers: TextIO, message: Mapping[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
