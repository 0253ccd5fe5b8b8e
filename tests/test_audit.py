"""Bundle and replay: the same bytes, what tampering is found by what, hostile archives, and honest ones elsewhere."""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import roadworthy as rw
from bundles import Change, edit_answer, edit_text, flip_byte, rebuilt
from commands import call, snapshot
from roadworthy.api import no_progress
from roadworthy.auditing import Replay, making, replaying
from roadworthy.auditing.outcome import Check
from roadworthy.auditing.rerun import Chunk, Rerun, Reruns, draw_chunks
from roadworthy.auditing.signing import is_signed_by, new_key, sign
from roadworthy.auditing.substituting import Substitutes, local_study
from roadworthy.auditing.tolerances import PROBABILITY, machine_differences, part_differences
from roadworthy.core.errors import InputError
from roadworthy.core.record import RunRecord
from roadworthy.study import parse_study
from tiny import save_onnx, study, write_npz

VERDICT = '"status": "pass"'


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two models with a verdict, its bundle (signed), and two pairs of keys."""
    folder = tmp_path_factory.mktemp("audit")
    save_onnx(folder / "worse.onnx", blur=0.3)
    content = study(
        folder,
        70,
        models={"tiny": {"onnx": str(folder / "tiny.onnx")}, "worse": {"onnx": str(folder / "worse.onnx")}},
        protocols={"classification": {"shifts": ["noise"], "levels": [1]}},
        criteria=[{"id": "ALL", "metric": "accuracy", "where": {"model": "tiny", "shift": "none"}, "at_least": 0.3}],
    )
    rw.run_study(content, out=folder / "run", progress=no_progress)
    for name in ("key.pem", "other.pem"):
        new_key(folder / name)
    rw.bundle_run(folder / "run", folder / "run.rwz", key=folder / "key.pem", progress=no_progress)
    return folder


@pytest.fixture(scope="module")
def bundle(home: Path) -> Path:
    return home / "run.rwz"


@pytest.fixture(scope="module")
def plain(bundle: Path) -> Path:
    """The same bundle as it is without a key."""
    target = bundle.with_name("plain.rwz")
    with zipfile.ZipFile(bundle) as signed, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for info in signed.infolist():
            if info.filename != "index.sig":
                archive.writestr(info, signed.read(info))
    return target


def replayed(bundle: Path, **options: Any) -> Replay:
    return rw.replay_bundle(bundle, progress=no_progress, **{"share": 0, "seed": 1, **options})


def names(folder: Path) -> set[str]:
    with zipfile.ZipFile(folder) as archive:
        return {*archive.namelist()}


def test_the_same_run_gives_the_same_bytes_and_is_left_as_it_was(home: Path, bundle: Path, tmp_path: Path) -> None:
    before = snapshot(home / "run")
    again = rw.bundle_run(home / "run", tmp_path / "again.rwz", key=home / "key.pem", progress=no_progress)
    assert again.path.read_bytes() == bundle.read_bytes()
    assert snapshot(home / "run") == before
    assert again.signed
    assert not again.left_out
    stored = {path.relative_to(home / "run").as_posix() for path in (home / "run").rglob("*") if path.is_file()}
    assert names(bundle) == {"index.json", "index.sig", *(f"run/{name}" for name in stored - {".lock"})}
    index = json.loads(zipfile.ZipFile(bundle).read("index.json"))
    record = json.loads((home / "run" / "run.json").read_text())
    assert index["environment"] == record["environment"]
    assert index["data"][""]["fingerprint"] == record["sources"][""]["data"]["fingerprint"]
    assert [*index["models"]["tiny"]["files"].values()] == [*record["sources"][""]["models"]["tiny"]["files"].values()]


def test_a_bundle_is_not_overwritten_and_a_run_that_does_not_verify_is_refused(home: Path, tmp_path: Path) -> None:
    assert "is there already" in call("bundle", home / "run", "--out", home / "run.rwz", code=2)
    shutil.copytree(home / "run", tmp_path / "run")
    assert "lies in the run itself" in call("bundle", tmp_path / "run", "--out", tmp_path / "run" / "b.rwz", code=2)
    assert "is a folder" in call("bundle", tmp_path / "run", "--out", tmp_path, code=2)
    flip_byte("tables/classification.csv")(tmp_path / "run")
    before = snapshot(tmp_path)
    said = call("bundle", tmp_path / "run", code=2)
    assert "does not verify, so it is not bundled: tables/classification.csv was changed" in said
    assert snapshot(tmp_path) == before
    assert "name the run to bundle" in call("bundle", code=2)


def test_an_honest_bundle_passes_in_another_process_and_place(home: Path, bundle: Path, tmp_path: Path) -> None:
    """The run and the models that the study names are gone; the working folder is another."""
    shutil.copy(bundle, tmp_path / "sent.rwz")
    for name in ("run", "tiny.onnx", "worse.onnx"):
        shutil.move(home / name, tmp_path / f"kept-{name}")
    given = [f"--model={name}=kept-{name}.onnx" for name in ("tiny", "worse")]
    shutil.move(tmp_path / "kept-run", home / "hidden")
    try:
        words = ["replay", "sent.rwz", "--key", home / "key.pub.pem", *given, "--share", "1", "--out", "found.json"]
        source = str(Path(rw.__file__).parent.parent)
        done = subprocess.run(
            [sys.executable, "-m", "roadworthy", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": source},
        )
    finally:
        shutil.move(home / "hidden", home / "run")
        for name in ("tiny.onnx", "worse.onnx"):
            shutil.move(tmp_path / f"kept-{name}", home / name)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "signature: signed by the owner of" in done.stdout
    assert "are as stored, to the bit" in done.stdout
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["agrees"]
    assert found["same_machine_type"]
    assert len(found["chunks_rerun"]) == found["chunks_available"] == 5
    assert {chunk["rows"] for chunk in found["chunks_rerun"]} == {70}


TAMPERED: dict[str, tuple[Change, bool, bool, str]] = {
    "a byte of a table": (flip_byte("tables/classification.parquet"), False, False, "parquet was changed: it is not"),
    "a byte, new index": (flip_byte("tables/classification.csv"), False, True, "classification.csv was changed"),
    "a table in CSV, all new": (
        edit_text("tables/classification.csv", "accuracy", "Accuracy"),
        True,
        True,
        "tables/classification.csv is not what tables/classification.parquet gives",
    ),
    "a verdict": (edit_text("verdict.json", VERDICT, '"status": "fail"'), False, False, "verdict.json was changed"),
    "a verdict, all new": (
        edit_text("verdict.json", VERDICT, '"status": "fail"'),
        True,
        True,
        "verdict.json does not follow from the readouts and the criteria",
    ),
    "a report, all new": (
        edit_text("report.html", "</title>", "!</title>"),
        True,
        True,
        "report.html is not what the stored tables and the verdict give",
    ),
    "a file more": (lambda run: (run / "notes.txt").write_text("!") and None, False, False, "but not in its index"),
    "a file more, new index": (
        lambda run: (run / "notes.txt").write_text("!") and None,
        False,
        True,
        "notes.txt is not part of the run",
    ),
    "a file less": (lambda run: (run / "verdict.json").unlink(), False, False, "verdict.json is missing from"),
    "a file less, new index": (lambda run: (run / "verdict.json").unlink(), False, True, "verdict.json is missing"),
    "the study, all new": (edit_text("study.yaml", "seed: 0", "seed: 1"), True, True, "is asked for by the study"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_found(name: str, home: Path, bundle: Path, tmp_path: Path) -> None:
    change, record, index, says = TAMPERED[name]
    changed = rebuilt(bundle, tmp_path / "changed.rwz", change, record=record, index=index)
    found = replayed(changed, share=0.01 if "study" in name else 0)
    assert found.exit_code == 1
    assert any(says in words for words in found.differences), found.lines()
    if index:
        signed = replayed(changed, key=home / "key.pub.pem")
        assert "or changed since" in signed.differences[0], "a signature finds it whatever was refreshed"
        assert [check.name for check in signed.checks] == ["signature", "run"], "nothing that is not signed is read"


def test_an_edited_answer_is_found_by_the_rerun_if_drawn_and_by_the_signature_always(
    home: Path, bundle: Path, tmp_path: Path
) -> None:
    cases = sorted(path.name for path in (home / "run" / "readouts").glob("noise-1*"))
    assert len(cases) == 2, "one of each model"
    changed = rebuilt(bundle, tmp_path / "changed.rwz", edit_answer(cases[0], 5), record=True, index=True)
    found = replayed(changed, share=1)
    assert [check.name for check in found.checks if check.status == "differs"] == ["rerun"], "all else follows"
    (difference,) = found.differences
    assert difference.startswith(f"readouts/{cases[0]}/part-00000.parquet (")
    assert "probabilities differs in 1 row, 5 (" in difference
    assert not replayed(changed, key=home / "key.pub.pem").ok


def test_a_swapped_model_is_found(home: Path, bundle: Path, tmp_path: Path) -> None:
    said = call("replay", bundle, "--model", f"tiny={home / 'worse.onnx'}", code=1)
    assert "is not the file that was tested (SHA-256" in said
    save_onnx(tmp_path / "same.onnx")
    assert replayed(bundle, share=0.01, model={"tiny": tmp_path / "same.onnx"}).ok, "the name of a file is nothing"
    with pytest.raises(InputError, match="unknown model of the bundle 'tyny': did you mean 'tiny'"):
        replayed(bundle, share=0.01, model={"tyny": tmp_path / "same.onnx"})
    with pytest.raises(InputError, match="does not exist"):
        replayed(bundle, share=0.01, data=tmp_path / "nowhere")
    with pytest.raises(InputError, match="unknown role of data"):
        replayed(bundle, data=f"tests={tmp_path}", share=0.01)


def test_a_bundle_must_be_signed_by_the_key_that_is_given(home: Path, bundle: Path, plain: Path) -> None:
    assert "or changed since" in replayed(bundle, key=home / "other.pub.pem").differences[0]
    assert replayed(plain, key=home / "key.pub.pem").differences == [
        f"the bundle is not signed, but must be by {home / 'key.pub.pem'}"
    ]


def test_keys(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, public = home / "key.pem", home / "key.pub.pem"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert is_signed_by(b"text", sign(b"text", key), public)
    assert not is_signed_by(b"texts", sign(b"text", key), public)
    with pytest.raises(InputError, match="is a private key, which stays with who signs"):
        is_signed_by(b"", b"", key)
    with pytest.raises(InputError, match="is a public key, which cannot sign"):
        sign(b"", public)
    with pytest.raises(InputError, match="never overwritten"):
        new_key(key)
    (tmp_path / "no.pem").write_text("no key")
    with pytest.raises(InputError, match=r"no\.pem cannot be read as a private key"):
        sign(b"", tmp_path / "no.pem")
    shutil.copy(key, tmp_path / "open.pem")
    (tmp_path / "open.pem").chmod(0o644)
    with pytest.warns(UserWarning, match=r"open\.pem can be read by others: chmod 600"):
        sign(b"text", tmp_path / "open.pem")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = serialization.load_pem_private_key(key.read_bytes(), None)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = private.private_bytes(pem, form, serialization.BestAvailableEncryption(b"secret"))
    (tmp_path / "locked.pem").write_bytes(locked)
    (tmp_path / "locked.pem").chmod(0o600)
    with pytest.raises(InputError, match="has a passphrase: give it in the variable ROADWORTHY_KEY_PASSPHRASE"):
        sign(b"text", tmp_path / "locked.pem")
    monkeypatch.setenv("ROADWORTHY_KEY_PASSPHRASE", "secret")
    assert sign(b"text", tmp_path / "locked.pem") == sign(b"text", key)
    curve = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "curve.pem").write_bytes(curve.private_bytes(pem, form, serialization.NoEncryption()))
    with pytest.raises(InputError, match="is not an ed25519 key"):
        sign(b"", tmp_path / "curve.pem")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_checks_the_signature_by_itself(home: Path, bundle: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        archive.extract("index.json", tmp_path)
        archive.extract("index.sig", tmp_path)
    words = [
        "openssl",
        "pkeyutl",
        "-verify",
        "-pubin",
        "-rawin",
        "-in",
        "index.json",
        "-sigfile",
        "index.sig",
        "-inkey",
    ]
    assert subprocess.run([*words, home / "key.pub.pem"], cwd=tmp_path, capture_output=True).returncode == 0
    assert subprocess.run([*words, home / "other.pub.pem"], cwd=tmp_path, capture_output=True).returncode != 0


def entry(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def hostile(path: Path, bundle: Path, name: str) -> Path:
    """The bundle with something that no bundle has."""
    shutil.copy(bundle, path)
    if name == "truncated":
        path.write_bytes(path.read_bytes()[:-1000])
        return path
    if name == "no zip":
        path.write_text("PK")
        return path
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as zipped:
        warnings.simplefilter("ignore")  # of a name that is there twice
        if name == "outside":
            zipped.writestr(entry("run/../../evil"), "!")
        elif name == "whole path":
            zipped.writestr(entry("/tmp/evil"), "!")
        elif name == "drive":
            zipped.writestr(entry("c:evil"), "!")
        elif name == "link":
            zipped.writestr(entry("run/link", stat.S_IFLNK | 0o777), "/etc/passwd")
        elif name == "folder":
            zipped.writestr(entry("run/folder/", stat.S_IFDIR | 0o755), "")
        elif name == "bomb":
            zipped.writestr("run/bomb", b"0" * 10**7, zipfile.ZIP_DEFLATED)
        elif name == "twice":
            zipped.writestr(entry("index.json"), "{}")
    return path


@pytest.mark.parametrize(
    ("name", "says"),
    {
        "truncated": "is no bundle, or it is damaged",
        "no zip": "is no bundle, or it is damaged",
        "outside": "a name that leads outside",
        "whole path": "a name that leads outside",
        "drive": "a name that leads outside",
        "link": "something that is not a file",
        "folder": "something that is not a file",
        "bomb": "would become larger than it is|a compressed file",
        "twice": "two files of the same name",
    }.items(),
)
def test_hostile_archives_are_not_unpacked(name: str, says: str, bundle: Path, tmp_path: Path) -> None:
    path = hostile(tmp_path / "hostile.rwz", bundle, name)
    before = snapshot(tmp_path)
    with pytest.raises(InputError, match=says):
        replayed(path)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("size", [math.inf, math.nan, 1.5, -1, True, "7", None])
def test_an_index_with_an_impossible_size_is_one_sentence(size: Any, bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "sizes.rwz"
    with zipfile.ZipFile(bundle) as source, zipfile.ZipFile(path, "w") as target:
        for member in source.infolist():
            content = source.read(member)
            if member.filename == "index.json":
                index = json.loads(content)
                next(iter(index["files"].values()))["size"] = size
                content = json.dumps(index).encode()
            target.writestr(member, content)
    with pytest.raises(InputError, match=r"index\.json of .* does not say which files there are: ask for it again"):
        replayed(path)


def test_what_is_no_bundle_is_one_sentence(bundle: Path, tmp_path: Path) -> None:
    assert "does not exist" in call("replay", tmp_path / "nowhere.rwz", code=2)
    with zipfile.ZipFile(tmp_path / "other.rwz", "w") as archive:
        archive.writestr("a.txt", "a")
    assert "it has no index.json" in call("replay", tmp_path / "other.rwz", code=2)
    for content, says in (
        ("[]", "is not one of"),
        ("{", "cannot be read"),
        ('{"format": "roadworthy bundle", "version": 9}', "of version 9"),
        ('{"format": "roadworthy bundle", "version": 1, "files": 3}', "does not say which files"),
        ('{"format": "roadworthy bundle", "version": 1, "files": {"../a": {"sha256": "", "size": 1}}}', "which files"),
    ):
        with zipfile.ZipFile(tmp_path / "other.rwz", "w") as archive:
            archive.writestr("index.json", content)
        assert says in call("replay", tmp_path / "other.rwz", code=2)
    assert "neither .json nor .html" in call("replay", bundle, "--out", "a.txt", code=2)
    with pytest.raises(InputError, match="lies between 0 and 1"):
        replayed(bundle, share=2)


def test_on_another_machine_type_tolerances_hold_and_are_said(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = replaying.environment()
    monkeypatch.setattr(replaying, "environment", lambda: {**here, "processor": "Another"})
    found = replayed(plain, share=0.01)
    assert found.ok
    assert "it is not signed: nothing says who made the bundle" in found.not_checked
    assert any("within tolerances (processor (" in line and "probabilities" in line for line in found.lines())
    assert found.to_json()["machine_differences"][0].startswith("processor (")


def test_machine_types() -> None:
    own = {"processor": "A", "platform": "Linux-6.1.0-x86_64-with-glibc2.36", "packages": {"torch": "2.1", "ray": "1"}}
    assert machine_differences(own, {**own, "cores": 64, "packages": {"torch": "2.1", "ray": "2"}}) == []
    assert machine_differences(own, {**own, "platform": "Linux-6.1.0-x86_64-with-glibc2.40"}) == [
        "system (Linux x86_64-with-glibc2.36 there, Linux x86_64-with-glibc2.40 here)"
    ]
    assert machine_differences(own, {**own, "packages": {}}) == ["torch (2.1 there, not known here)"]
    assert machine_differences({}, own) == [
        "processor (not known there, A here)",
        "system (None there, Linux x86_64-with-glibc2.36 here)",
    ]


def answers(probabilities: list[list[float]], **columns: Any) -> pa.Table:
    values = np.array(probabilities, np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    given = {"id": [f"i{row}" for row in range(len(values))], "prediction": values.argmax(1), "probabilities": lists}
    return pa.table({**given, **columns})


def test_bits_and_tolerances() -> None:
    stored = answers([[0.9, 0.1], [0.50001, 0.49999]])
    assert part_differences(stored, stored, exact=True) == []
    near = answers([[0.9, 0.1], [0.49999, 0.50001]])
    assert [row.column for row in part_differences(stored, near, exact=True)] == ["prediction", "probabilities"]
    assert part_differences(stored, near, exact=False) == [], "the margin of the second image is below the tolerance"
    beyond = answers([[0.9 - 2 * PROBABILITY, 0.1 + 2 * PROBABILITY], [0.50001, 0.49999]])
    (difference,) = part_differences(stored, beyond, exact=False)
    assert (difference.column, difference.rows, difference.ids) == ("probabilities", (0,), ("i0",))
    assert difference.largest == pytest.approx(2 * PROBABILITY, rel=1e-2)
    flipped = answers([[0.9, 0.1], [0.50001, 0.49999]], prediction=np.array([1, 0]))
    assert [row.column for row in part_differences(stored, flipped, exact=False)] == ["prediction"]
    other = stored.set_column(0, "id", [["i0", "x"]])
    assert [row.rows for row in part_differences(stored, other, exact=False)] == [(1,)]
    assert part_differences(stored, stored.slice(0, 1), exact=False)[0].column == "the number of rows"
    more = stored.append_column("certainty", [[1.0, 2.0]])
    assert [row.column for row in part_differences(stored, more, exact=False)] == ["certainty"]


def test_undefined_numbers_agree_with_themselves_alone() -> None:
    stored, fresh = (pa.table({"id": ["a", "b"], "certainty": [np.nan, 1.0]}) for _ in range(2))
    assert part_differences(stored, fresh, exact=False) == part_differences(stored, fresh, exact=True) == []
    fresh = pa.table({"id": ["a", "b"], "certainty": [0.0, np.nan]})
    assert part_differences(stored, fresh, exact=False)[0].rows == (0, 1)
    scaled = [pa.table({"id": ["a", "b"], "representation": [1000.0, value]}) for value in (1.0, 1.9, 2.1)]
    assert part_differences(scaled[0], scaled[1], exact=False) == [], "0.001 of the largest"
    assert part_differences(scaled[0], scaled[2], exact=False)[0].rows == (1,)


class FakeChunk(Chunk):
    def __init__(self, name: str, model: str | None, number: int) -> None:
        self.__dict__.update(planned=None, graph=None, number=number, images=1, name=name, of=model)

    @property
    def key(self) -> tuple[str, int]:
        return self.__dict__["name"], self.number

    @property
    def model(self) -> tuple[str, str] | None:
        return None if self.__dict__["of"] is None else ("", self.__dict__["of"])


def test_chunks_are_drawn_by_the_seed_and_every_model_has_one() -> None:
    chunks = [FakeChunk(f"{model}{case}", model, part) for model in "abc" for case in range(5) for part in range(10)]
    chunks += [FakeChunk("monitor", None, part) for part in range(50)]
    assert len(draw_chunks(chunks, 0.0001, 0)) == 3
    assert {chunk.model for chunk in draw_chunks(chunks, 0.0001, 0)} == {("", name) for name in "abc"}
    assert len(draw_chunks(chunks, 0.1, 0)) == 20
    assert len(draw_chunks(chunks, 1, 0)) == len(chunks)
    keys = [tuple(chunk.key for chunk in draw_chunks(chunks, 0.1, seed)) for seed in (0, 0, 1)]
    assert keys[0] == keys[1] != keys[2]
    assert keys[0] == tuple(chunk.key for chunk in draw_chunks(chunks[::-1], 0.1, 0)), "the order of cases is nothing"
    counts = np.zeros(len(chunks))
    order = {chunk.key: row for row, chunk in enumerate(chunks)}
    for seed in range(400):
        for chunk in draw_chunks(chunks, 0.1, seed):
            counts[order[chunk.key]] += 1
    assert counts.min() > 0, "every chunk can be drawn"
    assert draw_chunks([], 0.5, 0) == []


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose data, model and monitors come from files, with artifacts that its tables are computed from."""
    folder = tmp_path_factory.mktemp("filed")
    data = folder / "data"
    data.mkdir()
    for name, seed, count in (("test", 1, 60), ("train", 2, 70), ("validation", 3, 60), ("tiny", 4, 40)):
        write_npz(data / f"{name}.npz", count, seed)
    content = study(
        data,
        name="filed",
        data={role: str(data / f"{role}.npz") for role in ("test", "train", "validation")},
        models={"warm": {"temperature": {"onnx": str(data / "tiny.onnx")}}},
        monitors={"msp": {}, "kl_matching": {}},
        protocols={
            "classification": {"shifts": ["fog"], "levels": [1]},
            "monitoring": {
                "benchmarks": {"noise": {"kind": "noise", "shift": "noise", "level": 5}},
                "resamples": 100,
                "timed_images": 2,
                "memory": False,
            },
        },
    )
    rw.run_study(content, out=folder / "run", progress=no_progress)
    rw.bundle_run(folder / "run", folder / "run.rwz", progress=no_progress)
    return folder


