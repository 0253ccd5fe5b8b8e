"""The software bill of materials and the licences of the dependencies, of the versions in constraints.txt.

    python tools/inventory.py            writes src/roadworthy/sbom.cdx.json and THIRD_PARTY_LICENCES.md
    python tools/inventory.py --check    exit code 1 where they are not what it would write

Both speak of the set of versions that is tested together, on Linux with Python 3.11. Licences are what the packages say
of themselves, so all of them must be installed: `make test` does that.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
SBOM = ROOT / "src" / "roadworthy" / "sbom.cdx.json"
LICENCES = ROOT / "THIRD_PARTY_LICENCES.md"
PLOTLY = ROOT / "src" / "roadworthy" / "report" / "plotly.min.js"
NOT_SHIPPED = ("dev", "bench", "all", "docs", "typing")
"""Extras for those who work on the project, and the one that names others."""
NOT_TESTED = ("gcsfs",)
"""Packages of extras that no set of versions is tested with: they are not listed."""
PLATFORM = {
    **{"python_version": "3.11", "python_full_version": "3.11.0", "implementation_name": "cpython"},
    **{"platform_system": "Linux", "sys_platform": "linux", "os_name": "posix", "platform_machine": "x86_64"},
    **{"platform_python_implementation": "CPython", "platform_release": "", "platform_version": ""},
}
LONGEST_LICENCE = 60
"""Characters of a licence's name: some packages put its whole text there."""


@dataclass(frozen=True)
class Package:
    """A package of the tested set; `parts` names what installs it: `core`, or extras. `needs` names packages."""

    name: str
    version: str
    licence: str
    is_expression: bool
    parts: tuple[str, ...]
    needs: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Its address in an inventory."""
        return f"pkg:pypi/{self.name}@{self.version}"


def pinned() -> dict[str, str]:
    """The version of every package in constraints.txt, by its canonical name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def shipped_parts() -> dict[str, list[str]]:
    """What pyproject.toml asks for: `core`, and each extra for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: needs for name, needs in project["optional-dependencies"].items() if name not in NOT_SHIPPED}
    return {"core": project["dependencies"], **extras}


def packages() -> list[Package]:
    """All packages that some part installs, by name."""
    versions = pinned()
    installs: dict[str, set[str]] = {}
    needs: dict[str, set[str]] = {}
    for part, requirements in shipped_parts().items():
        waiting = [Requirement(text) for text in requirements]
        seen: set[tuple[str, str]] = set()
        while waiting:
            requirement = waiting.pop()
            name = canonicalize_name(requirement.name)
            if name in NOT_TESTED or (name, str(sorted(requirement.extras))) in seen:
                continue
            seen.add((name, str(sorted(requirement.extras))))
            if name not in versions:
                raise SystemExit(f"{name}, which {part} needs, has no version in constraints.txt: add it")
            further = list(_needs(distribution(name), requirement.extras))
            installs.setdefault(name, set()).add(part)
            needs.setdefault(name, set()).update(canonicalize_name(item.name) for item in further)
            waiting += further
    core = {name for name, parts in installs.items() if "core" in parts}
    return [
        Package(
            name,
            versions[name],
            *licence_of(distribution(name)),
            ("core",) if name in core else tuple(sorted(installs[name])),
            tuple(sorted(needs[name])),
        )
        for name in sorted(installs)
    ]


def _needs(installed: Distribution, extras: Iterable[str]) -> Iterator[Requirement]:
    """What a package needs on the platform of the inventory."""
    for text in installed.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**PLATFORM, "extra": extra}) for extra in ("", *extras)):
            yield requirement


def licence_of(installed: Distribution) -> tuple[str, bool]:
    """The licence that a package states, and whether it is an SPDX expression."""
    metadata = installed.metadata
    if expression := metadata.get("License-Expression"):
        return expression, True
    stated = " ".join((metadata.get("License") or "").split())
    if stated and len(stated) <= LONGEST_LICENCE and stated not in ("UNKNOWN", "Dual License"):
        return stated, False
    classifiers = [text for text in metadata.get_all("Classifier") or () if text.startswith("License ::")]
    names = [text.rpartition("::")[2].strip() for text in classifiers]
    return " or ".join(names) or _named_in_file(installed) or "not stated", False


def _named_in_file(installed: Distribution) -> str:
    """The licence that the licence file of a package names, of those known here; empty where it names none."""
    texts = [file.read_text() for file in installed.files or () if Path(file).name.upper().startswith("LICENSE")]
    known = {"Licensed under the Apache License, Version 2.0": "Apache License, Version 2.0"}
    return next((name for text in texts for words, name in known.items() if words in text), "")


def plotly_version() -> str:
    """The version of the copy of plotly.js that reports hold."""
    match = re.search(r"plotly\.js v([\d.]+)", PLOTLY.read_text(encoding="utf-8")[:200])
    if match is None:
        raise SystemExit(f"{PLOTLY} does not state its version: copy the file of the Python package plotly again")
    return match[1]


def sbom() -> dict[str, Any]:
    """The bill of materials: CycloneDX 1.6, without date, so that the same set gives the same bytes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = f"pkg:pypi/roadworthy@{project['version']}"
    plotly = f"pkg:npm/plotly.js@{plotly_version()}"
    listed = packages()
    purls = {package.name: package.purl for package in listed}
    direct = {canonicalize_name(Requirement(text).name) for part in shipped_parts().values() for text in part}
    components = [_component(package) for package in listed]
    components.append(
        {
            **{"type": "library", "bom-ref": plotly, "name": "plotly.js", "version": plotly_version(), "purl": plotly},
            **{"scope": "required", "licenses": [{"license": {"id": "MIT"}}]},
            "properties": [{"name": "roadworthy:part", "value": "a copy in roadworthy/report/plotly.min.js"}],
        }
    )
    edges = {own: [*(purls[name] for name in sorted(direct & set(purls))), plotly], plotly: []}
    edges |= {package.purl: [purls[name] for name in package.needs if name in purls] for package in listed}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))}",
        "version": 1,
        "metadata": {
            "component": {
                **{"type": "application", "bom-ref": own, "name": "roadworthy", "version": project["version"]},
                **{"purl": own, "licenses": [{"expression": project["license"]}]},
            },
            "properties": [{"name": "roadworthy:platform", "value": "Linux x86_64, CPython 3.11"}],
        },
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": needs} for ref, needs in edges.items()],
    }


