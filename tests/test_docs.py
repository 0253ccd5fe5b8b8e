"""Docs stay true: every `roadworthy` command in README and docs/ is run; `test_doc_links.py` follows their links."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from commands import call
from tiny import forget_plugins, save_onnx, templates
from tutorials import blocks as all_blocks

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXIT_CODES = {"verdict": (0, 1, 3), "evaluate": (0, 1, 3), "run": (0, 1, 3)}


def blocks(page: Path, language: str) -> list[str]:
    return [block.text for block in all_blocks(page.read_text()) if block.kind == language]


def commands() -> list[tuple[str, str]]:
    """Every command of the docs once, where it comes first."""
    lines = [(page.name, line) for page in PAGES for block in blocks(page, "") for line in block.splitlines()]
    pages: dict[str, str] = {}
    for page, line in lines:
        if line.startswith("roadworthy "):
            pages.setdefault(line.partition("#")[0].strip(), page)
    return [(page, line) for line, page in pages.items()]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the docs speak of: data in signs/test, models, code, a study and criteria as printed there."""
    import cv2
    import numpy as np
    import torch

    from roadworthy.core.types import Batch
    from roadworthy.data import BuiltinDataset, Opening
    from roadworthy.models import load_model

    folder = tmp_path_factory.mktemp("docs")
    signs = BuiltinDataset("signs", Opening(size=32), n=140)
    batch = signs.batch(slice(0, None, 3))  # below 50 objects no bounds are drawn, which takes most of the time
    for image_id, image, label in zip(batch.ids, batch.images, batch.labels, strict=True):
        name = f"{label:02d} {signs.class_names[label]}"  # in the order of the model
        path = folder / "signs" / "test" / name / f"{image_id.replace('/', '-')}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), image[..., ::-1])
    for name in signs.class_names:  # one of each class: all levels of all shifts are measured on them
        first = min((folder / "signs" / "test").glob(f"?? {name}/*.png"))
        (folder / "my" / "images" / first.parent.name).mkdir(parents=True)
        shutil.copy(first, folder / "my" / "images" / first.parent.name)
    for name in ("m.onnx", "v3.onnx", "my.onnx"):
        save_onnx(folder / name)
    (folder / "code.py").write_text(next(b for b in blocks(ROOT / "docs" / "models.md", "python") if "code.py" in b))
    shutil.copy(ROOT / "examples" / "cifar10_resnet20.py", folder / "nets.py")
    namespace: dict[str, object] = {}
    exec((folder / "nets.py").read_text(), namespace)
    torch.manual_seed(0)
    network = namespace["resnet20"]()  # type: ignore[operator]
    torch.save(network.state_dict(), folder / "resnet20.th")
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 14))
    means = torch.from_numpy(templates()).float()
    flat[1].load_state_dict({"weight": means / 10, "bias": -(means**2).sum(1) / 20})
    torch.jit.trace(flat, torch.zeros(1, 3, 32, 32)).save(str(folder / "scripted.pt"))
    pixels = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
    shown = Batch(tuple(map(str, range(10))), pixels, np.zeros(10, np.int64))
    labels = load_model(network, range="imagenet").answer(shown, 64).probabilities.argmax(axis=1)
    np.savez(folder / "cifar10_test.npz", images=pixels, labels=labels, class_names=np.array([*"abcdefghij"]))
    for name, language in (("sure_and_wrong.py", "python"), ("sure.yaml", "yaml")):
        (folder / name).write_text(blocks(ROOT / "docs" / "own_metric.md", language)[0])
    criteria = blocks(ROOT / "docs" / "criteria.md", "yaml")
    (folder / "criteria.yaml").write_text(criteria[0])
    (folder / "relative.yaml").write_text(next(block for block in criteria if "against: baseline" in block))
    study = yaml.safe_load(blocks(ROOT / "docs" / "classification.md", "yaml")[0])
    (folder / "study.yaml").write_text(yaml.safe_dump({**study, "criteria": None}))
    return folder


@pytest.mark.filterwarnings("ignore:model .* is beyond doubt")  # one drawn model stands for models of any range
def test_every_command_in_the_docs_works(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)  # a viewer would go on until it is stopped
    ran = 0
    for page, line in commands():
        words = shlex.split(line.replace("RUN", "runs/m"))[1:]
        if words[0] == "evaluate" and not {"--out", "--write-study"} & {*words}:
            words += ["--out", f"runs/{ran}", "--suite", "quick"]
        words += ["--port", "0"] if words[0] == "serve" else []
        code = EXIT_CODES.get(words[0], (0,))
        from typer.testing import CliRunner

        from roadworthy.cli import app

        result = CliRunner().invoke(app, words)
        assert not isinstance(result.exception, Exception), (page, line, result.output, result.exception)
        assert result.exit_code in code, (page, line, result.output)
        ran += 1
        forget_plugins()
    assert ran >= 12


def test_the_python_in_the_readme_works(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)
    (code,) = blocks(ROOT / "README.md", "python")
    exec(code, {})


def test_the_python_in_its_page_works(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)
    code = "\n".join(blocks(ROOT / "docs" / "python.md", "python"))
    (workspace / "page.py").write_text(code)
    exec(compile(code, workspace / "page.py", "exec"), {})
    assert (workspace / "runs" / "right" / "report.html").is_file(), "check found something"


def test_the_shift_of_ones_own_works(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from roadworthy.core.roles import SHIFTS

    monkeypatch.chdir(workspace)
    try:
        exec(blocks(ROOT / "docs" / "extending.md", "python")[0], {"__name__": "__main__"})
        assert "contact sheet" in call("preview", "dim", "--out", workspace / "dim.png")
    finally:
        SHIFTS._members.pop("dim", None)


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "examples" / "demo.ipynb").read_text())
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    small = code.replace('"n": 1400', '"n": 210').replace('"n": 280', '"n": 42').replace('"passes": 10', '"passes": 2')
    narrow = small.replace('"reference": ', '"width": 4, "hidden": 8, "reference": ')
    assert code != small != narrow
    exec(compile(narrow, "demo.ipynb", "exec"), {})
    assert (tmp_path / "runs" / "notebook" / "report.html").is_file()
    assert (tmp_path / "runs" / "coin" / "report.html").is_file()
