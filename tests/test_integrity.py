"""Stored results that were changed, or are those of another case: what reads them says so, nothing is taken over."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from starlette.testclient import TestClient

import roadworthy as rw
from commands import call
from dark_and_bright import CODE, draw, study
from roadworthy.core import checked, manifests
from roadworthy.core.errors import DamagedFile, InputError
from roadworthy.core.hashing import digest_file, resealed
from roadworthy.core.parquet import parquet_table
from roadworthy.engine import readouts
from roadworthy.engine.artifacts import find_artifact, read_artifact
from roadworthy.engine.folder import RunFolder
from roadworthy.stored_evidence import load_evidence
from roadworthy.viewer.app import make_app
from roadworthy.viewer.index import run_id
from tiny import contents

MODEL = {"callable": "m.py:answer", "num_classes": 2, "version": "1", "isolate": False}
CRITERIA = [{"id": "A1", "metric": "accuracy", "where": {"shift": "noise", "level": 3}, "at_least": 0.5}]
STUDY = study(
    Path("data.npz"),
    {"m": MODEL},
    protocols={"classification": {"shifts": ["noise"], "levels": [3]}},
    criteria=CRITERIA,
)
FITTED = {
    "name": "od",
    "data": {"test": "data.npz", "split": [0.6, 0.2, 0.2]},
    "models": {"m": MODEL},
    "outliers": {"a": "uniform_noise", "b": "normal_noise"},
    "monitors": ["kl_matching", "knn_svm"],
    "protocols": {"od_test": {}},
}
Edit = Callable[[Path], str]
"""Changes a run, and says the name of the file that is not as it was written."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two studies, their data and model, and a whole run of each."""
    folder = tmp_path_factory.mktemp("studies")
    with np.load(draw(folder, 60)) as drawn:
        arrays = dict(drawn)
    arrays["labels"] = np.where(np.arange(60) % 5, arrays["labels"], 0)  # so that not every answer is right
    np.savez(folder / "data.npz", **arrays)
    (folder / "m.py").write_text(CODE)
    for name, content in {"whole": STUDY, "fitted": FITTED}.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            go_on(name, folder / name)
    return folder


def go_on(name: str, out: Path, code: int = 0) -> str:
    return call("run", f"{name}.yaml", "--trust", "--accept-chance", "--out", out, "--workers", 1, code=code)


