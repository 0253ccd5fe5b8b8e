"""What decides the bits of a result besides our code: the type of the processor and the versions of libraries."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

from roadworthy.engine.provenance import processor

DRAWING = ("machine", "vector", "numpy", "opencv-python-headless")
"""The parts that decide the bits of shifted and drawn images."""
LEARNING = (*DRAWING, "processor", "scipy", "onnxruntime", "torch")
"""The parts that decide the bits of what is fitted or trained: linear algebra has kernels for single processors."""
ABSENT = "absent"


def machine_type(*parts: str) -> dict[str, str]:
    """The machine type, as far as the `parts` say it: `machine`, `vector`, `processor`, or a library.

    >>> sorted(machine_type("machine", "numpy"))
    ['machine', 'numpy']
    """
    return {part: _part(part) for part in parts}


@cache
def _part(part: str) -> str:
    if part == "machine":
        return platform.machine()
    if part == "vector":
        return _vector_unit()
    if part == "processor":
        return processor()
    try:
        return metadata.version(part)
    except metadata.PackageNotFoundError:
        return ABSENT


def _vector_unit() -> str:
    """The widest vector unit that OpenCV uses here: kernels are chosen by it, and round differently."""
    import cv2

    used = [name.lstrip("*") for name in cv2.getCPUFeaturesLine().split() if not name.endswith("?")]
    return used[-1] if used else "none"
