"""A black box with every kind of set: GANs are trained for an export, and the run of the answers finds them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import roadworthy as rw
from commands import call
from elsewhere import answer_elsewhere
from roadworthy.core.errors import InputError, ModelError
from tiny import save_onnx, study

pytest.importorskip("torch")
pytest.importorskip("safetensors")

GANS = {"width": 2, "latent": 4, "batch": 42, "epochs": 1, "threads": 1, "count": 1}
CONFIGURATIONS = ["lee_gan", "sricharan_wgan_2e"]


def black_box(folder: Path, **changes: Any) -> dict[str, Any]:
    """A study with sets of every kind: noise, foreign, derived, transformed and drawn by GANs."""
    gans = {**GANS, "configurations": CONFIGURATIONS}
    sets = ["uniform_noise", "park", "swirl"]
    return study(
        folder,
        data={"test": {"builtin": "signs", "n": 42}, "train": {"builtin": "signs", "split": "train", "n": 210}},
        outliers={"park": {"builtin": "scenery", "n": 42}},
        protocols={
            "classification": {"shifts": ["fog"], "levels": [3]},
            "ood": {"sets": sets, "transformed": ["fog"], "levels": [5], "gans": gans},
        },
        **changes,
    )


def save(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


def files_below(folder: Path) -> dict[str, tuple[int, bytes]]:
    """When every file was written, and what it holds."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def results(run: Path) -> dict[str, bytes]:
    """The bytes of every table and picture but timings."""
    files = [*run.glob("tables/*"), *run.glob("media/gan-*")]
    return {path.name: path.read_bytes() for path in files if not path.name.startswith("timing_")}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that was run directly, and exported, with the GANs of the export in the folder `run`."""
    folder = tmp_path_factory.mktemp("black_box")
    save_onnx(folder / "tiny.onnx", gain=3.0, softmax=False)
    source = save(folder / "study.yaml", black_box(folder))
    call("run", source, "--out", folder / "direct", "--workers", "1")
    said = call("export", source, folder / "images", "--out", folder / "run")
    assert "networks that drew some: 2 in" in said
    return folder


def test_answers_to_every_kind_of_set_give_the_tables_of_the_direct_run(exported: Path) -> None:
    before = files_below(exported / "run" / "artifacts")
    answer_elsewhere(exported / "images", exported / "tiny.onnx", exported / "answers.csv")
    answers = {"predictions": str(exported / "answers.csv"), "outputs": "logits"}
    back = black_box(exported, models={"tiny": answers})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call("run", save(exported / "back.yaml", back), "--out", exported / "run", "--workers", "1")
    assert files_below(exported / "run" / "artifacts") == before, "the GANs of the export are those of the run"
    direct, imported = results(exported / "direct"), results(exported / "run")
    assert {name for name in direct if name.startswith("gan")} >= {"gan.csv", "gan_epochs.csv", "gan_repeats.csv"}
    assert {*direct} == {*imported}
    assert [name for name in direct if direct[name] != imported[name]] == []
    run = rw.open_run(exported / "run")
    kinds = run.tables["ood"].groupby("kind")["ood_set"].nunique()
    assert dict(kinds) == {"derived": 1, "gan": 2, "literature": 2, "transformed": 1}
    assert run.verify() == []

    with pytest.warns(UserWarning, match="lee_gan is trained anew, and its images may not be those that tiny answered"):
        rw.run_study(back, out=exported / "elsewhere", workers=1, progress=rw.no_progress)
    assert results(exported / "elsewhere") == direct, "on one machine they are the same"


def test_an_export_says_what_drew_its_images(exported: Path) -> None:
    record = json.loads((exported / "images" / "export.json").read_text())
    homes = {path.name: path for path in (exported / "direct" / "artifacts").iterdir()}
    assert {*record["artifacts"]} == {*homes}
    for name, files in record["artifacts"].items():
        assert json.loads((homes[name] / "manifest.json").read_text())["parts"] == files
    drawn = [key for key in record["stimuli"] if key.startswith(tuple(CONFIGURATIONS))]
    assert len(drawn) == 2
    for key in drawn:
        assert len([*(exported / "images" / "images" / key).iterdir()]) == 42


def test_what_a_run_has_built_is_used_and_a_finished_run_is_not_added_to(exported: Path, tmp_path: Path) -> None:
    before = files_below(exported / "direct")
    rw.export_study(black_box(exported), tmp_path / "images", out=exported / "direct", progress=rw.no_progress)
    images = [{k: v for k, (_, v) in files_below(at).items()} for at in (tmp_path / "images", exported / "images")]
    assert images[0] == images[1]
    other = black_box(exported, seed=3)
    with pytest.raises(InputError, match=r"finished run in .*direct lacks lee_gan.*another folder .* `out=`"):
        rw.export_study(other, tmp_path / "others", out=exported / "direct", progress=rw.no_progress)
    assert files_below(exported / "direct") == before
    assert not (tmp_path / "others").exists()


def test_a_stopped_export_goes_on(exported: Path, tmp_path: Path) -> None:
    def stopping(at: str) -> Any:
        @contextmanager
        def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
            if title == at:
                raise KeyboardInterrupt
            yield lambda amount: None

        return bar

    content, where = black_box(exported), {"out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        rw.export_study(content, tmp_path / "images", progress=stopping("training sricharan_wgan_2e"), **where)
    assert not (tmp_path / "images").exists()
    (first,) = [path for path in (tmp_path / "run" / "artifacts").iterdir() if (path / "manifest.json").is_file()]
    before = files_below(first)
    with pytest.raises(KeyboardInterrupt):
        rw.export_study(content, tmp_path / "images", progress=stopping("export tiny"), **where)
    written = rw.export_study(content, tmp_path / "images", progress=rw.no_progress, **where)
    assert files_below(first) == before, "what was trained is not trained again"
    again, straight = (files_below(folder / "images") for folder in (tmp_path, exported))
    assert {name: text for name, (_, text) in again.items()} == {name: text for name, (_, text) in straight.items()}
    assert written == json.loads((tmp_path / "images" / "export.json").read_text())["images"]


def test_nothing_is_trained_for_an_export_that_is_refused(exported: Path, tmp_path: Path) -> None:
    attack = black_box(exported)
    attack["protocols"]["classification"]["shifts"] = ["square"]
    with pytest.raises(InputError, match="attack square cannot be exported"):
        rw.export_study(attack, tmp_path / "images", out=tmp_path / "run", progress=rw.no_progress)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("mine")
    with pytest.raises(InputError, match="mine exists and is not empty"):
        rw.export_study(black_box(exported), tmp_path / "mine", out=tmp_path / "run", progress=rw.no_progress)
    below = tmp_path / "mine" / "letter.txt" / "images"
    with pytest.raises(InputError, match=r"cannot write to .*letter.txt is a file"):
        rw.export_study(black_box(exported), below, out=tmp_path / "run", progress=rw.no_progress)
    with pytest.raises(InputError, match="holds no run"):
        rw.export_study(black_box(exported), tmp_path / "images", out=tmp_path / "mine", progress=rw.no_progress)
    assert {path.name for path in tmp_path.rglob("*")} == {"mine", "letter.txt"}


def test_an_export_fails_where_a_gan_does(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **settings: Any) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr("roadworthy.outliers.gan.outliers.train_gan", fail)
    with pytest.raises(ModelError, match="no luck"):
        rw.export_study(black_box(exported), tmp_path / "images", out=tmp_path / "run", progress=rw.no_progress)
    assert not (tmp_path / "images").exists()
