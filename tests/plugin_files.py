"""Plugins as users write them, a study that names them, and the command line as tests call it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import roadworthy as rw
from roadworthy.api import no_progress
from roadworthy.cli import app, spelled
from roadworthy.core.errors import RoadworthyError
from roadworthy.core.registry import Registry
from tiny import forget_plugins, study

SHIFT = """
from dataclasses import dataclass
import numpy as np
import roadworthy as rw
from helper_of_dim import FACTORS

@rw.SHIFTS.register("dim")
@dataclass(frozen=True, kw_only=True)
class Dim(rw.Shift):
    '''Darken the image.'''
    factor: float
    name = "dim"
    LEVELS = tuple({"factor": factor} for factor in FACTORS)

    def __call__(self, batch, streams):
        return batch.with_images(np.rint(batch.images * (1 - self.factor)).astype(np.uint8))
"""
HELPER = "FACTORS = (0.2, 0.4, 0.6, 0.7, 0.8)\n"
PROTOCOL = """
from pydantic import BaseModel
import pandas as pd
from roadworthy.core.tables import TableSpec
from roadworthy.core.types import Stimulus
from roadworthy.engine.plan import PlannedStimulus, plan_cases
from roadworthy.protocols.base import PROTOCOLS, Evidence, Planned, Protocol

class Settings(BaseModel, extra="forbid", frozen=True):
    least: float = 0.5

class Sure(Evidence):
    def __init__(self, cases):
        self.cases = cases
    def tables(self):
        rows = [{"model": case.system, "value": case.load().answers.confidence.mean()} for case in self.cases]
        return {"sure": pd.DataFrame(rows)}
    def measure(self, criterion, confidence):
        return []
    def pictures(self, cases, media):
        return {}

@PROTOCOLS.register("sure")
class SureProtocol(Protocol):
    name, summary, settings = "sure", "How sure is it?", Settings
    table_specs = (TableSpec("sure", "How sure a model is.", key=("model",), columns=("model", "value")),)
    def check_settings(self, settings): pass
    def count_stimuli(self, settings, foreign, monitors): return 1
    def planned_stimuli(self, settings, bench):
        return [PlannedStimulus(Stimulus(bench.data.fingerprint(), seed=bench.seed), bench.data)]
    def plan(self, settings, bench):
        return Planned(plan_cases(self.name, self.planned_stimuli(settings, bench), bench))
    def check(self, cases, criterion, context=None): pass
    def evidence(self, part, **options):
        return Sure(part.cases)
"""


@pytest.fixture(autouse=True)
def clean_registries() -> Iterator[None]:
    """As in a new process: what plugins registered in a test is gone after it."""
    before = [(registry, dict(registry._members)) for registry in Registry.everyone]
    yield
    for registry, members in before:
        registry._members.clear()
        registry._members.update(members)
    forget_plugins()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two plugins and a study that names both; the working folder is another."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "dim.py").write_text(SHIFT)
    (home / "helper_of_dim.py").write_text(HELPER)
    (home / "sure.py").write_text(PROTOCOL)
    protocols = {"classification": {"shifts": ["dim"], "levels": [5]}, "sure": {"least": 0.1}}
    content = study(tmp_path, 56, protocols=protocols, plugins=["dim.py", "sure.py"])
    (home / "study.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.chdir(tmp_path)
    return home


@pytest.fixture
def run(folder: Path) -> rw.Run:
    made = rw.run(folder / "study.yaml", out=folder.parent / "run", trust=True, progress=no_progress)
    forget_plugins()
    return made


def call(*words: object) -> tuple[int, str]:
    """Exit code and what was printed; errors come out as `main` would print them."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, RoadworthyError):
        return result.exception.exit_code, spelled(str(result.exception), str(words[0]))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}