def test_data_and_models_elsewhere_are_named(filed: Path, tmp_path: Path) -> None:
    bundle, home = filed / "run.rwz", tmp_path / "here"
    shutil.move(filed / "data", home)
    try:
        found = replayed(bundle, share=0.01)
        here = [f"{role}={home / f'{role}.npz'}" for role in ("test", "train", "validation")]
        given = replayed(bundle, share=1, data=here, model={"warm": home / "tiny.onnx"})
        other = replayed(bundle, share=0.01, data=[f"test={home / 'tiny.npz'}", here[2]], model={"warm": home})
    finally:
        shutil.move(home, filed / "data")
    assert found.ok, found.differences
    assert not found.reruns.chunks
    unchecked = "; ".join(found.not_checked)
    assert (
        f"test data: {filed / 'data' / 'test.npz'} is not on this machine: name it with `data='test=PATH'`" in unchecked
    )
    assert (
        f"model warm: {filed / 'data' / 'tiny.onnx'} is not on this machine: name it with `model='warm=FILE'`"
        in unchecked
    )
    assert given.ok, given.differences
    assert {chunk.system for chunk in given.reruns.chunks} >= {"warm", "msp", "kl_matching"}
    assert given.reruns.of == len(given.reruns.chunks) > 5
    assert any("these are not the images of the run" in words for words in other.differences)
    assert any("protocol monitoring: training data is needed" in words for words in other.not_checked)


