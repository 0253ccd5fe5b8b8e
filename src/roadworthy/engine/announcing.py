"""The plan of a run that is being written, for those who look on: its cases, and how much of each is stored.

It is a temporary file of the process that writes the run: it is there while that process is, and one that a killed
process left is swept away by the next. Nothing of a result is read from it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roadworthy.core.files import TEMPORARY, check_name_inside, is_temporary, write_json
from roadworthy.core.record import NameInside
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.plan import Graph, PlannedCase

PLAN = "plan.json"
"""How the name of the file starts; the number of the process follows."""


class _Announced(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class AnnouncedCase(_Announced):
    """A case that is to be done: the folder of its readouts, and what they will be.

    `images` is how many there are, `part` how many of them are stored together; a case that stops early has fewer.
    """

    folder: NameInside
    system: str
    kind: str = "model"
    shift: str = ""
    level: float = 0
    repeat: int = 0
    source: str = ""
    images: Annotated[int, Field(ge=0)]
    part: Annotated[int, Field(ge=1)]

    @property
    def parts(self) -> int:
        """How many parts its answers have at most."""
        return -(-self.images // self.part)


class AnnouncedArtifact(_Announced):
    """Something that is to be built: the folder where it will lie, and what it is for."""

    folder: NameInside
    name: str
    activity: str = "building"


class AnnouncedPlan(_Announced):
    """All that a run is to do, and since when it is at it, in seconds since 1970."""

    study: str
    started: float
    class_names: dict[str, list[str]] = {}
    cases: list[AnnouncedCase]
    artifacts: list[AnnouncedArtifact] = []


@contextmanager
def announced(folder: RunFolder, study: str, graph: Graph) -> Iterator[None]:
    """While a graph is being done in a folder, its plan lies there."""
    path = folder.path / f"{PLAN}.{os.getpid()}{TEMPORARY}"
    write_json(path, _content(study, graph, folder.path))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _content(study: str, graph: Graph, home: Path) -> dict[str, Any]:
    cases = [node.planned for node in graph.cases.values() if not node.planned.refused]
    names = {planned.source: [*planned.showing.data.class_names] for planned in reversed(cases) if planned.protocol}
    return AnnouncedPlan(
        study=study,
        started=datetime.now(UTC).timestamp(),
        class_names=names,
        cases=[_of_case(planned) for planned in cases],
        artifacts=[
            AnnouncedArtifact(folder=f"artifacts/{hash_}", name=node.name, activity=node.parts[0].activity)
            for hash_, node in graph.artifacts.items()
        ],
    ).model_dump(mode="json")


def _of_case(planned: PlannedCase) -> AnnouncedCase:
    stimulus = planned.case.stimulus
    return AnnouncedCase(
        folder=f"readouts/{planned.case.key}",
        system=planned.case.system,
        kind=planned.system.kind,
        shift=stimulus.name,
        level=stimulus.level,
        repeat=stimulus.repeat,
        source=planned.source,
        images=len(planned.showing.data),
        part=planned.chunk,
    )


def is_plan_name(name: str) -> bool:
    """True of the file that holds the plan of a run which is being written.

    >>> is_plan_name("plan.json.4711.tmp"), is_plan_name("run.json.4711.tmp")
    (True, False)
    """
    return name.startswith(f"{PLAN}.") and is_temporary(name)


def read_plan(run: Path, name: str) -> AnnouncedPlan | None:
    """The plan in a file of that name in the folder of a run; None where it is gone or makes no sense."""
    try:
        return AnnouncedPlan.model_validate(json.loads((run / check_name_inside(name)).read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError, ValidationError):
        return None