@pytest.fixture
def out(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run that may be changed."""
    monkeypatch.chdir(home)
    shutil.copytree(home / "whole", tmp_path / "runs" / "own")
    return tmp_path / "runs" / "own"


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def cases(run: Path) -> tuple[Path, Path]:
    """The folders of the undisturbed case and of the noisy one."""
    (none,), (noise,) = run.glob("readouts/none*"), run.glob("readouts/noise*")
    return none, noise


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write another valid Parquet file in place of one."""
    pq.write_table(change(pq.read_table(path)), path, compression="zstd", store_schema=False)


def all_right(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("prediction")
    return table.set_column(at, "prediction", table["label"])


def better(table: pa.Table) -> pa.Table:
    return table.set_column(table.schema.get_field_index("value"), "value", pa.array(np.ones(len(table))))


def edit_readouts(run: Path) -> str:
    part = cases(run)[1] / "part-00000.parquet"
    rewrite(part, all_right)
    return part.name


def edit_table(run: Path) -> str:
    rewrite(run / "tables" / "classification.parquet", better)
    return "classification.parquet"


def edit_manifest(run: Path) -> str:
    """Of a manifest, what is no seal and no hash."""
    path = cases(run)[1] / "manifest.json"
    path.write_text(path.read_text().replace('"classes": 2', '"classes": 3'))
    return path.name


def edit_both(run: Path) -> str:
    """Readouts, and their manifest with the right hash and a right seal: run.json has the hash of the manifest."""
    edit_readouts(run)
    path = cases(run)[1] / "manifest.json"
    content = json.loads(path.read_text())
    parts = {name: digest_file(path.with_name(name)) for name in content["parts"]}
    path.write_text(json.dumps(resealed(content, {"parts": parts}), indent=1) + "\n")
    return path.name


def swap_cases(run: Path) -> str:
    swap(*cases(run))
    return "manifest.json"


def edit_record(run: Path) -> str:
    path = run / "run.json"
    path.write_text(path.read_text().replace('"study": "s"', '"study": "t"'))
    return path.name


def edit_verdict(run: Path) -> str:
    path = run / "verdict.json"
    path.write_text(path.read_text().replace('"pass"', '"fail"'))
    return path.name


EDITS: dict[str, tuple[Edit, tuple[str, ...]]] = {
    "readouts": (edit_readouts, ("verdict", "compare", "indicators", "report", "bundle", "mlflow")),
    "readouts and manifest": (edit_both, ("verdict", "compare", "indicators", "report", "bundle", "mlflow")),
    "manifest": (edit_manifest, ("verdict", "compare", "indicators", "report", "bundle", "mlflow")),
    "swapped": (swap_cases, ("verdict", "compare", "indicators", "report", "bundle", "mlflow")),
    "table": (edit_table, ("report", "bundle", "mlflow")),
    "record": (edit_record, ("verdict", "compare", "indicators", "report", "bundle", "mlflow")),
    "verdict": (edit_verdict, ("report", "bundle", "mlflow")),
}
"""What is changed in a run, and the commands that read it."""


def words_of(command: str, run: Path, whole: Path) -> list[object]:
    further: dict[str, list[object]] = {
        "compare": [whole],
        "bundle": ["--out", run.parent / "b.rwz"],
        "indicators": ["--out", run.parent / "indicators.json"],
    }
    return [command, run, *further.get(command, [])]


@pytest.mark.parametrize("what", EDITS)
def test_whatever_reads_what_was_changed_says_so(what: str, home: Path, out: Path) -> None:
    edit, commands = EDITS[what]
    name = edit(out)
    for command in commands:
        if command == "mlflow":
            with pytest.raises(InputError, match=name):
                rw.open_run(out).log_to_mlflow(f"sqlite:///{out.parent / 'm.db'}")
            continue
        said = call(*words_of(command, out, home / "whole"), code=2)
        assert name in said, (command, said)
        assert "\n" not in said.strip(), (command, said)
    assert name in call("verify", out, code=1)


@pytest.mark.parametrize("what", ["readouts", "swapped", "table", "manifest", "verdict", "record"])
def test_the_viewer_has_a_page_that_says_so(what: str, out: Path) -> None:
    client, own = TestClient(make_app(out.parent), base_url="http://localhost:8723"), run_id("own")
    table = f"/run/{own}/table/classification"
    images = f"/run/{own}/images?table=classification&row=2"
    assert client.get(table).status_code == client.get(images).status_code == 200
    name = EDITS[what][0](out)
    page = {"table": table, "verdict": f"/run/{own}", "record": f"/run/{own}"}.get(what, images)
    pages = [client.get(page.replace("row=2", f"row={row}")).text for row in (range(12) if page == images else [0])]
    assert any(name in text and ("changed" in text or "damaged" in text) for text in pages)


@pytest.mark.parametrize("what", ["report.html", "tables/classification.csv"])
def test_the_viewer_hands_out_no_file_that_was_changed(what: str, out: Path) -> None:
    client, own = TestClient(make_app(out.parent), base_url="http://localhost:8723"), run_id("own")
    assert client.get(f"/run/{own}/file/{what}").status_code == 200
    (out / what).write_text("all is well")
    answer = client.get(f"/run/{own}/file/{what}")
    assert answer.status_code == 404
    assert "was changed" in answer.text


def test_two_cases_that_were_mixed_up_are_made_again(home: Path, out: Path) -> None:
    """By the folder of a finished run, and of one that was stopped before its record was written."""
    for record in (True, False):
        swap_cases(out)
        if not record:
            (out / "run.json").unlink()
        go_on("whole", out)
        assert contents(out) == contents(home / "whole")
        assert rw.open_run(out).verify() == []


def test_parts_that_were_mixed_up_before_their_case_was_finished_are_made_again(home: Path, out: Path) -> None:
    for case in cases(out):
        shas = manifests.named_parts(case)
        for name in shas:
            manifests.write_receipt(case / name, node=manifests.own_node(case))
        (case / "manifest.json").unlink()
    (out / "run.json").unlink()
    swap_cases(out)
    go_on("whole", out)
    assert contents(out) == contents(home / "whole")


def test_a_case_of_another_study_is_never_taken_for_its_own(out: Path) -> None:
    none, noise = cases(out)
    node = json.loads((none / "manifest.json").read_text())["case"]
    assert readouts.is_finished(none, node, 1)
    assert not readouts.is_finished(noise, node, 1)
    assert not readouts.is_finished(none, node, 2)
    assert readouts.read_case(none, node).ids
    with pytest.raises(InputError, match=r"noise.*manifest.json is damaged \(it is that of another case"):
        readouts.read_case(noise, node)
    with pytest.raises(InputError, match="it is that of another case"):
        readouts.read_columns(noise, node, "label")


def test_two_artifacts_that_were_mixed_up_are_refused_and_made_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    out = tmp_path / "run"
    shutil.copytree(home / "fitted", out)
    one, other = sorted((out / "artifacts").iterdir())[:2]
    swap(one, other)
    assert "manifest.json" in call("verify", out, code=1)
    assert "manifest.json was changed" in call("report", out, code=2)
    go_on("fitted", out)
    assert contents(out) == contents(home / "fitted")
    assert rw.open_run(out).verify() == []


def test_every_manifest_names_its_node(home: Path) -> None:
    """As a case by its hash, as an artifact by the digest of its recipe: the folder has the same name."""
    folders = [path.parent for name in ("whole", "fitted") for path in (home / name).glob("*/*/manifest.json")]
    assert {path.parent.name for path in folders} == {"readouts", "artifacts"}
    for folder in folders:
        assert manifests.read_manifest(folder, manifests.own_node(folder))[1]
        with pytest.raises(DamagedFile, match="that of another"):
            manifests.read_manifest(folder, "0" * 64)


def test_bytes_are_hashed_and_parsed_from_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is replaced at any moment is either the one that is expected, or an error."""
    path, good, bad = tmp_path / "t.parquet", tmp_path / "good", tmp_path / "bad"
    pq.write_table(pa.table({"value": [1.0]}), good)
    pq.write_table(pa.table({"value": [2.0]}), bad)
    sha, reads = digest_file(good), 0
    for most in (checked.MOST_IN_MEMORY, 0):
        monkeypatch.setattr(checked, "MOST_IN_MEMORY", most)
        for moment in range(12):
            shutil.copy(good, path)
            calls = iter(range(1000))

            def at(original: Callable[..., Any], moment: int = moment, calls: Any = calls) -> Callable[..., Any]:
                def instead(*given: Any, **options: Any) -> Any:
                    if next(calls) == moment:
                        shutil.copy(bad, tmp_path / "new")
                        (tmp_path / "new").replace(path)
                    return original(*given, **options)

                return instead

            with monkeypatch.context() as patch:
                patch.setattr(checked, "stamp_of", at(checked.stamp_of))
                patch.setattr(pq, "read_schema", at(pq.read_schema))
                patch.setattr(pq, "ParquetFile", at(pq.ParquetFile))
                try:
                    assert parquet_table(path, sha=sha)["value"].to_pylist() == [1.0]
                    reads += 1
                except DamagedFile as error:
                    assert "was changed" in str(error)  # noqa: PT017
    assert reads


def test_a_file_of_known_hash_that_is_written_to_while_it_is_read_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place, between its stamp and its content: what was known of it is no longer true of what was read."""
    path, original, spoiled = tmp_path / "t", checked.stamp_of, list[Path]()
    path.write_bytes(b"good")
    sha = digest_file(path)

    def spoil_after(file: Any) -> checked.Stamp:
        stamp = original(file)
        if not spoiled:
            spoiled.append(path)
            path.write_bytes(b"evil")
        return stamp

    with checked.checked(path, sha) as content:
        assert content == b"good"
    monkeypatch.setattr(checked, "stamp_of", spoil_after)
    with pytest.raises(DamagedFile, match="was changed"), checked.checked(path, sha) as content:
        pass


def test_a_file_that_is_read_by_key_is_hashed_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, hashed = tmp_path / "t.parquet", list[int]()
    pq.write_table(pa.table({"a": range(1000), "b": range(1000)}), path)
    sha = digest_file(path)
    original = checked.sha256
    monkeypatch.setattr(checked, "sha256", lambda content: hashed.append(len(content)) or original(content))
    for name in ("a", "b", "a"):
        assert parquet_table(path, [name], sha=sha).num_rows == 1000
    assert len(hashed) == 1
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=times)  # the size and the time of the last write are what they were
    with pytest.raises(DamagedFile, match="was changed"):
        parquet_table(path, ["a"], sha=sha)
    assert len(hashed) == 2


def test_a_part_that_is_changed_while_the_run_goes_on_is_not_blessed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with its receipt: who wrote a part knows its hash."""
    monkeypatch.chdir(home)
    out, original = tmp_path / "run", readouts.write_part

    def spoiled(folder: Path, chunk: int, *given: Any) -> str:
        sha = original(folder, chunk, *given)
        if folder.name.startswith("noise") and chunk == 0:
            part = readouts.part_path(folder, chunk)
            rewrite(part, all_right)
            manifests.receipt_path(part).write_text(digest_file(part))
        return sha

    with monkeypatch.context() as patch:
        patch.setattr(readouts, "write_part", spoiled)
        said = go_on("whole", out, code=2)
    assert "part-00000.parquet was changed" in said
    go_on("whole", out)
    assert contents(out) == contents(home / "whole")


TELLS = """
import json, os, sys
from pathlib import Path

def answer(images):
    own = Path("/proc/self/fd")
    files = []
    for entry in os.listdir(own):
        try:
            files.append(os.readlink(own / entry))
        except OSError:
            pass
    told = {"arguments": sys.argv, "environment": dict(os.environ), "cwd": os.getcwd(), "files": files}
    told["command"] = Path("/proc/self/cmdline").read_bytes().decode().split("\\0")
    Path(__file__).with_name("told.json").write_text(json.dumps(told))
    import numpy as np
    light = np.asarray(images, np.float64).reshape(len(images), -1).mean(axis=1) / 255
    return np.stack([1 - light, light], axis=1).astype(np.float32)
"""


def test_the_process_of_an_isolated_model_is_told_no_path_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    draw(model)
    (model / "m.py").write_text(TELLS)
    (model / "s.yaml").write_text(yaml.safe_dump(STUDY | {"models": {"m": {**MODEL, "isolate": True}}}))
    monkeypatch.chdir(model)
    out = tmp_path / "the-run"
    call("run", "s.yaml", "--trust", "--accept-chance", "--out", out, "--workers", 1)
    told = (model / "told.json").read_text()
    assert json.loads(told)["files"]
    assert "the-run" not in told


def test_a_run_of_the_first_schema_is_checked_as_it_names_its_files(tmp_path: Path) -> None:
    golden = Path(__file__).parent / "golden" / "schema1"
    for name, pattern in (("dependability", "readouts/*/*/part-*"), ("od_test", "representations/*/rows.npz")):
        out = tmp_path / name
        shutil.copytree(golden / name, out)
        tables_of(out)
        part = max(out.glob(pattern))
        part.write_bytes(part.read_bytes() + b" ")
        with pytest.raises(InputError, match=f"{part.name} was changed"):
            tables_of(out)


def tables_of(out: Path) -> None:
    """Compute all tables of a run anew."""
    run = rw.open_run(out)
    for evidence in load_evidence(run.folder, run.record).values():
        evidence.tables()


def test_a_folder_that_holds_another_artifact_is_refused(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "fitted", tmp_path / "run")
    one, other = sorted((tmp_path / "run" / "artifacts").iterdir())[:2]
    swap(one, other)
    folder = RunFolder(tmp_path / "run")
    for path in (one, other):
        with pytest.raises(DamagedFile, match="another artifact"):
            find_artifact(folder, path.name, {})
        with pytest.raises(DamagedFile, match="another artifact"):
            read_artifact(path)
