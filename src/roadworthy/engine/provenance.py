"""Provenance: on what and with what a run was made."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

PACKAGES = ("roadworthy", "numpy", "scipy", "opencv-python-headless", "pillow", "onnx", "onnxruntime", "pyarrow")
OPTIONAL = ("pandas", "scikit-learn", "torch", "ray")


def environment() -> dict[str, Any]:
    """Versions and hardware."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "packages": {name: found for name in (*PACKAGES, *OPTIONAL, *_extensions()) if (found := _version(name))},
    }


def _extensions() -> list[str]:
    """The installed packages that bring components of their own by entry points."""
    brings = [
        package.name
        for package in distributions()
        if any(point.group.startswith("roadworthy.") for point in package.entry_points)
    ]
    return sorted({*brings})


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