def test_built_things_that_tables_need_are_always_there(
    filed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "SMALL_ARTIFACT", 0)
    monkeypatch.setattr(making.large_artifacts, "__defaults__", (0,))
    made = rw.bundle_run(filed / "run", tmp_path / "all.rwz", progress=no_progress)
    assert not made.left_out, "the tables of monitoring are computed from fitted monitors"


def test_what_is_left_out_is_said_and_not_rerun(filed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temperature is an artifact that no table of classification reads."""
    content = study(
        filed / "data",
        name="warm",
        data={role: str(filed / "data" / f"{role}.npz") for role in ("test", "validation")},
        models={
            "warm": {"temperature": {"onnx": str(filed / "data" / "tiny.onnx")}},
            "cold": {"onnx": str(filed / "data" / "tiny.onnx")},
        },
        protocols={"classification": {"shifts": ["fog"], "levels": [1]}},
    )
    rw.run_study(content, out=tmp_path / "run", progress=no_progress)
    monkeypatch.setattr(making.large_artifacts, "__defaults__", (0,))
    made = rw.bundle_run(tmp_path / "run", progress=no_progress)
    assert made.path == tmp_path / "run.rwz"
    (artifact,) = made.left_out.values()
    assert artifact.system == "warm"
    assert "`with_artifacts=True` includes it" in made.lines()[1]
    found = replayed(made.path, share=1)
    assert found.ok, found.differences
    assert {chunk.system for chunk in found.reruns.chunks if chunk.system in ("warm", "cold")} == {"cold"}
    assert any("warm: the bundle does not hold" in words for words in found.not_checked)
    whole = rw.bundle_run(tmp_path / "run", tmp_path / "whole.rwz", with_artifacts=True, progress=no_progress)
    assert not whole.left_out
    hidden = rebuilt(
        made.path, tmp_path / "hidden.rwz", lambda run: next(run.glob("readouts/*/part*")).unlink(), index=True
    )
    assert any("is missing" in words for words in replayed(hidden).differences), "only what is stated may be left out"


def test_a_bundle_does_not_choose_whom_this_machine_talks_to(bundle: Path, tmp_path: Path) -> None:
    (onnx,) = json.loads(zipfile.ZipFile(bundle).read("index.json"))["models"]["tiny"]["files"]
    change = edit_text("study.yaml", onnx, "http://192.0.2.1/steal")
    found = replayed(rebuilt(bundle, tmp_path / "net.rwz", change, record=True, index=True), share=0.01)
    assert any("it is at an address, http://192.0.2.1/steal, which is not opened" in w for w in found.not_checked)
    assert {chunk.system for chunk in found.reruns.chunks} == {"worse"}


def test_the_page_shows_names_as_text() -> None:
    evil = "<script>alert(1)</script>"
    reruns = Reruns([Rerun(evil, evil, evil, 3, (evil,))], 1)
    found = Replay(
        Path(evil), evil, evil, (Check(evil, "differs", (evil, evil)),), 0.5, 1, (evil,), {evil: evil}, reruns
    )
    for page in (found.to_html(), found._repr_html_()):
        assert "<script" not in page
        assert "&lt;script&gt;alert(1)" in page


def test_what_is_given_is_parsed(tmp_path: Path) -> None:
    (tmp_path / "a=b").mkdir()
    given = Substitutes.parse([str(tmp_path / "a=b"), f"train={tmp_path}"], [])
    assert given.data == {"test": str(tmp_path / "a=b"), "train": str(tmp_path)}
    (tmp_path / "code.py").touch()
    assert Substitutes.parse([], [f"m={tmp_path / 'code.py'}:answer"]).models == {"m": str(tmp_path / "code.py")}
    with pytest.raises(InputError, match="does not say which model"):
        Substitutes.parse([], [str(tmp_path)])
    with pytest.raises(InputError, match="is given twice"):
        Substitutes.parse([f"train={tmp_path}", f"train={tmp_path}"], [])


def test_sources_that_are_not_here_are_left_out() -> None:
    gone = {"data": {"test": "/nowhere/at/all"}, "models": {"m": "/nowhere/m.onnx"}}
    here = {"data": {"test": {"builtin": "signs"}}, "models": {"r": {"reference": "baseline"}}}
    protocols = {"classification": {"sources": ["gone", "here"]}, "ood": {"sources": ["gone"]}}
    content = parse_study({"sources": {"gone": gone, "here": here}, "protocols": protocols}, "study")
    record = RunRecord.model_construct(sources={})
    local = local_study(content, record, Substitutes())
    assert [*local.study.sources] == ["here"]
    assert [(own.name, settings.sources) for own, settings in local.study.protocols.chosen()] == [
        ("classification", ["here"])
    ]
    assert local.absent["protocol ood"] == "none of its sources is here"
    assert "name it with `data='gone/test=PATH'`" in local.absent["test data of gone"]
