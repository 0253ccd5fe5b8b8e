"""Provenance: on what and with what a run was made."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

PACKAGES = ("roadworthy", "numpy", "scipy", "opencv-python-headless", "pillow", "onnx", "onnxruntime", "pyarrow")
OPTIONAL = ("pandas", "scikit-learn", "torch", "ray")
CPU_DETAILS = {"vendor_id": "", "cpu family": "family ", "model": "model "}
"""Facts of a processor besides its name, with the word that stands before each."""


def environment() -> dict[str, Any]:
    """Versions and hardware."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "packages": {name: version for name in (*PACKAGES, *OPTIONAL, *_extensions()) if (version := _version(name))},
    }


def _extensions() -> list[str]:
    """The installed packages that bring components of their own by entry points."""
    brings = [
        package.name
        for package in distributions()
        if any(point.group.startswith("roadworthy.") for point in package.entry_points)
    ]
    return sorted({*brings})


def missing_extensions(recorded: Mapping[str, Any]) -> list[str]:
    """The packages with components of their own that a recorded environment has and this one lacks, with versions."""
    packages = recorded.get("packages", {})
    usual = {*PACKAGES, *OPTIONAL}
    return [f"{name} {version}" for name, version in packages.items() if name not in usual and not _version(name)]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def machine() -> str:
    """The type of this machine, as far as it decides how long something takes: processor, cores, system."""
    cores = os.cpu_count() or 0
    return f"{processor()}, {cores} core{'s' if cores != 1 else ''}, {platform.system()} {platform.machine()}"


def processor() -> str:
    """The processor by name, with maker, family and model where the system says them.

    The name alone may stand for several generations (a virtual machine says `AMD EPYC`), whose fastest kernels of
    linear algebra differ, and so the last bits of what they compute.
    """
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = (line.partition(":") for line in info.read_text().partition("\n\n")[0].splitlines())
        facts = {name.strip(): value.strip() for name, _, value in lines}
        if "model name" in facts:
            details = [f"{word}{facts[key]}" for key, word in CPU_DETAILS.items() if key in facts]
            return f"{facts['model name']} ({', '.join(details)})" if details else facts["model name"]
    return platform.processor() or platform.machine()