def _component(package: Package) -> dict[str, Any]:
    licence = {"expression": package.licence} if package.is_expression else {"license": {"name": package.licence}}
    return {
        **{"type": "library", "bom-ref": package.purl, "name": package.name, "version": package.version},
        **{"purl": package.purl, "scope": "required" if package.parts == ("core",) else "optional"},
        "licenses": [licence],
        "properties": [{"name": "roadworthy:part", "value": part} for part in package.parts],
    }


def licences() -> str:
    """The licences as a page: a row per package, and the text of what is copied into the wheel."""
    rows = [f"| {p.name} | {p.version} | {p.licence} | {', '.join(p.parts)} |" for p in packages()]
    notice = next(path for path in distribution("plotly").files or () if path.name == "LICENSE.txt")
    text = Path(str(distribution("plotly").locate_file(notice))).read_text(encoding="utf-8").strip()
    return "\n".join(
        [
            "# Licences of what Roadworthy uses",
            "",
            "The versions that are tested together, on Linux with Python 3.11, and the licence that each one states.",
            "`core` is always installed, the other words are extras. Nothing here is part of the wheel but plotly.js",
            "(at the end). Written by `tools/inventory.py`.",
            "",
            "| package | version | licence | installed by |",
            "|---|---|---|---|",
            *rows,
            "",
            f"## plotly.js {plotly_version()}",
            "A copy is part of the wheel (`roadworthy/report/plotly.min.js`) and of every report.",
            "",
            "```",
            text,
            "```",
            "",
        ]
    )


def contents() -> dict[Path, str]:
    """Each file with what it should hold."""
    return {SBOM: json.dumps(sbom(), indent=1, ensure_ascii=False) + "\n", LICENCES: licences()}


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--check", action="store_true", help="Write nothing; exit code 1 where a file would change.")
    check: bool = parser.parse_args().check
    changed = [path for path, text in contents().items() if not path.is_file() or path.read_text("utf-8") != text]
    for path in changed:
        if check:
            print(f"{path.relative_to(ROOT)} is not up to date: run python tools/inventory.py")
        else:
            path.write_text(contents()[path], "utf-8")
            print(f"written: {path.relative_to(ROOT)}")
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
