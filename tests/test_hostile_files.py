"""Hostile files: tables, networks, pictures and archives that lie about what they hold, and runs of somebody else."""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

import roadworthy as rw
from commands import call_main, check_sentence, snapshot
from fuzzing.formats import parquet_bytes, zipped
from records import record_anew
from roadworthy.api import no_progress
from roadworthy.core.errors import InputError
from roadworthy.core.parquet import parquet_table
from roadworthy.data import open_dataset
from roadworthy.data.curation import curate
from roadworthy.data.curation.settings import CurationSettings
from roadworthy.models import OnnxModel, StoredPredictions
from roadworthy.monitors.saving import read_monitor
from roadworthy.monitors.third_party import _StoredScores
from samples import arrays, fill, network, study
from test_curation_formats import VOC_OBJECT, coco, voc, yolo
from test_hostile import at_most

MEBIBYTES = 2**20


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which at most 16 MiB may be held at once."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr("roadworthy.core.validation.MEMORY_SHARE", total // (16 * MEBIBYTES))


# Parquet


def zeros(rows: int = 10**7) -> pa.Table:
    """Numbers that take 80 MB, and a few bytes in a file."""
    return pa.table({"id": pa.array(np.zeros(rows, np.int64))})


def long_text() -> pa.Table:
    """A text of 1 MB in each of 1,000 rows: a file holds it once."""
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, np.int32)), ["x" * MEBIBYTES])
    return pa.table({"id": text, "path": ["x"] * 1000, "label": ["x"] * 1000})


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("codec", ["zstd", "snappy"])
@pytest.mark.parametrize("bomb", [zeros, long_text])
def test_parquet_that_unpacks_to_more_than_the_memory_is_refused(
    bomb: Callable[[], pa.Table], codec: str, tmp_path: Path
) -> None:
    path = tmp_path / "bomb.parquet"
    pq.write_table(bomb(), path, compression=codec, store_schema=False)
    assert path.stat().st_size < 2 * MEBIBYTES
    pa.default_memory_pool().release_unused()
    before = pa.default_memory_pool().max_memory()
    for read in (parquet_table, StoredPredictions, open_dataset, _StoredScores):
        with pytest.raises(InputError, match=r"GiB of memory, more than this machine|no column"):
            read(path)
    assert pa.default_memory_pool().max_memory() - before < 64 * MEBIBYTES


RIGHT = {"id": [str(row) for row in range(12)], "red": [0.5] * 12, "green": [0.25] * 12, "blue": [0.25] * 12}
LYING = {
    "ids are lists": (pa.table({**RIGHT, "id": [["a"]] * 12}), "a stimulus and an id are texts"),
    "ids are structures": (pa.table({**RIGHT, "id": [{"a": 1}] * 12}), "a stimulus and an id are texts"),
    "numbers are lists": (pa.table({**RIGHT, "red": [[0.5]] * 12}), "'red' holds no numbers"),
    "numbers are texts": (pa.table({**RIGHT, "red": ["x"] * 12}), "'red' holds no numbers"),
    "NaN": (pa.table({**RIGHT, "red": [float("nan")] * 12}), "NaN, infinity or gaps in 12 of 12 rows"),
    "infinity": (pa.table({**RIGHT, "red": [float("inf")] * 12}), "NaN, infinity or gaps in 12 of 12 rows"),
    "negative": (pa.table({**RIGHT, "red": [-0.5, *RIGHT["red"][1:]]}), "negative or not summing to 1 are 1 of 12"),
    "NUL": (pa.table({**RIGHT, "a\0b": [0.5] * 12}), "holds a NUL character"),
    "no ids": (pa.table({**RIGHT, "id": [None] * 12}), "rows without id"),
}


@pytest.mark.parametrize("name", LYING)
def test_predictions_of_wrong_types_are_refused(name: str, tmp_path: Path) -> None:
    table, sentence = LYING[name]
    path = tmp_path / "p.parquet"
    path.write_bytes(parquet_bytes(table))
    with pytest.raises(InputError, match=sentence):
        StoredPredictions(path)


