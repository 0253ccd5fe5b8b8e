"""What `roadworthy doctor` says: what is installed here, what is missing for what, and whether it works."""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from roadworthy.core.cache import cache_folder
from roadworthy.core.errors import first_line, install_command, printable

CLASSIFIER = Path(__file__).with_name("demo_classifier.onnx")
"""Made by examples/train_demo_classifier.py; its metadata state its accuracy on undisturbed signs."""
SIGNS_SHA256 = "4a46d232e0bd940d8104b6f640446d72e12e9bf2a1a0f745bb6cc55c4b0ad850"
"""Of the pixels of the signs of the self-check; another processor may round a few of them otherwise."""
PER_CLASS = 5
"""A drawn sign is seen in as many frames; the first one is shown."""

MODULES = {"opencv-python-headless": "cv2", "pillow": "PIL", "pyyaml": "yaml", "scikit-learn": "sklearn"}
"""What is imported from a library whose module has another name."""
PURPOSES = {
    "torch": "test torch models, train networks and GANs, and attack models by their gradients",
    "ray": "run a study on a Ray cluster",
    "stores": "read data and models from, and write runs to, s3:// addresses",
    "google": "read data and models from, and write runs to, gs:// addresses",
    "huggingface": "test models of Hugging Face",
    "datasets": "read data sets of Hugging Face",
    "keras": "test Keras models",
    "backbones": "build the large backbones of transformers",
    "search": "search for the settings of a network",
    "maite": "use shifts and metrics in programs of MAITE",
    "mlflow": "publish runs to MLflow",
    "serve": "look at a folder of runs in a browser",
    "signing": "sign and check bundles",
    "xlsx": "write a verdict as a matrix for a spreadsheet",
}
"""What each extra is for, as the end of a sentence that starts with 'to'."""
FOR_DEVELOPERS = ("all", "bench", "dev", "docs", "typing")
"""Extras that no user needs to be told of."""
MOST_FILES = 100_000
"""Files of the cache that are counted at most."""


@dataclass(frozen=True)
class Library:
    """A library that Roadworthy needs; `version` is empty where it is missing, `problem` where all is well."""

    name: str
    version: str
    problem: str = ""

    def line(self) -> str:
        """Its name with version or problem."""
        return f"{self.name} {self.version}".strip() + (f" ({self.problem})" if self.problem else "")


@dataclass(frozen=True)
class Extra:
    """An extra, what it is for, and its libraries."""

    name: str
    purpose: str
    libraries: tuple[Library, ...]

    @property
    def missing(self) -> tuple[Library, ...]:
        """The libraries that are absent, too old or broken."""
        return tuple(library for library in self.libraries if library.problem)

    def line(self) -> str:
        """What it is for, and what is there or how to install it."""
        if not self.missing:
            return f"to {self.purpose}: {', '.join(library.line() for library in self.libraries)}"
        return f"to {self.purpose}: {install_command(self.name)}"


@dataclass(frozen=True)
class Folder:
    """A folder that Roadworthy writes to; `bytes` is what it holds, at least."""

    path: str
    bytes: int
    is_writable: bool


