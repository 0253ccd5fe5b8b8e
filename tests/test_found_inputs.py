"""Inputs that fuzzing found, each as small as it could be made: what broke once must stay one sentence."""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import roadworthy as rw
from fuzzing.formats import parquet_bytes
from fuzzing.law import lawful
from fuzzing.network_readers import valid_monitor
from fuzzing.run_readers import as_written
from records import record_anew
from roadworthy.api import Run, no_progress, run_study
from roadworthy.comparing import compare_runs
from roadworthy.core.errors import InputError, one_line
from roadworthy.core.hashing import digest_file, resealed
from roadworthy.core.record import PluginRecord
from roadworthy.data import open_dataset
from roadworthy.data.curation import curate
from roadworthy.data.curation.selection import read_corrected
from roadworthy.data.curation.settings import CurationSettings
from roadworthy.models import OnnxModel, StoredPredictions, load_model
from roadworthy.monitors.guard import load_guard
from roadworthy.plugins import name_plugins, plugin_problems
from roadworthy.protocols.monitoring.standalone import evaluate_decisions
from roadworthy.study import load_study
from samples import MANIFEST, arrays, fill, network, study
from test_curation_readers import cuboid, nuimages_tables, write_cadc, write_nuimages


def put(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def huge_box_csv(folder: Path) -> None:
    rows = [f"{row},0,0,4,1e300" for row in MANIFEST.splitlines()[1:]]
    open_dataset(put(folder / "m.csv", "\n".join(["path,label,x0,y0,x1,y1", *rows])))


def huge_box_npz(folder: Path) -> None:
    np.savez(folder / "b.npz", **arrays(boxes=np.tile([-3e38, 0, 3e38, 1e300], (12, 1))))
    open_dataset(folder / "b.npz")


def no_characters(folder: Path) -> None:
    ids = np.array([f"i{n}" for n in range(12)])
    ids.view(np.uint32)[0] = 2**31 - 1
    np.savez(folder / "c.npz", **arrays(id=ids))
    open_dataset(folder / "c.npz")


def monitors_that_are_a_number(folder: Path) -> None:
    load_study(put(folder / "s.yaml", yaml.safe_dump(study(monitors=1.5))))


def control_codes_in_metadata(folder: Path) -> None:
    whole = parquet_bytes(pa.table({"path": ["a"], "label": ["b"]}))
    open_dataset(put(folder / "m.parquet", whole[:-20] + bytes(range(12)) + whole[-8:]))


def two_columns_of_one_name(folder: Path) -> None:
    table = pa.table([pa.array(["a"]), pa.array([1]), pa.array(["c"])], names=["path", "path", "label"])
    open_dataset(put(folder / "m.parquet", parquet_bytes(table)))


def two_columns_of_one_name_beside_images(folder: Path) -> None:
    table = pa.table([pa.array([b"x"]), pa.array([1]), pa.array([2])], names=["image", "label", "label"])
    open_dataset({"parquet": str(put(folder / "m.parquet", parquet_bytes(table)))})


def decisions_with_maps(folder: Path) -> None:
    maps = pa.array([[("k", 1.0)]], pa.map_(pa.string(), pa.float64()))
    evaluate_decisions(put(folder / "t.parquet", parquet_bytes(pa.table({"id": ["a"], "model": maps}))))


def decisions_with_lists(folder: Path) -> None:
    columns = {name: ["a"] for name in ("id", "label", "prediction")} | {
        "ood": [0],
        "reject": [0],
        "group": [["a", "b"]],
    }
    evaluate_decisions(put(folder / "t.parquet", parquet_bytes(pa.table(columns))))


def decisions_with_two_columns_of_one_name(folder: Path) -> None:
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["id", "id"])
    evaluate_decisions(put(folder / "t.parquet", parquet_bytes(table)))


def column_with_nul(folder: Path) -> None:
    StoredPredictions(put(folder / "p.parquet", parquet_bytes(pa.table({"id": ["a"], "b\0c": [0.5], "d": [0.5]}))))


def type_that_does_not_exist(folder: Path) -> None:
    model = network()
    model.graph.input[0].type.tensor_type.elem_type = 32
    OnnxModel(put(folder / "o.onnx", model.SerializeToString()))