def test_parquet_that_is_encrypted_cut_or_empty_is_refused(tmp_path: Path) -> None:
    whole = parquet_bytes(pa.table(RIGHT))
    for content in (whole[:-4] + b"PARE", b"", whole[:40], whole[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1"):
        path = tmp_path / "p.parquet"
        path.write_bytes(content)
        for read in (StoredPredictions, open_dataset, _StoredScores):
            with pytest.raises(InputError, match=r"p\.parquet"):
                read(path)


def test_a_million_duplicate_rows_are_one_sentence(tmp_path: Path) -> None:
    rows = 10**6
    repeated = {name: pa.array([column[0]]).take(pa.array(np.zeros(rows, np.int32))) for name, column in RIGHT.items()}
    pq.write_table(pa.table(repeated), tmp_path / "p.parquet")
    with (
        at_most(30),
        pytest.raises(InputError, match=r"answers 999999 images more than once: \(, 0\), \(, 0\)") as raised,
    ):
        StoredPredictions(tmp_path / "p.parquet")
    assert len(str(raised.value)) < 300


def test_ids_that_look_the_same_stay_apart(tmp_path: Path) -> None:
    """é as one character and as e with an accent: two images, two answers, none for the other."""
    np.savez(tmp_path / "d.npz", **arrays(id=np.array(["\u00e9", "e\u0301", *map(str, range(10))])))
    ids = ["\u00e9", *map(str, range(10))]
    path = tmp_path / "p.parquet"
    path.write_bytes(parquet_bytes(pa.table({**{k: v[:11] for k, v in RIGHT.items()}, "id": ids})))
    with pytest.raises(InputError, match="lacks 1 of 12 answers"):
        StoredPredictions(path).predict(open_dataset(tmp_path / "d.npz").batch(slice(0, 12)))


WIDE = {
    "predictions": (StoredPredictions, "id," + ",".join(f"c{n}" for n in range(60_000)) + "\n", "60,001 columns"),
    "manifest": (open_dataset, "path,label," + ",".join(f"c{n}" for n in range(20_000)) + "\n", "20,002 columns"),
    "open quote": (StoredPredictions, 'id,a,b\n0,"0.5' + "x,1\n" * 10**5, r"cannot read .*p\.csv"),
    "open quote in a manifest": (open_dataset, 'path,label\n0,"0.5' + "x,1\n" * 10**5, "not a valid UTF-8 CSV file"),
}


@pytest.mark.parametrize("name", WIDE)
def test_csv_without_end_is_refused(name: str, tmp_path: Path) -> None:
    read, text, sentence = WIDE[name]
    (tmp_path / "p.csv").write_text(text)
    with at_most(20), pytest.raises(InputError, match=sentence):
        read(tmp_path / "p.csv")


# ONNX


def external(location: str, inner: bool = False) -> onnx.ModelProto:
    """A model whose weights, or a tensor in the body of a branch, lie in another file."""
    model = network()
    tensor = numpy_helper.from_array(np.ones((2, 2), np.float32), "elsewhere")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    if not inner:
        model.graph.initializer.append(tensor)
        return model
    out = helper.make_tensor_value_info("branch", TensorProto.FLOAT, [2, 2])
    body = helper.make_graph([helper.make_node("Identity", ["elsewhere"], ["branch"])], "body", [], [out], [tensor])
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    model.graph.node.append(helper.make_node("If", ["yes"], ["chosen"], then_branch=body, else_branch=body))
    return model


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "link", "folder/../../secret"])
def test_onnx_weights_outside_are_refused_however_deep(location: str, inner: bool, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(16))
    home = tmp_path / "home"
    (home / "folder").mkdir(parents=True)
    (home / "link").symlink_to(tmp_path / "secret")
    (home / "m.onnx").write_bytes(external(location, inner).SerializeToString())
    with pytest.raises(InputError, match="asks for weights outside its folder"):
        OnnxModel(home / "m.onnx")


def endless() -> onnx.ModelProto:
    """A model with a loop of 2^60 rounds before its answer."""
    model = network()
    values = [helper.make_tensor_value_info(name, kind, []) for name, kind in (("i", 7), ("go", 9), ("old", 1))]
    outputs = [helper.make_tensor_value_info(name, kind, []) for name, kind in (("on", 9), ("new", 1))]
    steps = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["old", "one"], ["new"])]
    body = helper.make_graph(steps, "body", values, outputs, [numpy_helper.from_array(np.float32(1), "one")])
    for name, value in (("rounds", np.int64(2**60)), ("yes", np.array(True)), ("nothing", np.float32(0))):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    model.graph.node.insert(0, helper.make_node("Loop", ["rounds", "yes", "nothing"], ["counted"], body=body))
    model.graph.node[-1].input[0] = "later"
    model.graph.node.insert(3, helper.make_node("Add", ["logits", "counted"], ["later"]))
    return model


def circular() -> onnx.ModelProto:
    model = network()
    del model.graph.node[-1]
    model.graph.node.append(helper.make_node("Identity", ["a"], ["probabilities"]))
    model.graph.node.append(helper.make_node("Identity", ["probabilities"], ["a"]))
    return model


def foreign() -> onnx.ModelProto:
    model = network()
    model.graph.node[-1].op_type, model.graph.node[-1].domain = "Unpickle", "my.ops"
    model.opset_import.append(helper.make_opsetid("my.ops", 1))
    return model


