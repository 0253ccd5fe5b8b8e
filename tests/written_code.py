"""Code that follows from the registries: `python tests/written_code.py` writes it anew after a change."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from pathlib import Path

from roadworthy.core.registry import is_built_in
from roadworthy.core.roles import SHIFTS, Shift
from roadworthy.maite.metric import LOCATING
from roadworthy.metrics import METRICS
from roadworthy.monitors import MONITORS
from roadworthy.protocols import PROTOCOLS as PROCEDURES
from roadworthy.protocols.joint_test.templates import template_names
from roadworthy.shifts import ATTACKS
from roadworthy.shifts.arrays import parameter_types

SOURCE = Path(__file__).parent.parent / "src" / "roadworthy"
STUB = SOURCE / "shifts" / "functions.pyi"
KNOWN_NAMES = SOURCE / "cli" / "known_names.py"
BY_SHIFT, BY_METRIC = SOURCE / "maite" / "by_shift.py", SOURCE / "maite" / "by_metric.py"
PROTOCOLS = "maite.protocols.{task}.{component}"
CLASSIFICATION, DETECTION = "image_classification", "object_detection"
HEAD = '''"""What type checkers know of every shift as a function; written by `python tests/written_code.py`."""

from collections.abc import Sequence
from typing import Required, TypeAlias, TypedDict, Unpack, overload

from numpy.typing import ArrayLike

from roadworthy.core.types import Images
from roadworthy.shifts.arrays import Moved as Moved

Number: TypeAlias = float | None
Triple: TypeAlias = float | tuple[float, float, float] | None
Numbers: TypeAlias = Sequence[float] | None
Word: TypeAlias = str | None

class Alone(TypedDict, total=False):
    seed: int
    id: str | int | Sequence[str | int] | None
    depth: ArrayLike | None

class Boxed(Alone, total=False):
    boxes: Required[ArrayLike]
    masks: ArrayLike | None

class Masked(Alone, total=False):
    masks: Required[ArrayLike]

'''
FUNCTION = '''
@overload
def {name}({common}{own} **more: Unpack[Alone]) -> Images:
    """{doc}"""
@overload
def {name}({common}{own} **more: Unpack[Boxed]) -> Moved: ...
@overload
def {name}({common}{own} **more: Unpack[Masked]) -> Moved: ...
'''
COMMON = "image: ArrayLike, level: Number = None, *, "
TYPES = {
    "float": "Number",
    "float | None": "Number",
    "int": "int | None",
    "str": "Word",
    "Triple": "Triple",
    "tuple[float, ...]": "Numbers",
}
"""Types of parameters as their classes write them, and as the stub does."""


def own_shifts() -> list[str]:
    """The names of the shifts of this package."""
    return [name for name in SHIFTS if is_built_in(SHIFTS.get(name))]


def class_name(name: str) -> str:
    """`fog_veil` as `FogVeil`."""
    return "".join(part.capitalize() for part in name.split("_"))


def first_paragraph(text: str | None) -> str:
    return "\n    ".join(textwrap.wrap(inspect.cleandoc(text or "").partition("\n\n")[0].replace("\n", " "), 110))


def augmented() -> list[str]:
    """The shifts that an augmentation can stand for: all but those that show other images of the data."""
    return [name for name in own_shifts() if SHIFTS.get(name).over is Shift.over]


def by_shift() -> str:
    """A class of augmentations per shift."""
    parts = [
        '"""Every shift as an augmentation of MAITE under its own name; written by `python tests/written_code.py`."""',
        "from roadworthy.maite.augmentation import ShiftAugmentation",
    ]
    for name in augmented():
        doc = first_paragraph(SHIFTS.get(name).__doc__)
        parts.append(f'class {class_name(name)}(ShiftAugmentation):\n    """{doc}"""\n\n    shift = "{name}"')
    return "\n\n".join(parts)


def by_metric() -> str:
    """A class of metrics per metric of answers, and per metric of boxes that needs no stated uncertainty."""
    parts = [
        '"""Every metric as one of MAITE under its own name; written by `python tests/written_code.py`."""',
        "from roadworthy.maite.metric import SingleBoxMetric, SingleMetric",
    ]
    bases = {"SingleMetric": own_metrics(), "SingleBoxMetric": list(LOCATING)}
    for base, names in bases.items():
        for name in names:
            sentence = METRICS.get(name).sentence if name in METRICS else LOCATING[name].sentence
            doc = "\n    ".join(textwrap.wrap(sentence, 110))
            parts.append(f'class {class_name(name)}({base}):\n    """{doc}"""\n\n    metric = "{name}"')
    return "\n\n".join(parts)


def own_metrics() -> list[str]:
    """The metrics of class answers of this package."""
    return [name for name in METRICS if is_built_in(METRICS.get(name))]


def entry_points() -> dict[str, dict[str, str]]:
    """What pyproject.toml must offer to users of MAITE, by group."""
    augmentations = {
        f"roadworthy_{class_name(name)}": f"roadworthy.maite.by_shift:{class_name(name)}" for name in augmented()
    }
    general = {"roadworthy_Augmentation": "roadworthy.maite:Augmentation"}
    metrics = {
        task: {f"roadworthy_{class_name(name)}": f"roadworthy.maite.by_metric:{class_name(name)}" for name in names}
        for task, names in ((CLASSIFICATION, own_metrics()), (DETECTION, list(LOCATING)))
    }
    metrics[CLASSIFICATION] = {"roadworthy_Metric": "roadworthy.maite:Metric", **metrics[CLASSIFICATION]}
    metrics[DETECTION] = {"roadworthy_BoxMetric": "roadworthy.maite:BoxMetric", **metrics[DETECTION]}
    groups = {PROTOCOLS.format(task=task, component="Augmentation"): {**general, **augmentations} for task in metrics}
    return groups | {PROTOCOLS.format(task=task, component="Metric"): names for task, names in metrics.items()}


def stub() -> str:
    """What type checkers know of the functions of shifts."""
    names = own_shifts()
    parts = [HEAD, f"__all__ = {sorted(names)!r}\n".replace("'", '"')]
    for name in names:
        shift = SHIFTS.get(name)
        own = "".join(f" {entry}: {TYPES[type_]} = None," for entry, type_ in parameter_types(shift).items())
        doc = first_paragraph(shift.__doc__)
        parts.append(FUNCTION.format(name=name, common=COMMON, own=own, doc=doc))
    return "".join(parts)


def known_names() -> str:
    """The names of this package's own components that the shell proposes, by kind."""
    protocols = [PROCEDURES.get(name) for name in PROCEDURES if is_built_in(PROCEDURES.get(name))]
    of_registries = {"shifts": (SHIFTS, ATTACKS), "monitors": (MONITORS,), "metrics": (METRICS,)}
    by_kind = {
        kind: {name for registry in some for name in registry if is_built_in(registry.get(name))}
        for kind, some in of_registries.items()
    }
    by_kind["metrics"] |= {metric.name for protocol in protocols for metric in protocol.metrics}
    by_kind["suites"] = {name for protocol in protocols for name in protocol.suites}
    by_kind["templates"] = {*template_names()}
    doc = '"""Names that the shell proposes without an import; written by `python tests/written_code.py`."""'
    lines = [f"{kind!r}: {tuple(sorted(names))!r}," for kind, names in sorted(by_kind.items())]
    return "\n".join([doc, "", "KNOWN_NAMES: dict[str, tuple[str, ...]] = {", *lines, "}", ""])


