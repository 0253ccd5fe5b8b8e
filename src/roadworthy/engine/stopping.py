"""Cases that stop early: each ends with the first of its parts that are enough by its rule, whoever makes which first.

A prefix of parts is looked at once all of it is stored, in order. So which parts count follows from the answers alone:
how many workers there are, and a kill and a resume, change nothing. Parts that were made beyond the last one that
counts are taken back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from roadworthy.core.manifests import MANIFEST, discard
from roadworthy.engine import readouts
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.plan import PlannedCase


class Stops:
    """How many parts of each case count: all, until a rule says of the first few that they are enough."""

    def __init__(self, cases: Iterable[PlannedCase], store: RunFolder) -> None:
        self._store = store
        self._counted: dict[str, int] = {}
        self._growing: dict[str, readouts.GrowingCase] = {}
        self._turns: dict[str, threading.Lock] = {}
        for planned in cases:
            if planned.stop is not None:
                folder = store.case(planned.case.key)
                self._growing[planned.case.hash] = readouts.GrowingCase(folder, planned.system.num_classes)
                self._turns[planned.case.hash] = threading.Lock()
                self.look(planned)

    def parts(self, planned: PlannedCase) -> int:
        """How many parts of a case count, as far as is known."""
        return self._counted.get(planned.case.hash, planned.parts)

    def look(self, planned: PlannedCase) -> None:
        """See whether the parts that are stored by now are enough."""
        case = planned.case.hash
        if planned.stop is None:
            return
        with self._turns[case]:
            if self._store.mirror and not self._store.mirror.holds_all:
                self._store.fetch_node(self._store.case(planned.case.key))
            growing = self._growing[case]
            while case not in self._counted and growing.grow():
                if planned.stop(growing.readouts()):
                    self._counted[case] = len(growing)

    def is_done(self, planned: PlannedCase) -> bool:
        """True where a case is finished with the parts that count."""
        return readouts.is_finished(self._store.case(planned.case.key), planned.case.hash, self.parts(planned))

    def finish(self, planned: PlannedCase) -> None:
        """Declare a case finished with the parts that count, and take back the others."""
        folder, parts = self._store.case(planned.case.key), self.parts(planned)
        for chunk in range(parts, planned.parts):
            discard(readouts.part_path(folder, chunk))
        if not self.is_done(planned):
            written = self._store.written
            sha = readouts.commit(folder, planned.case, parts, planned.system.num_classes, written)
            written[folder / MANIFEST] = sha
        self._store.publish(folder)