@dataclass(frozen=True)
class SelfCheck:
    """Drawn signs shown to the classifier that comes with the package; `problem` is empty where all is well."""

    seconds: float
    same_bits: bool
    problem: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All that `roadworthy doctor` knows; `problems` names what is needed and broken, a sentence each.

    `torchvision_problem` is empty where transformers is not installed, or works: it needs no torchvision.
    """

    roadworthy: str
    python: str
    executable: str
    platform: str
    cores: int
    memory_bytes: int
    core: tuple[Library, ...]
    extras: tuple[Extra, ...]
    onnx_providers: tuple[str, ...]
    torch_build: str
    torchvision_problem: str
    cache: Folder
    self_check: SelfCheck

    @property
    def problems(self) -> tuple[str, ...]:
        """What must be repaired before anything can be tested, or before what is installed beyond the core works."""
        broken = [f"{library.name}: {library.problem}" for library in self.core if library.problem]
        if self.torchvision_problem:
            broken.append(self.torchvision_problem)
        if not self.cache.is_writable:
            broken.append(f"{self.cache.path} cannot be written: set ROADWORTHY_CACHE to a folder that can")
        if self.self_check.problem:
            broken.append(f"self-check: {self.self_check.problem}")
        return tuple(broken)

    @property
    def is_healthy(self) -> bool:
        """True where there are no problems; an extra that is not installed is none."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values, the problems and a command for each missing extra included."""
        plain = asdict(self)
        for extra, value in zip(self.extras, plain["extras"], strict=True):
            value |= {"installed": not extra.missing, "install": install_command(extra.name) if extra.missing else ""}
        return {"healthy": self.is_healthy, "problems": list(self.problems), **plain}

    def lines(self) -> list[str]:
        """The same for people."""
        return [printable(line) for line in self._lines()]

    def _lines(self) -> Iterator[str]:
        yield f"roadworthy   {self.roadworthy}, Python {self.python} ({self.executable})"
        yield f"machine      {self.platform}, {self.cores} cores, {self.memory_bytes / 1e9:.1f} GB of memory"
        yield f"libraries    {', '.join(library.line() for library in self.core)}"
        yield f"onnxruntime  {', '.join(self.onnx_providers) or 'no provider'}"
        yield f"torch        {self.torch_build or 'not installed'}"
        writable = "can be written" if self.cache.is_writable else "cannot be written"
        yield f"cache        {self.cache.path}, {self.cache.bytes / 1e6:,.1f} MB, {writable}"
        if present := [extra for extra in self.extras if not extra.missing]:
            yield "installed"
            yield from (f"  {extra.line()}" for extra in present)
        if missing := [extra for extra in self.extras if extra.missing]:
            yield "not installed"
            for extra in missing:
                yield f"  {extra.line()}"
                yield f"      missing: {', '.join(library.line() for library in extra.missing)}"
        check = self.self_check
        if not check.problem:
            bits = "the same bits as recorded" if check.same_bits else "pixels that differ in some bits from the record"
            yield f"self-check   signs drawn and recognised in {check.seconds:.1f} s, {bits}"
        yield from (f"problem      {problem}" for problem in self.problems)
        yield "healthy" if self.is_healthy else "not healthy: repair the above, or install into a new environment"