def components() -> str:
    """Code in which a type checker holds every entry point against its protocol, as MAITE's own check of them does."""
    lines = []
    for number, (group, names) in enumerate(entry_points().items()):
        module, _, protocol = group.rpartition(".")
        lines.append(f"from {module} import {protocol} as Protocol{number}")
        for name, value in names.items():
            own_module, _, cls = value.partition(":")
            lines.append(f"from {own_module} import {cls} as {name}{number}")
            lines.append(f"def check_{name}{number}(one: {name}{number}) -> Protocol{number}:\n    return one")
    return "\n".join(lines)


FILES = {STUB: stub, BY_SHIFT: by_shift, BY_METRIC: by_metric, KNOWN_NAMES: known_names}


def formatted(file: Path) -> str:
    """A written file as it must be in the package."""
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "format", "--stdin-filename", str(file), "-"]
    return subprocess.run(command, input=FILES[file](), capture_output=True, text=True, check=True).stdout


if sys.argv[1:] == ["components"] and __name__ == "__main__":
    print(components())
elif __name__ == "__main__":
    for file in FILES:
        file.write_text(formatted(file))
    for group, names in entry_points().items():
        print(f'[project.entry-points."{group}"]')
        print("\n".join(f'{name} = "{value}"' for name, value in names.items()), end="\n\n")