def torch_archive_that_is_cut(folder: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x/data.pkl", b"")
    content = bytearray(buffer.getvalue())
    content[content.rindex(b"PK\x01\x02")] = 0
    put(folder / "w.pt", bytes(content))
    load_model({"torch": "w.pt", "arch": "own.py:net"}, base=folder, trust=True)


def calibration_too_large(folder: Path) -> None:
    write_cadc(folder, [{"cuboids": [cuboid()]}])
    file = folder / "2018_03_06" / "calib" / "extrinsics.yaml"
    matrix = yaml.safe_load(file.read_text())
    matrix["T_LIDAR_CAM00"][0][0] = 10**400
    file.write_text(yaml.safe_dump(matrix))
    curate(CurationSettings(format="cadc", root=str(folder)), None, dry_run=True)


def calibration_with_aliases(folder: Path) -> None:
    write_cadc(folder, [{"cuboids": [cuboid()]}])
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
    put(folder / "2018_03_06" / "calib" / "extrinsics.yaml", "\n".join([*lines, "T_LIDAR_CAM00: *i"]))
    curate(CurationSettings(format="cadc", root=str(folder)), None, dry_run=True)


def nuimages_with(folder: Path, table: str, **changes: Any) -> None:
    tables = nuimages_tables()
    tables[table][0].update(changes)
    write_nuimages(folder, tables)
    curate(CurationSettings(format="nuimages", root=str(folder)), None, dry_run=True)


def cuboid_too_far(folder: Path) -> None:
    write_cadc(folder, [{"cuboids": [cuboid(position={"x": 1e308, "y": 1e308, "z": 0.0})]}])
    curate(CurationSettings(format="cadc", root=str(folder)), None, dry_run=True)


def plugin_of_a_long_name(folder: Path) -> None:
    name_plugins([PluginRecord(plugin="9" * 400)], folder, (), "run")


def unreadable_model(folder: Path) -> None:
    load_model({"onnx": "/proc/self/mem"}, base=folder)


def unreadable_file_of_a_plugin(folder: Path) -> None:
    put(folder / "my.py", "")
    record = PluginRecord(plugin="my.py", files={"/proc/self/mem": "0" * 64})
    raise plugin_problems(name_plugins([record], folder, (), "run"))[0]


def decisions_that_are_no_unicode(folder: Path) -> None:
    columns = {name: pa.array(["a", "b"]) for name in ("id", "prediction")} | {
        "label": pa.array([b"\xff\xfe", b"b"]).view(pa.string()),
        "ood": pa.array([0, 1]),
        "reject": pa.array([0, 1]),
    }
    evaluate_decisions(put(folder / "t.parquet", parquet_bytes(pa.table(columns))))


def torch_archive_on_many_disks(folder: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x/data.pkl", b"")
    end = buffer.getvalue().rindex(b"PK\x05\x06")
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 9, 0, 9)
    put(folder / "w.pt", buffer.getvalue()[:end] + locator + buffer.getvalue()[end:])
    load_model({"torch": "w.pt", "arch": "own.py:net"}, base=folder, trust=True)


FOUND: dict[str, tuple[Callable[[Path], object], str]] = {
    "a box too large for its type, csv": (huge_box_csv, "boxes have a value missing or infinite"),
    "a box too large for its type, npz": (huge_box_npz, "boxes have a value missing or infinite"),
    "texts of what are no characters": (no_characters, "'id' holds what are no characters"),
    "monitors that are a number": (monitors_that_are_a_number, "monitors"),
    "control codes in a message": (control_codes_in_metadata, "not a readable Parquet file"),
    "two columns of one name": (two_columns_of_one_name, "two columns of one name"),
    "two columns of one name beside images": (two_columns_of_one_name_beside_images, "two columns of one name"),
    "maps in a table of decisions": (decisions_with_maps, "table of decisions"),
    "lists in a table of decisions": (decisions_with_lists, "holds lists or records"),
    "two columns of one name in decisions": (decisions_with_two_columns_of_one_name, "two columns named 'id'"),
    "a NUL character in a column": (column_with_nul, "NUL character"),
    "an ONNX type that does not exist": (type_that_does_not_exist, "input of type 32"),
    "a torch archive that is cut": (torch_archive_that_is_cut, "not a torch file, or it is corrupt"),
    "a number of 400 digits in a calibration": (calibration_too_large, "too large"),
    "aliases in a calibration": (calibration_with_aliases, "not valid YAML"),
    "a file name of 400 characters": (
        lambda folder: nuimages_with(folder, "sample_data", filename="9" * 400),
        "File name too long",
    ),
    "a quaternion too large": (
        lambda folder: nuimages_with(folder, "calibrated_sensor", rotation=[1e308, 1e308, 0, 0]),
        "finite numbers",
    ),
    "a cuboid too far": (cuboid_too_far, "must not exceed"),
    "a plugin of a long name": (plugin_of_a_long_name, "File name too long"),
    "a model that cannot be read": (unreadable_model, "/proc/self/mem cannot be read: "),
    "a file of a plugin that cannot be read": (unreadable_file_of_a_plugin, "/proc/self/mem cannot be read: "),
    "a list of ids that cannot be read": (
        lambda folder: read_corrected(Path("/proc/self/mem")),
        "/proc/self/mem cannot be read: ",
    ),
    "a model of a long name": (
        lambda folder: load_model({"onnx": "9" * 400}, base=folder),
        "File name too long",
    ),
    "a whole disk as predictions": (
        lambda folder: load_model("/", base=folder),
        "holds more than 100,000 files|cannot be read: ",
    ),
    "a range that is no text": (
        lambda folder: load_model({"onnx": "model.onnx", "range": None}, base=folder),
        "cannot read the range None: use 0-1",
    ),
    "a range that is a list": (
        lambda folder: load_model({"onnx": "model.onnx", "range": [0, 1]}, base=folder),
        "range",
    ),
    "texts of decisions that are no Unicode": (decisions_that_are_no_unicode, "(?i)invalid utf"),
    "a torch archive on many disks": (torch_archive_on_many_disks, "not a torch file, or it is corrupt"),
    "a built-in picture larger than memory": (
        lambda folder: open_dataset({"builtin": "signs", "n": 14, "size": 16000}),
        "at most 4096x4096",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_fuzzing_found_stays_one_sentence(name: str, tmp_path: Path) -> None:
    if "torch" in name:
        pytest.importorskip("torch")
    read, sentence = FOUND[name]
    fill(tmp_path)

    def attempt() -> None:
        with pytest.raises(InputError, match=sentence) as raised:
            read(tmp_path)
        raise raised.value

    with lawful(writes=tmp_path) as refusals:
        attempt()
    assert len(refusals) == 1


@pytest.mark.parametrize(
    ("name", "key", "changes"),
    [
        ("guard.json", "threshold", {"threshold": 10**400}),
        ("monitor/monitor.json", "aim", {"prior": 0.5, "cost": []}),
    ],
    ids=["a threshold of 400 digits", "a cost that is a list"],
)
def test_records_of_a_guard_with_impossible_values_are_one_sentence(
    name: str, key: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    valid_monitor(tmp_path)
    guard = tmp_path / "guard"
    load_guard(guard, tmp_path / "model.onnx")
    content = json.loads((guard / name).read_text())
    content[key] = {**(content[key] or {}), **changes}
    (guard / name).write_text(json.dumps(content))
    for home in (guard / "monitor", guard):
        manifest = json.loads((home / "manifest.json").read_text())
        manifest["parts"] = {part: digest_file(home / part) for part in manifest["parts"]}
        (home / "manifest.json").write_bytes(as_written(manifest))
    with lawful() as refusals:
        load_guard(guard, tmp_path / "model.onnx")
    assert Path(name).name in str(refusals[0])


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = fill(tmp_path_factory.mktemp("stored"))
    return run_study(folder / "study.yaml", out=folder / "run", progress=no_progress).path


def test_readouts_that_lack_a_column_and_vouch_for_it_are_one_sentence(stored: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(stored, run)
    part = next(run.glob("readouts/*/part-*.parquet"))
    part.write_bytes(parquet_bytes(pq.read_table(part).drop_columns(["label"])))
    manifest = part.parent / "manifest.json"
    content = json.loads(manifest.read_text())
    content["parts"][part.name] = digest_file(part)
    manifest.write_bytes(as_written(content))
    record = json.loads((run / "run.json").read_text())
    record["files"][str(manifest.relative_to(run))] = digest_file(manifest)
    (run / "run.json").write_bytes(as_written(record))
    with pytest.raises(InputError, match=r"cannot be read \(KeyError: .*they were made up"):
        Run(run).verify()
    with pytest.raises(InputError, match=r"cannot be read \(KeyError: "):
        Run(run).verdict()
    with pytest.raises(InputError, match=r"run cannot be read \(KeyError: "):
        compare_runs([stored, run])


def test_a_verdict_that_is_gone_and_no_longer_named_is_missing(stored: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(stored, run)
    (run / "verdict.json").unlink()
    record = json.loads((run / "run.json").read_text())
    del record["files"]["verdict.json"]
    (run / "run.json").write_bytes(as_written(record))
    assert Run(run).verify() == ["verdict.json is missing"]


def test_more_images_than_a_picture_can_hold_are_one_sentence(stored: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(stored, run)
    path = run / "tables" / "classification_gallery.parquet"
    table = pq.read_table(path)
    images = pa.array([2**54] * len(table))
    path.write_bytes(parquet_bytes(table.set_column(table.column_names.index("images"), "images", images)))
    record = json.loads((run / "run.json").read_text())
    record["files"]["tables/classification_gallery.parquet"] = digest_file(path)
    (run / "run.json").write_bytes(as_written(record))
    with lawful(run) as refusals:
        Run(run).headline()
        Run(run).report()
    assert "cannot hold 18014398509481984 images" in str(refusals[0])


def test_a_defect_in_a_whole_run_is_not_blamed_on_its_files(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("roadworthy.report.render", broken)
    with pytest.raises(InputError, match=r"ZeroDivisionError: ours\); its files are as recorded.* please report it"):
        Run(stored).report()


def test_labels_in_readouts_that_are_no_numbers_are_one_sentence(stored: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(stored, run)
    part = next(run.glob("readouts/*/part-*.parquet"))
    table = pq.read_table(part)
    labels = pa.array([float("nan")] * len(table))
    part.write_bytes(parquet_bytes(table.set_column(table.column_names.index("label"), "label", labels)))
    manifest = part.with_name("manifest.json")
    own = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(resealed(own, {"parts": {part.name: digest_file(part)}})))
    record_anew(run)
    with lawful() as refusals:
        compare_runs([run, run], workers=1)
    assert "holds what is no number of a class" in str(refusals[0])


@pytest.mark.parametrize("length", [10, 1999, 2000, 2001, 4001, 10**6])
def test_a_message_is_one_printable_line_of_bounded_length(length: int) -> None:
    text = "begin " + "x\x1b" * length + " end"
    shown = one_line(text)
    assert shown.isprintable()
    assert shown.startswith("begin x\\x1b")
    assert shown.endswith(" end")
    assert len(shown) <= 5 * 2000
    plain = one_line("y" * length)
    assert len(plain) == min(length, 2000)


def test_code_that_nobody_trusts_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("a process was started"))
    for spec in ("builtin:signs", {"callable": "builtin:signs", "isolate": True, "num_classes": 2}):
        with pytest.raises(InputError, match="`trust=True`"):
            rw.load_model(spec, isolate="foreign") if isinstance(spec, str) else rw.load_model(spec)


def test_infinite_logits_have_no_probabilities_and_warn_of_nothing() -> None:
    from roadworthy.models.outputs import softmax

    with np.errstate(all="raise"):
        assert np.isnan(softmax(np.array([[np.inf, 0.0]]))).all()


def test_a_last_softmax_without_an_input_is_refused_in_one_sentence(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3, 8, 8])
    answer = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])
    graph = helper.make_graph([helper.make_node("Softmax", [], ["y"])], "g", [image], [answer])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    with pytest.raises(InputError):
        OnnxModel(tmp_path / "m.onnx")
