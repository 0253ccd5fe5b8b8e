"""Everything that is registered can come from an installed package: one entry point group for each registry."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from roadworthy.core.errors import InputError
from roadworthy.core.registry import Registry
from roadworthy.metrics import names
from tiny import import_text

ROOT = Path(__file__).parent.parent

REGISTRIES = {
    "shift": ("core.roles", "SHIFTS"),
    "attack": ("shifts", "ATTACKS"),
    "outlier": ("core.roles", "OUTLIERS"),
    "dataset": ("data", "DATA"),
    "format": ("data.curation.frames", "READERS"),
    "model": ("models", "MODELS"),
    "damage": ("damages", "DAMAGES"),
    "http_format": ("models.http", "FORMATS"),
    "architecture": ("models.reference", "ARCHITECTURES"),
    "network_opener": ("models.reference", "OPENERS"),
    "backbone": ("models.perception", "BACKBONES"),
    "monitor": ("monitors", "MONITORS"),
    "onnx_score": ("monitors.onnx_export.scores", "ONNX_SCORES"),
    "metric": ("metrics", "METRICS"),
    "protocol": ("protocols", "PROTOCOLS"),
}
"""Every registry by its kind: the module that holds it, and its name there."""

PACKAGE = '''
from dataclasses import dataclass
from pydantic import BaseModel
import roadworthy as rw
from roadworthy.damages import Damage
from roadworthy.core.tables import TableSpec
from roadworthy.metrics import metric as as_metric
from roadworthy.models.http import WireFormat
from roadworthy.models.perception import Backbone
from roadworthy.models.reference import Architecture
from roadworthy.monitors import Monitor
from roadworthy.outliers import Painted
from roadworthy.protocols.base import Protocol
from roadworthy.shifts.adversarial import MaximumNorm

@dataclass(frozen=True, kw_only=True)
class shift(rw.Shift):
    name = "of_a_package"
    def __call__(self, batch, streams):
        return batch

class attack(MaximumNorm):
    def _attacked(self, model, batch, streams):
        return batch.images

@dataclass(frozen=True, kw_only=True)
class outlier(Painted):
    name = "of_a_package"
    def paint(self, source, rows, streams):
        return source.batch(rows).images

class damage(Damage):
    name = "of_a_package"

class http_format(WireFormat):
    name = "of_a_package"

class monitor(Monitor):
    name = "of_a_package"

@as_metric(label="Of a package", higher_is_better=True, name="of_a_package")
def metric(answers, weights):
    """Always nothing."""
    return 0 * weights.sum(axis=1)

def dataset(source, opening):
    return None

def format(root):
    return iter(())

def model(value, *, name=None):
    return None

def network_opener(model, home):
    return None

def onnx_score(graph, monitor, state, rule):
    return None

def make(num_classes, size, *, channels=3):
    return None

architecture = Architecture(make, 1, 0.0, 1, frozenset({"probabilities"}))
backbone = Backbone("of_a_package", "mine", 0, 16)

class protocol(Protocol):
    """A protocol."""
    name = "of_a_package"
    summary = "nothing"
    settings = BaseModel
    table_specs = (TableSpec("of_a_package", "Nothing.", key=("model",), columns=("model",)),)
    def check_settings(self, settings): ...
    def count_stimuli(self, settings, foreign, monitors): ...
    def planned_stimuli(self, settings, bench): ...
    def plan(self, settings, bench): ...
    def check(self, cases, criterion, context=None): ...
    def evidence(self, part, *, seed, workers=1, resamples=None): ...
'''

NETWORKS = """
from roadworthy.models.perception import Backbone
from roadworthy.models.reference import Architecture

def make(num_classes, size, *, channels=3):
    return RETURNED

class Own(Backbone):
    def build(self, size, channels, width=None):
        return RETURNED

