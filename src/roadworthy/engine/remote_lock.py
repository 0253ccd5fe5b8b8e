"""Who may write to a run at an address: locks that are objects, created exclusively and numbered, never overwritten.

.lock-000003        who holds the run: created exclusively by the holder; the highest number counts
.lock-000003.beat   the holder's pulse, which only the holder writes; it says when the lock is released

A number is never used again, so a holder that was taken for dead can harm nobody's lock. Whether a holder is dead is
measured by the watcher's own clock alone: its pulse does not change while it is watched for `WATCHED` seconds. So
clocks that jump or differ do not matter. A holder on the same machine whose process is gone is dead at once.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.core.remote import RemoteFault, RemoteFolder

BEAT = 5.0
"""Seconds between two pulses of a holder."""
WATCHED = 30.0
"""Seconds without a pulse after which a holder counts as dead."""

PREFIX = ".lock-"
_LOCK = re.compile(r"\.lock-(\d{6,})")


def is_lock_name(name: str) -> bool:
    """True for the objects of locks and probes, which are no part of a run.

    >>> is_lock_name(".lock-000001.beat"), is_lock_name("run.json")
    (True, False)
    """
    return name.startswith((PREFIX, ".probe-"))


class LockLost(RemoteFault):
    """Somebody else has taken the run over: nothing more may be written."""


class RemoteLock:
    """The lock of one run, held from `take` to `release`."""

    def __init__(self, remote: RemoteFolder) -> None:
        self._remote = remote
        self._number = 0
        self._lost = ""
        self._checked = 0.0
        self._ended = threading.Event()
        self._pulse: threading.Thread | None = None

    def take(self) -> None:
        """Hold the run, or stop with a sentence that says who holds it; a dead holder's lock is taken over."""
        highest = max(self._numbers(), default=0)
        if highest:
            self._wait_for_release(highest)
        owner = {"owner": uuid.uuid4().hex, "host": socket.gethostname(), "pid": os.getpid(), **_process_facts()}
        content = json.dumps({**owner, "since": datetime.now(UTC).isoformat(timespec="seconds")}).encode()
        number = highest + 1
        if not self._remote.create(_name(number), content):
            raise self._refusal(number)
        newest = max(self._numbers())
        if newest > number:  # others came and went since the first look
            self._remote.remove([_name(number)])
            raise self._refusal(newest)
        self._number, self._lost, self._checked = number, "", time.monotonic()
        self._ended.clear()
        self._beat(0)
        former = [old for old in self._numbers() if old < number]
        self._remote.remove(name for old in former for name in (_name(old), _beat_name(old)))
        self._pulse = threading.Thread(target=self._keep_beating, name="lock", daemon=True)
        self._pulse.start()

    def release(self) -> None:
        """Give the run back; the number stays, so that nobody gets it again."""
        self._ended.set()
        if self._pulse is not None:
            self._pulse.join(2 * BEAT)
        if not self._lost:
            self._remote.write(_beat_name(self._number), json.dumps({"released": True}).encode())
        self._number = 0

    def holder(self) -> str:
        """Who holds the run, or did when it was killed; '' where nobody does."""
        highest = max(self._numbers(), default=0)
        if not highest or _is_released(self._remote.read(_beat_name(highest))):
            return ""
        return _described(self._owner(highest))

    def check(self, *, surely: bool = False) -> None:
        """Refuse to write more where the lock is lost; asks there if it has not for long, or where it must be sure."""
        if self._number and (surely or time.monotonic() - self._checked > WATCHED / 2):
            self._look()
        if self._lost:
            raise LockLost(self._lost)

    def _look(self) -> None:
        newest = max(self._numbers(), default=self._number)
        if newest > self._number:
            who = _described(self._owner(newest))
            self._lost = f"{who} has taken this run over, since this process did not answer for a while"
        self._checked = time.monotonic()

    def _keep_beating(self) -> None:
        count = 0
        while not self._ended.wait(BEAT):
            count += 1
            with suppress(OSError):  # who writes next says why nothing can be written
                self._look()
                if self._lost:
                    return
                self._beat(count)

    def _beat(self, count: int) -> None:
        self._remote.write(_beat_name(self._number), json.dumps({"beat": count}).encode())

    def _numbers(self) -> list[int]:
        matches = map(_LOCK.fullmatch, self._remote.top_names())
        return [int(match[1]) for match in matches if match]

    def _owner(self, number: int) -> dict[str, Any]:
        with suppress(ValueError, TypeError):
            return dict(json.loads(self._remote.read(_name(number)) or b"{}"))
        return {}

    def _wait_for_release(self, number: int) -> None:
        """Return once the holder has released the lock or is dead; refuse as soon as it shows that it lives."""
        first = self._remote.read(_beat_name(number))
        if _is_released(first) or _is_gone(self._owner(number)):
            return
        until = time.monotonic() + WATCHED
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(BEAT / 2, left))
            now = self._remote.read(_beat_name(number))
            if _is_released(now):
                return
            if now != first:
                raise self._refusal(number)

    def _refusal(self, number: int) -> InputError:
        return InputError(
            f"{_described(self._owner(number))} is writing to {self._remote.address}: wait for it or choose another "
            "folder with `out=`"
        )


def _name(number: int) -> str:
    return f"{PREFIX}{number:06d}"


def _beat_name(number: int) -> str:
    return f"{_name(number)}.beat"


def _is_released(beat: bytes | None) -> bool:
    with suppress(ValueError, AttributeError):
        return bool(json.loads(beat or b"{}").get("released"))
    return False


def _described(holder: dict[str, Any]) -> str:
    if not holder:
        return "another process"
    return f"process {holder.get('pid')} on {holder.get('host')} (since {holder.get('since')})"


@cache
def _machine() -> str:
    """What tells this machine, since it was started, and its table of processes from all others; '' where unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process of this machine was started, in ticks of its kernel; '' where none of that number runs."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if facts[0] in "ZX" else facts[19]
    except (OSError, IndexError):
        return ""


def _process_facts() -> dict[str, str]:
    return {"machine": _machine(), "started": _started(os.getpid())}


def _is_gone(holder: dict[str, Any]) -> bool:
    """True where the holder was a process of this machine that has ended, whatever has its number now."""
    if not holder.get("machine") or holder["machine"] != _machine() or not isinstance(holder.get("pid"), int):
        return False
    return _started(holder["pid"]) != holder.get("started")
