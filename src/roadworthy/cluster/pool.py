"""Workers of a Ray cluster: who does what, what is tried again elsewhere, and what is given up.

Ray restarts and retries nothing by itself: an actor that died is replaced, and what it was doing is tried again, alone
on a worker from then on, so that it is known what ends workers. What ended `MOST_DEATHS` of them is given up.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from roadworthy.cluster.shared import RESUME
from roadworthy.cluster.worker import Reply, Worker
from roadworthy.core.errors import ClusterLost, InputError

MOST_DEATHS = 3
"""So many workers may end over one job."""
AT_ONCE = 2
"""Jobs that a worker has at a time: one that it is at, and one whose images it decodes meanwhile."""
PATIENCE = 300.0
"""Seconds that the driver waits while the cluster has no worker for it at all."""
SETTLING = 0.5
"""Seconds after the death of a worker until what it did is tried again: others on its machine may be dead as well."""
POLLED = 0.5
"""Seconds between two looks at what is being built."""
ALIKE = "every machine needs the same version of Roadworthy and of its dependencies"
LIBRARIES = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "RAYON")
THREADS = {f"{library}_NUM_THREADS": "1" for library in LIBRARIES}
"""A worker is one thread of inference: workers are the parallelism."""


COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class DefectElsewhere(Exception):
    """Code of ours failed on a worker; the message is its traceback."""


class Job(ABC):
    """Something that a worker is asked to do.

    affinity   of what it uses: a worker preferably gets jobs like the ones it had
    deaths     how many workers ended while they were at it
    reports    True where it says how far it is
    """

    affinity: Hashable
    deaths = 0
    reports = False

    @abstractmethod
    def question(self) -> tuple[Any, ...] | None:
        """The method of the worker and what it is given; None where it need not be done any more."""

    @abstractmethod
    def done(self, reply: Reply) -> None:
        """Take down what came of it."""

    @abstractmethod
    def given_up(self, cause: str) -> Iterable[Job]:
        """Take down that it ends every worker, or what to try in its place, each for the last time."""

    def advanced(self, amount: int) -> None:  # noqa: B027 (few jobs tell)
        """Take down how far it has come since this was last told."""


@dataclass(eq=False)
class Hired:
    """A worker: its actor, what it is at, and the kind of job it had last; it is asked nothing before it is `ready`.

    alive   is answered when it dies, also while it has nothing to do;  poll: how far it is
    """

    actor: Any
    ready: bool = False
    alive: Any = None
    alone: bool = False
    affinity: Hashable = None
    jobs: dict[Any, Job] = field(default_factory=dict)
    poll: Any = None


class Pool:
    """So many workers, replaced when they die, that do jobs.

    task       what each worker is given to prepare the study;  graph: the hash that its graph must have
    resources  num_cpus and num_gpus of a worker;  warn: is told of the warnings of workers
    """

    def __init__(
        self,
        number: int,
        task: Mapping[str, Any],
        graph: str,
        resources: Mapping[str, float],
        warn: Callable[[str], None],
    ) -> None:
        self._number, self._task, self._graph, self._warn = number, task, graph, warn
        options: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0, "max_concurrency": AT_ONCE + 2}
        self._class = ray.remote(Worker).options(**options, **resources, runtime_env={"env_vars": THREADS})
        self._given = ray.put(dict(task))
        self._starting: dict[Any, Hired] = {}
        self._hired: list[Hired] = []
        self._waiting: dict[Hashable, deque[Job]] = {}
        self._suspects: deque[Job] = deque()
        self._lost_in_a_row, self._last_seen, self._settled_at = 0, time.monotonic(), 0.0

    def start(self) -> None:
        """Ask for workers that are lacking; they come when the cluster has room for them."""
        while len(self._starting) + sum(hired.ready for hired in self._hired) < self._number:
            hired = Hired(self._class.remote(self._given))
            self._starting[hired.actor.prepare.remote()] = hired

    def gather(self, number: int = 1) -> None:
        """Wait until so many workers have prepared the study."""
        self._last_seen = time.monotonic()
        while sum(hired.ready for hired in self._hired) < number:
            self.start()
            self._listen()

    def stop(self) -> None:
        """End all workers."""
        for hired in (*self._starting.values(), *self._hired):
            self._end(hired)

    def do(self, jobs: Iterable[Job]) -> None:
        """Do jobs, begun in their order but for those that a worker is better suited for."""
        for job in jobs:
            self._waiting.setdefault(job.affinity, deque()).append(job)
        self._last_seen = time.monotonic()
        while self._waiting or self._suspects or any(hired.jobs for hired in self._hired):
            self.start()
            for hired in [hired for hired in self._hired if hired.ready]:
                self._hand_out(hired)
            self._listen()

    def _hand_out(self, hired: Hired) -> None:
        """Give a worker what it can take: suspects by themselves, all else as long as no suspect waits for a worker."""
        if self._suspects and not hired.jobs and time.monotonic() >= self._settled_at:
            hired.alone = self._asked(hired, self._suspects.popleft())
        while self._waiting and not hired.alone and len(hired.jobs) < (1 if self._suspects else AT_ONCE):
            self._asked(hired, self._next_for(hired))

    def _next_for(self, hired: Hired) -> Job:
        """A job like the last one of this worker, or of the kind with the most work for those who are at it."""
        if hired.affinity not in self._waiting:
            at_it = [other.affinity for other in self._hired if other is not hired]
            hired.affinity = max(self._waiting, key=lambda own: len(self._waiting[own]) / (1 + at_it.count(own)))
        jobs = self._waiting[hired.affinity]
        job = jobs.popleft()
        if not jobs:
            del self._waiting[hired.affinity]
        return job

    def _asked(self, hired: Hired, job: Job) -> bool:
        """Ask a worker to do a job; False where it need not be done any more."""
        question = job.question()
        if question is None:
            return False
        method, *given = question
        hired.jobs[getattr(hired.actor, method).remote(*given)] = job
        return True

    def _listen(self) -> None:
        """Wait for a word of any worker and see to all there are."""
        for hired in self._hired:
            if hired.poll is None and any(job.reports for job in hired.jobs.values()):
                hired.poll = hired.actor.advanced.remote()
        by_job = {ref: hired for hired in self._hired for ref in hired.jobs}
        by_poll = {hired.poll: hired for hired in self._hired if hired.poll is not None}
        by_life = {hired.alive: hired for hired in self._hired if hired.ready}
        asked = [*by_life, *by_job, *self._starting]
        ray.wait(asked, timeout=POLLED if by_poll or self._suspects else 5.0)
        for ref in ray.wait([*asked, *by_poll], num_returns=len(asked) + len(by_poll), timeout=0)[0]:
            if ref in by_life:
                self._end(by_life[ref])
            elif ref in by_job:
                self._settle(by_job[ref], ref)
            elif ref in by_poll:
                self._note_advance(by_poll[ref])
            else:
                self._welcome(self._starting.pop(ref), ref)
        self._hired = [hired for hired in self._hired if hired.ready or hired.jobs]
        if any(hired.ready for hired in self._hired):
            self._last_seen = time.monotonic()
        elif time.monotonic() - self._last_seen > PATIENCE:
            raise ClusterLost(f"the Ray cluster had no room for a worker for {PATIENCE / 60:.0f} minutes; {RESUME}")

    def _note_advance(self, hired: Hired) -> None:
        """Pass on how far a worker has come with what it builds."""
        ref, hired.poll = hired.poll, None
        with suppress(RayError):
            amount = ray.get(ref)
            for job in [job for job in hired.jobs.values() if amount and job.reports][:1]:
                job.advanced(amount)

    def _settle(self, hired: Hired, ref: Any) -> None:
        """Take down what came of a job; one whose worker has died is tried again, by itself."""
        job = hired.jobs.pop(ref)
        try:
            reply = self._reply(ref)
        except RayActorError as error:
            self._end(hired)
            self._settled_at = time.monotonic() + SETTLING
            job.deaths += 1
            retried = [job] if job.deaths < MOST_DEATHS else job.given_up(cause_of_death(error))
            self._suspects.extend(retried)
            return
        hired.alone = False
        job.done(reply)

    def _welcome(self, hired: Hired, ref: Any) -> None:
        """Take in a worker that has prepared the study; one that died over it is replaced, up to a limit."""
        try:
            reply = self._reply(ref)
        except RayActorError as error:
            self._end(hired)
            self._lost_in_a_row += 1
            if self._lost_in_a_row >= MOST_DEATHS * self._number:
                raise InputError(
                    f"workers end before they have prepared the study: {cause_of_death(error)}; {ALIKE}"
                ) from None
            return
        if reply["graph"] != self._graph:
            raise InputError(
                f"the worker on {reply['machine']} makes another study of the same recipe: it needs the same files and "
                "versions as the machine that the command runs on"
            )
        self._lost_in_a_row = 0
        hired.ready, hired.alive = True, hired.actor.stay.remote()
        self._hired.append(hired)

    def _reply(self, ref: Any) -> Reply:
        """What a worker answered; what concerns more than one job is raised."""
        reply: Reply = ray.get(ref)
        if "error" in reply:
            raise InputError(reply["error"])
        if "defect" in reply:
            raise DefectElsewhere(reply["defect"])
        for warning in reply["warnings"]:
            self._warn(warning)
        return reply

    def _end(self, hired: Hired) -> None:
        """End a worker for good, also one that is only out of reach."""
        hired.ready = False
        with suppress(RayError, ValueError):
            ray.kill(hired.actor)


def cause_of_death(error: RayActorError) -> str:
    """Why a worker died, in a few words of what Ray says of it.

    Of one that could not be made Ray prints the traceback, in colours: its last line is the cause.
    """
    text = COLOURS.sub("", str(error))
    if "creation task" in text:
        text = [line for line in text.splitlines() if line.strip()][-1]
    text = " ".join(text.split())
    for mark in ("Worker exit detail: ", "The actor is dead because ", "is unavailable: "):
        if mark in text:
            text = text.partition(mark)[2]
            break
    return text.partition(". Some common causes")[0].partition(" (1) ")[0][:200].rstrip(". ")