def huge() -> onnx.ModelProto:
    model = network()
    model.graph.initializer[0].dims[0] = 2**60
    return model


def crowded() -> onnx.ModelProto:
    model = network()
    node = helper.make_node("Identity", ["probabilities"], ["x"])
    model.graph.node.extend([node] * 200_001)
    return model


GRAPHS: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "loop without end": (endless, "gave no answer to probe images in 1 s: it may have no end"),
    "circle": (circular, "ONNX Runtime cannot load"),
    "operators of others": (foreign, "ONNX Runtime cannot load .*my.ops"),
    "weights that are not there": (huge, "ONNX Runtime cannot load"),
    "too many nodes": (crowded, "has 200,004 nodes; at most 200,000"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_hostile_graph_is_refused_in_time(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, sentence = GRAPHS[name]
    monkeypatch.setattr("roadworthy.models.onnx.PROBE_SECONDS", 1.0)
    (tmp_path / "m.onnx").write_bytes(make().SerializeToString())
    with at_most(30), pytest.raises(InputError, match=sentence):
        OnnxModel(tmp_path / "m.onnx")


def test_a_model_that_is_a_folder_or_a_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.onnx").mkdir()
    os.mkfifo(tmp_path / "pipe.onnx")
    for name in ("folder.onnx", "pipe.onnx"):
        with at_most(20), pytest.raises(InputError, match="there is no ONNX file"):
            OnnxModel(tmp_path / name)


# pictures and archives


@pytest.mark.usefixtures("little_memory")
def test_an_archive_that_unpacks_to_more_than_the_memory_is_refused(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.save(header, np.zeros(1, np.uint8))
    bomb = zipped({"images.npy": header.getvalue() + bytes(32 * MEBIBYTES)}, zipfile.ZIP_DEFLATED)
    (tmp_path / "d.npz").write_bytes(bomb)
    assert len(bomb) < MEBIBYTES
    with pytest.raises(InputError, match="GiB of memory"):
        open_dataset(tmp_path / "d.npz")
    record = {"format": 1, "monitor": "msp", "parameters": {}, "built_from": []}
    from roadworthy.core.hashing import digest_file

    shutil.copy(tmp_path / "d.npz", tmp_path / "monitor.npz")
    (tmp_path / "monitor.json").write_text(json.dumps({**record, "arrays": digest_file(tmp_path / "monitor.npz")}))
    with pytest.raises(InputError, match="GiB of memory"):
        read_monitor(tmp_path)


def test_symlink_circles_in_data_and_runs_end(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    (tmp_path / "signs" / "red" / "above").symlink_to(tmp_path / "signs")
    (tmp_path / "signs" / "red" / "self.png").symlink_to(tmp_path / "signs" / "red" / "self.png")
    with at_most(20), pytest.raises(InputError, match=r"1 of 13 images .* Too many levels of symbolic links"):
        open_dataset(tmp_path / "signs")
    with at_most(20):
        assert len(open_dataset(tmp_path / "signs", on_bad_image="skip")) == 12
    for number in range(40):
        level = tmp_path / "many" / f"level{number}"
        level.mkdir(parents=True)
        for name in ("a", "b"):
            (level / name).symlink_to(tmp_path / "many" / f"level{number + 1}")
    monkeypatch.setattr("roadworthy.data.folder.MOST_FOLDERS", 2000)
    with at_most(20), pytest.raises(InputError, match=r"more than 2,000 folders .* do links lead to one in many ways"):
        open_dataset(tmp_path / "many")
    run = tmp_path / "run"
    shutil.copytree(finished / "run", run)
    (run / "tables" / "circle").symlink_to(run)
    (run / "self").symlink_to(run / "self")
    with at_most(20):
        rw.open_run(run).verify()


# annotations

BILLION = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]><annotation>&b;</annotation>'
)
ANNOTATIONS = {
    "entities": ("voc", lambda root: voc(root, VOC_OBJECT), "Annotations/x.xml", BILLION, "a DOCTYPE is not allowed"),
    "deep": ("coco", coco, "annotations/instances_val2017.json", '{"images": ' + "[" * 10**5, "nested too deeply"),
    "digits": (
        *("coco", coco, "annotations/instances_val2017.json"),
        *('{"images": [{"id": ' + "9" * 10**6 + "}]}", "too many digits"),
    ),
    "far class": (
        "yolo",
        lambda root: yolo(root, "1 0.5 0.5 0.2 0.2"),
        "labels/val/x.txt",
        "999999999 0.5 0.5 0.1 0.1",
        "x.txt",
    ),
    "infinite box": (
        "yolo",
        lambda root: yolo(root, "1 0.5 0.5 0.2 0.2"),
        "labels/val/x.txt",
        "1 0.5 0.5 1e999 0.1",
        "x.txt",
    ),
}


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_hostile_annotations_are_one_sentence(name: str, tmp_path: Path) -> None:
    kind, build, file, text, sentence = ANNOTATIONS[name]
    build(tmp_path)
    (tmp_path / file).write_text(text)
    with at_most(20), pytest.raises(InputError, match=sentence):
        curate(CurationSettings(format=kind, root=str(tmp_path)), None, dry_run=True)


# runs of somebody else


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = fill(tmp_path_factory.mktemp("finished"))
    rw.run_study(folder / "study.yaml", out=folder / "run", progress=no_progress)
    return folder


def test_what_the_study_of_a_stranger_s_run_names_is_neither_read_nor_run(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Data, models and criteria that are pipes, which would be waited for, and code that would leave a mark."""
    shutil.copytree(finished / "run", tmp_path / "run")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "evil.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'mark')!r}).touch()\n")
    pipe = str(tmp_path / "pipe")
    hostile = study(data={"test": pipe}, models={"m": pipe}, criteria=pipe, plugins=[str(tmp_path / "evil.py")])
    hostile["monitors"] = {"x": {"monitor": "callable", "function": f"{tmp_path / 'evil.py'}:score"}}
    (tmp_path / "run" / "study.yaml").write_text(yaml.safe_dump(hostile))
    monkeypatch.chdir(tmp_path)
    assert call_main("verify run", monkeypatch, capfd)[0] == 1
    record_anew(tmp_path / "run")
    for words, codes in (
        ("verify run", (0, 1)),
        ("report run", (0,)),
        ("verdict run", (0, 1, 3)),
        ("compare run run", (0,)),
    ):
        with at_most(30):
            code, _, said = call_main(words, monkeypatch, capfd)
        assert code in codes, (words, said)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    record["plugins"] = [{"plugin": str(tmp_path / "evil.py"), "files": {}}]
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    record_anew(tmp_path / "run")
    for words in ("report run", "verdict run", "compare run run"):
        code, _, said = call_main(words, monkeypatch, capfd)
        assert code == 2
        check_sentence(said, "--trust")
    assert not (tmp_path / "mark").exists()


WRONG: dict[str, Callable[[pa.Table], pa.Table]] = {
    "texts": lambda table: table.set_column(table.column_names.index("value"), "value", pa.array(["x"] * len(table))),
    "lists": lambda table: table.set_column(table.column_names.index("value"), "value", pa.array([[1.0]] * len(table))),
    "no rows": lambda table: table.slice(0, 0),
    "structures": lambda table: table.set_column(0, table.column_names[0], pa.array([{"a": 1}] * len(table))),
}


@pytest.mark.parametrize("name", WRONG)
def test_tables_that_no_run_could_have_written_are_one_sentence(
    name: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished / "run", tmp_path / "run")
    for path in (tmp_path / "run" / "tables").glob("classification*.parquet"):
        table = pq.read_table(path)
        if "value" in table.column_names:
            path.write_bytes(parquet_bytes(WRONG[name](table)))
    monkeypatch.chdir(tmp_path)
    before = snapshot(tmp_path)
    code, out, said = call_main("verify run", monkeypatch, capfd)
    assert (code, said) == (1, "")
    assert "was changed" in out
    code, out, said = call_main("report run", monkeypatch, capfd)
    if code:
        assert code == 2
        check_sentence(said, "run")
        assert snapshot(tmp_path) == before or set(snapshot(tmp_path)) - set(before) <= {Path("run/.lock"), "run/.lock"}


NAMES = ["red\x1b[2J\x1b[31m", "green\nverdict: pass", "\u202eblue"]


def test_names_cannot_write_to_the_terminal_or_look_like_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path)
    np.savez(
        tmp_path / "data.npz", **arrays(class_names=np.array(NAMES), id=np.array([f"{n}\x1b[2J" for n in range(12)]))
    )
    monkeypatch.chdir(tmp_path)
    code, out, said = call_main("run study.yaml --out run", monkeypatch, capfd)
    assert code == 0, said
    lines = out + said
    for words in ("verify run", "report run", "verdict run", "compare run run --all"):
        lines += "".join(map(str, call_main(words, monkeypatch, capfd)[1:]))
    assert not [character for character in lines if not character.isprintable() and character != "\n"]
    with pytest.raises(InputError) as raised:
        open_dataset(tmp_path / ("x" * 10_000))
    assert len(str(raised.value)) <= 2000
    with pytest.raises(InputError) as raised:
        open_dataset({"npz": str(tmp_path / "data.npz"), "only": ["\x1b[31m" + "y" * 10**6]})
    assert len(str(raised.value)) <= 2100
    assert str(raised.value).isprintable()
