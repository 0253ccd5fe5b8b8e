"""Doctor: what is installed, what is missing for what, and what it says where something is broken."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import roadworthy as rw
from commands import call
from roadworthy import diagnosing
from roadworthy.diagnosing import Extra, Folder, Library, SelfCheck

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def diagnosis() -> rw.Diagnosis:
    return rw.doctor()


def test_this_installation_is_healthy(diagnosis: rw.Diagnosis) -> None:
    assert diagnosis.problems == ()
    assert diagnosis.lines()[-1] == "healthy"
    versions = {library.name: library.version for library in diagnosis.core}
    assert versions["numpy"] == metadata.version("numpy")
    assert "CPUExecutionProvider" in diagnosis.onnx_providers
    assert diagnosis.torch_build.startswith(metadata.version("torch"))
    assert diagnosis.cores >= 1
    assert diagnosis.memory_bytes > 1e8
    assert not any(extra.missing for extra in diagnosis.extras if extra.name == "torch")


def test_the_self_check_knows_its_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert diagnosing.self_check().same_bits
    monkeypatch.setattr(diagnosing, "SIGNS_SHA256", "0" * 64)
    other_bits = diagnosing.self_check()
    assert not other_bits.same_bits
    assert not other_bits.problem, "another processor may round otherwise"


def test_a_classifier_that_is_missing_or_answers_otherwise_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosing, "CLASSIFIER", Path("none.onnx"))
    assert "none.onnx" in diagnosing.self_check().problem
    first_class = SimpleNamespace(answer=lambda batch, size: SimpleNamespace(probabilities=np.eye(14)[[0] * 14]))
    monkeypatch.setattr("roadworthy.models.load_model", lambda path: first_class)
    assert diagnosing.self_check().problem.startswith("13 of 14 drawn signs were not recognised")


def test_it_works_where_libraries_do_not() -> None:
    """Without numpy and torch nothing of ours can be imported but the command line and this."""
    program = "import sys; sys.modules |= {'numpy': None, 'torch': None}; import roadworthy as rw; d = rw.doctor(); "
    program += "print(*d.lines(), sep='\\n')"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^problem      numpy: it is installed, but cannot be imported", printed, re.MULTILINE)
    assert "onnxruntime  no provider" in printed
    assert "torch        not installed" in printed
    assert "problem      self-check: " in printed
    assert printed.splitlines()[-1].startswith("not healthy")


BEHIND_TRANSFORMERS = """
import sys
import roadworthy as rw
from roadworthy.models.perception.big_backbones import build_big
for ask in (lambda: build_big("resnet50", 3), lambda: rw.load_model(sys.argv[1])):
    try:
        ask()
    except rw.InputError as error:
        print(error)
print(*rw.doctor().lines(), sep="\\n")
"""


def test_a_torchvision_that_does_not_fit_its_torch_is_named_with_what_mends_it(tmp_path: Path) -> None:
    """Beside it no model of transformers can be imported: 'Are this object's requirements defined correctly?'"""
    for name, text in {
        "torchvision/__init__.py": 'raise RuntimeError("operator torchvision::nms does not exist")',
        "torchvision-0.28.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\n",
        "model/config.json": '{"model_type": "resnet"}',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    printed = subprocess.run(
        [sys.executable, "-c", BEHIND_TRANSFORMERS, str(tmp_path / "model")],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    mend = (
        "torchvision 0.28.0 is installed, but cannot be imported (operator torchvision::nms does not exist), and "
        "transformers does not work beside it: pip uninstall torchvision, or install the build of it that fits "
        "your torch"
    )
    backbone, model, *lines = printed.splitlines()
    assert backbone == f"the backbones of the paper cannot be used: {mend}"
    assert model == f"Hugging Face models cannot be used: {mend}"
    assert f"problem      {mend}" in lines
    assert lines[-1].startswith("not healthy")


def test_every_extra_for_users_says_what_it_is_for() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) - {*diagnosing.FOR_DEVELOPERS} == set(diagnosing.PURPOSES)


def test_every_library_of_the_core_can_be_imported() -> None:
    core = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for text in core:
        name, _, version = text.partition(">=")
        assert diagnosing._library(name, f">={version}", is_needed=True).problem == "", text


@pytest.mark.parametrize(
    ("name", "specifier", "problem"),
    [
        ("no-such-library", "", "not installed"),
        ("numpy", ">=999", ">=999 is needed"),
        ("pillow", ">=1", "it is installed, but cannot be imported: ModuleNotFoundError: No module named 'no_pil'"),
    ],
)
def test_a_library_that_is_missing_old_or_broken_is_named(
    name: str, specifier: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(diagnosing.MODULES, "pillow", "no_pil")
    assert diagnosing._library(name, specifier, is_needed=True).problem == problem


def test_what_is_missing_is_said_with_a_command_for_it(diagnosis: rw.Diagnosis) -> None:
    extra = Extra("torch", "test torch models", (Library("torch", "", "not installed"), Library("safetensors", "1")))
    lines = "\n".join(replace(diagnosis, extras=(extra,)).lines())
    assert "to test torch models: pip install" in lines
    assert "[torch]" in lines
    assert "missing: torch (not installed)" in lines
    assert "healthy" in lines, "an extra is not needed"
    (plain,) = replace(diagnosis, extras=(extra,)).to_json()["extras"]
    assert not plain["installed"]
    assert "[torch]" in plain["install"]


def test_exit_code_1_where_something_needed_is_broken(diagnosis: rw.Diagnosis, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = replace(
        diagnosis,
        core=(Library("numpy", "", "not installed"),),
        cache=Folder("/cache/\x1b[31m", 0, False),
        self_check=SelfCheck(0.1, False, "RuntimeError: no"),
    )
    monkeypatch.setattr(diagnosing, "doctor", lambda: broken)
    printed = call("doctor", code=1)
    assert "\x1b" not in printed
    assert "problem      numpy: not installed" in printed
    assert "cannot be written: set ROADWORTHY_CACHE" in printed
    assert "problem      self-check: RuntimeError: no" in printed
    plain = json.loads(call("doctor", "--json", code=1))
    assert plain["healthy"] is False
    assert len(plain["problems"]) == 3


def test_it_writes_nothing_and_prints_no_environment(
    diagnosis: rw.Diagnosis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "a-secret-value")
    monkeypatch.setenv("ROADWORTHY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(diagnosing, "_torch_build", lambda: "")
    printed = call("doctor", "--json")
    assert "a-secret-value" not in printed
    assert json.loads(printed)["cache"]["path"] == str(tmp_path / "cache")
    assert not any(tmp_path.iterdir())


def test_the_size_of_the_cache(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("/dev/zero")
    assert diagnosing._folder(tmp_path).bytes == 5 + len("/dev/zero")
    assert diagnosing._folder(tmp_path).is_writable
    assert not diagnosing._folder(tmp_path / "below" / "a").is_writable, "a file is no folder"