own = Architecture(make, 1, 0.0, 1, frozenset({"probabilities"}))
"""


def registry_of(kind: str) -> Registry[Any]:
    module, name = REGISTRIES[kind]
    registry = getattr(import_module(f"roadworthy.{module}"), name)
    assert isinstance(registry, Registry)
    return registry


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package as pip would leave it: a module, and metadata that name a component of each kind."""
    registries = [registry_of(kind) for kind in REGISTRIES]
    known = [[*registry] for registry in registries]  # what is really installed is loaded before
    assert all(known)
    (tmp_path / "components_of_a_package.py").write_text(PACKAGE)
    metadata = tmp_path / "a_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: a-package\nVersion: 1.0\n")
    groups = [f"[{r.group}]\nof_a_package = components_of_a_package:{r.kind}\n" for r in registries]
    (metadata / "entry_points.txt").write_text("\n".join(groups))
    monkeypatch.syspath_prepend(str(tmp_path))
    for registry in registries:
        monkeypatch.setattr(registry, "_members", dict(registry._members))
        monkeypatch.setattr(registry, "packages", dict(registry.packages))
        monkeypatch.setattr(registry, "_entry_points_loaded", False)
    monkeypatch.setattr(names, "_BY_PROTOCOL", dict(names._BY_PROTOCOL))
    yield tmp_path
    sys.modules.pop("components_of_a_package", None)


def test_every_registry_is_known_here() -> None:
    for kind in REGISTRIES:
        assert registry_of(kind).kind == kind
    ours = {r.kind: r for r in Registry.everyone if r.kind not in ("colour", "kind")}
    assert set(ours) == set(REGISTRIES), "a new registry has a row here and in docs/extending.md"
    assert all(re.fullmatch(r"roadworthy\.\w+", registry.group) for registry in ours.values())


@pytest.mark.parametrize("kind", REGISTRIES)
def test_an_installed_package_brings_a_component(kind: str, package: Path) -> None:
    registry = registry_of(kind)
    assert "of_a_package" in registry
    assert registry.get("of_a_package") is not None
    assert registry.packages == {**registry.packages, "of_a_package": "a-package"}


@pytest.mark.parametrize("kind", REGISTRIES)
def test_a_package_that_cannot_be_loaded_is_named(kind: str, package: Path) -> None:
    (package / "components_of_a_package.py").write_text("raise ImportError('no such library')\n")
    with pytest.raises(InputError, match=r"of the installed package a-package cannot be loaded .*no such library"):
        registry_of(kind).get("of_a_package")


def test_the_docs_list_every_group() -> None:
    text = (ROOT / "docs" / "extending.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+?) \| `(roadworthy\.\w+)` \|", text, re.MULTILINE))
    assert sorted(rows.values()) == sorted(registry_of(kind).group for kind in REGISTRIES)


def test_the_code_of_a_network_of_ones_own_is_part_of_its_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from roadworthy.models.perception.task_network import TaskSettings, default_dropout
    from roadworthy.models.reference import ReferenceModel

    for kind in ("architecture", "backbone"):
        monkeypatch.setattr(registry_of(kind), "_members", dict(registry_of(kind)._members))
    assert "code" not in ReferenceModel("baseline").settings(), "recipes of built-in networks stay as they are"
    assert "code" not in TaskSettings("small_resnet").parameters()
    hashes = set()
    for returned in ("None", "1"):
        code = import_text(NETWORKS.replace("RETURNED", returned), tmp_path / "networks_of_ones_own.py")
        monkeypatch.setitem(registry_of("architecture")._members, "own", code.own)
        monkeypatch.setitem(registry_of("backbone")._members, "own", code.Own("own", "mine", 0, 16))
        hashes |= {ReferenceModel("own").settings()["code"], TaskSettings("own").parameters()["code"]}
    assert len(hashes) == 4, "another code is another recipe"
    assert default_dropout("own", "classes", "head") == 0.05, "a family that the paper does not have"