def doctor() -> Diagnosis:
    """Look at this installation: versions, extras, machine, cache, and a short self-check. It writes nothing.

    >>> diagnosis = doctor()
    >>> diagnosis.is_healthy, len(diagnosis.core) > 10
    (True, True)
    """
    core = tuple(_library(name, specifier, is_needed=True) for name, specifier in _requirements(""))
    names = sorted({*(metadata.metadata("roadworthy").get_all("Provides-Extra") or ())} - {*FOR_DEVELOPERS})
    extras = tuple(
        Extra(
            name,
            PURPOSES.get(name, f"use the extra {name}"),
            tuple(_library(*needed) for needed in _requirements(name)),
        )
        for name in names
    )
    return Diagnosis(
        roadworthy=metadata.version("roadworthy"),
        python=platform.python_version(),
        executable=sys.executable,
        platform=platform.platform(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=_memory(),
        core=core,
        extras=extras,
        onnx_providers=_onnx_providers(),
        torch_build=_torch_build(),
        torchvision_problem=_torchvision_problem(),
        cache=_folder(cache_folder()),
        self_check=self_check(),
    )


def _requirements(extra: str) -> list[tuple[str, str]]:
    """The libraries that an extra needs beside the core, or the core itself for '', each with its versions."""
    from packaging.requirements import Requirement

    needed = []
    for text in metadata.requires("roadworthy") or ():
        requirement = Requirement(text)
        is_core = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_core != bool(extra) and (is_core or requirement.marker.evaluate({"extra": extra})):  # type: ignore[union-attr]
            needed.append((requirement.name, str(requirement.specifier)))
    return needed


def _library(name: str, specifier: str, *, is_needed: bool = False) -> Library:
    """A library with its version and what is wrong with it; one that is always needed is imported too."""
    from packaging.specifiers import SpecifierSet

    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Library(name, "", "not installed")
    if not SpecifierSet(specifier).contains(version, prereleases=True):
        return Library(name, version, f"{specifier} is needed")
    return Library(name, version, _import_problem(MODULES.get(name, name.replace("-", "_"))) if is_needed else "")


def _import_problem(module: str) -> str:
    """Why a module cannot be imported; '' where it can."""
    try:
        importlib.import_module(module)
    except Exception as error:  # a broken library raises anything
        return f"it is installed, but cannot be imported: {type(error).__name__}: {first_line(error)}"
    return ""


def _onnx_providers() -> tuple[str, ...]:
    """Where ONNX models can run; empty where ONNX Runtime cannot be imported, which the libraries tell."""
    try:
        import onnxruntime

        return tuple(onnxruntime.get_available_providers())
    except Exception:  # a broken library raises anything
        return ()


def _torch_build() -> str:
    """The build of torch and its devices; empty where it is not installed."""
    try:
        import torch
    except ModuleNotFoundError:
        return ""
    except Exception as error:  # a broken library raises anything
        return f"it is installed, but cannot be imported: {type(error).__name__}: {first_line(error)}"
    if torch.version.cuda is None:
        return f"{torch.__version__}, for the CPU alone"
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return f"{torch.__version__}, CUDA {torch.version.cuda}, {devices} devices"


def _torchvision_problem() -> str:
    """What is wrong with a torchvision beside which transformers does not work; '' where either is absent."""
    try:
        metadata.version("transformers")
        from roadworthy.models.huggingface import torchvision_problem
    except Exception:  # transformers is absent, or a library that we import is broken, which the libraries tell
        return ""
    return torchvision_problem()


def _memory() -> int:
    """The memory of this machine in bytes, or of its container where that is less."""
    try:
        from roadworthy.models.isolation.limits import machine_memory

        return machine_memory()
    except Exception:  # a library that it imports is broken, which the libraries tell
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _folder(path: Path) -> Folder:
    """How much a folder holds, and whether it, or where it would be made, can be written."""
    size = count = 0
    for above, _, names in os.walk(path):
        for name in names:
            count += 1
            try:
                size += os.lstat(os.path.join(above, name)).st_size  # noqa: PTH118 (a name that need not be text)
            except OSError:  # removed since
                continue
        if count > MOST_FILES:
            break
    try:
        there = next(folder for folder in (path, *path.parents) if folder.exists())
        return Folder(str(path), size, there.is_dir() and os.access(there, os.W_OK | os.X_OK))
    except OSError:  # a folder above it may not be looked into
        return Folder(str(path), 0, False)


def self_check() -> SelfCheck:
    """Draw a sign of every class and ask the classifier that comes with the package which it is."""
    started = time.perf_counter()
    try:
        from roadworthy.core.hashing import digest_array
        from roadworthy.data import BuiltinDataset, Opening
        from roadworthy.models import load_model

        started = time.perf_counter()
        signs = BuiltinDataset("signs", Opening(size=32), n=14 * PER_CLASS)
        batch = signs.batch(slice(0, None, PER_CLASS))
        answers = load_model(str(CLASSIFIER)).answer(batch, len(batch.ids)).probabilities
        wrong = int((answers.argmax(axis=1) != batch.labels).sum())
        same_bits = digest_array(batch.images) == SIGNS_SHA256
    except Exception as error:  # whatever is broken is what the user asks for
        return SelfCheck(time.perf_counter() - started, False, f"{type(error).__name__}: {first_line(error)}")
    problem = f"{wrong} of {len(batch.ids)} drawn signs were not recognised: install again" if wrong else ""
    return SelfCheck(time.perf_counter() - started, same_bits, problem)
