"""Builds sdist and wheel, looks into them, and tries the wheel in an empty environment outside the source tree.

    python tools/wheel.py [--python PYTHON] [--extras torch] [--out dist]

It needs the packages that `make wheel` installs, and an index of packages (PyPI). Exit code 1 where something is amiss.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENDINGS = (".j2", ".css", ".js", ".yaml", ".onnx", "py.typed", "sbom.cdx.json", "THIRD_PARTY_LICENCES.md", "LICENSE")
"""How names of files end that the wheel must hold besides Python code."""
UNWANTED = ("__pycache__", ".pyc", "tests/", "runs/", "benchmarks/", ".git")
"""What the name of a file in the wheel must not contain."""
LARGEST_WHEEL = 10e6
"""Bytes."""


def clean_copy(target: Path) -> None:
    """Copy what git tracks, or would track, so that no leftovers of earlier builds get in."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        **{"cwd": ROOT, "check": True, "capture_output": True},  # type: ignore[call-overload]
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def build(source: Path, out: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel made from it."""
    command = [sys.executable, "-m", "build", "--outdir", str(out), str(source)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        raise SystemExit(f"the build failed:\n{built.stdout}\n{built.stderr}")
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def problems_of(sdist: Path, wheel: Path) -> list[str]:
    """What is missing in the two, or should not be there."""
    names = zipfile.ZipFile(wheel).namelist()
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    problems = [f"the wheel holds nothing that ends in {e}" for e in ENDINGS if not any(n.endswith(e) for n in names)]
    problems += [f"the wheel holds {name}" for name in names if any(part in name for part in UNWANTED)]
    source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "roadworthy").rglob("*.*")}
    own = {name for name in source if not any(part in name for part in UNWANTED)}
    problems += [f"the wheel lacks {name}" for name in sorted(own - {*names}) if (ROOT / "src" / name).is_file()]
    problems += [
        f"the sdist lacks {name}" for name in ("constraints.txt", "CHANGELOG.md", "README.md") if name not in packed
    ]
    if wheel.stat().st_size > LARGEST_WHEEL:
        problems.append(f"the wheel has {wheel.stat().st_size / 1e6:.1f} MB")
    return problems


def sbom_problems(wheel: Path) -> list[str]:
    """What the schema of CycloneDX does not allow in the bill of materials of the wheel."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = zipfile.ZipFile(wheel).read("roadworthy/sbom.cdx.json").decode()
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    return [f"sbom.cdx.json: {error}"] if error else []


def folder_bytes(folder: Path) -> int:
    """The bytes of all files below a folder, links not followed."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def tried(wheel: Path, python: str, extras: str, folder: Path) -> dict[str, Any]:
    """Install the wheel into an empty environment and run it there; seconds and sizes."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["ROADWORTHY_CACHE"] = str(folder / "cache")
    facts: dict[str, Any] = {"python": python, "extras": extras}

    def timed(what: str, command: Sequence[str]) -> str:
        started = time.perf_counter()
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        facts[f"{what}_seconds"] = round(time.perf_counter() - started, 1)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
    installed = folder / "venv" / "lib"
    before = folder_bytes(installed)
    requirement = f"roadworthy{f'[{extras}]' if extras else ''} @ {wheel.resolve().as_uri()}"
    pip = [
        str(folder / "venv" / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "-c",
        str(ROOT / "constraints.txt"),
    ]
    timed("install", [*pip, requirement])
    facts["installed_mb"] = round((folder_bytes(installed) - before) / 1e6)
    roadworthy = str(folder / "venv" / "bin" / "roadworthy")
    timed("help", [roadworthy, "--help"])
    diagnosis = json.loads(timed("doctor", [roadworthy, "doctor", "--json"]))
    facts |= {"python": diagnosis["python"], "torch": diagnosis["torch_build"]}
    facts["same_bits"] = diagnosis["self_check"]["same_bits"]
    timed("demo", [roadworthy, "demo", "--out", str(folder / "demo"), "--quiet"])
    facts["report_mb"] = round((folder / "demo" / "report.html").stat().st_size / 1e6, 1)
    timed("verify", [roadworthy, "verify", str(folder / "demo")])
    return facts


def main() -> int:
    """Build, look, try."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", help="The interpreter to try it with; can be repeated.")
    parser.add_argument("--extras", default="torch", help="Extras to install with it, separated by commas; or ''.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="Folder for sdist and wheel.")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        clean_copy(Path(name))
        started = time.perf_counter()
        sdist, wheel = build(Path(name), arguments.out)
    sizes = ", ".join(f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in (sdist, wheel))
    print(f"{sizes}, built in {time.perf_counter() - started:.1f} s")
    problems = problems_of(sdist, wheel) + sbom_problems(wheel)
    for problem in problems:
        print(f"problem: {problem}")
    for python in [] if problems else arguments.python or [sys.executable]:
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(tried(wheel, python, arguments.extras, Path(name))))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
