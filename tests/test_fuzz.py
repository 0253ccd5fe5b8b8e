"""Fuzzing: whatever bytes come, a reader works or raises one clear sentence, in time, and writes nothing.

A few inputs of every reader are tried here; `make fuzz` tries at least 5,000 of each: see `fuzzing`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from fuzzing import __main__ as command
from fuzzing.catalogue import READERS
from fuzzing.law import Unlawful, check_words, lawful
from fuzzing.mutations import spoil_bytes, spoil_value
from fuzzing.readers import Reader, explore, make_input
from fuzzing.report_readers import Structure, check_page
from roadworthy.core.errors import InputError

FEW, COSTLY = 12, {"whole reports": 1, "run folder, verified": 3, "tables, reported": 2, "runs, compared": 3}
"""Inputs of each reader, and of those that take longer."""


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_some_inputs(reader: Reader, tmp_path: Path) -> None:
    if reader.name == "torch weights":
        pytest.importorskip("torch")
    tally = explore(reader, tmp_path, range(COSTLY.get(reader.name, FEW)), seed=7)
    assert list(tally.failures.values()) == []


def test_every_reader_has_its_share() -> None:
    assert len({reader.name for reader in READERS}) == len(READERS)
    assert all(reader.inputs >= command.INPUTS for reader in READERS if reader.name != "whole reports")
    assert next(reader for reader in READERS if reader.name == "whole reports").inputs == 500
    assert sum(reader.inputs for reader in READERS) >= 100_000
    for reader in READERS:
        for pattern in reader.code:
            assert list(command.PACKAGE.glob(pattern)), f"{reader.name}: no module {pattern}"


def test_inputs_are_the_same_again() -> None:
    reader = next(reader for reader in READERS if reader.name == "pictures")
    assert [make_input(reader, {}, 1, k) for k in range(9)] == [make_input(reader, {}, 1, k) for k in range(9)]
    assert make_input(reader, {}, 1, 0) != make_input(reader, {}, 2, 0)
    assert spoil_bytes(Random(1), bytes(99)) != bytes(99)
    value = {"a": [1, 2, {"b": "c"}]}
    assert any(spoil_value(Random(seed), value) != value for seed in range(9))
    assert value == {"a": [1, 2, {"b": "c"}]}, "the original stays"


def test_the_watch_sees_what_is_forbidden(tmp_path: Path) -> None:
    with pytest.raises(Unlawful, match=r"x\.txt"), lawful():
        (tmp_path / "x.txt").write_text("x")
    with lawful(writes=tmp_path):
        (tmp_path / "x.txt").write_text("x")
    with pytest.raises(Unlawful, match="y"), lawful(writes=tmp_path):
        (tmp_path.parent / "y").mkdir()
    with pytest.raises(ZeroDivisionError), lawful():
        raise ZeroDivisionError
    with pytest.raises(Unlawful, match="Popen"), lawful():
        subprocess.run([sys.executable, "-c", ""], check=True)
    with pytest.raises(Unlawful, match="connect"), socket.socket() as client, lawful():
        client.connect_ex(("127.0.0.1", 9))
    with lawful() as refusals:
        raise InputError("one sentence")
    assert len(refusals) == 1


@pytest.mark.parametrize("words", ["", " ", "two\nlines", "a\x1b[2Jcode", "x" * 20_000])
def test_words_that_are_no_sentence_are_seen(words: str) -> None:
    with pytest.raises(Unlawful):
        check_words(words)


PAGE = '<html><body class="a"><script type="application/json">{"a": 1}</script><script>go()</script></body></html>'


@pytest.mark.parametrize(
    "hostile",
    [
        *("<b>x</b>", '<p class="a" onclick="x()"></p>', '<body id="x">', "<script>go()</script>", "<hostile-tag>"),
        *('<script type="application/json">{"a": </script>', '<body class="a" href="javascript:x()">'),
    ],
)
def test_markup_in_a_report_is_seen(hostile: str) -> None:
    known = Structure(PAGE)
    check_page(PAGE, known)
    with pytest.raises((Unlawful, ValueError)):
        check_page(PAGE.replace("</body>", f"{hostile}</body>"), known)


def test_a_failing_input_is_kept_and_can_be_tried_again(tmp_path: Path) -> None:
    def read(folder: Path) -> None:
        if b"\xff" in (folder / "f").read_bytes():
            raise ZeroDivisionError("found")

    reader = Reader(
        "example", (), lambda _: {"f": bytes(20)}, lambda random, valid: {"f": spoil_bytes(random, valid["f"])}, read
    )
    (tmp_path / "keep").mkdir()
    tally = explore(reader, tmp_path, range(200), seed=1, keep=tmp_path / "keep")
    (message,) = tally.failures.values()
    assert "example, seed 1, input " in message
    kept = Path(message.rpartition("kept in ")[2])
    assert b"\xff" in (kept / "f").read_bytes()
    assert "ZeroDivisionError" in (kept / "traceback.txt").read_text()
    number = int(message.partition("input ")[2].partition(":")[0])
    assert make_input(reader, {"f": bytes(20)}, 1, number) == {"f": (kept / "f").read_bytes()}


@pytest.mark.fuzz
def test_the_command_counts_branches_and_bounds_memory(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "fuzzing",
        "--inputs",
        "50",
        "--seed",
        "1",
        "--reader",
        "manifest csv",
        "--keep",
        str(tmp_path),
    ]
    run = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parent, env={**os.environ})
    assert run.returncode == 0, run.stdout
    assert "seed 1" in run.stdout
    row = next(line for line in run.stdout.splitlines() if line.startswith("manifest csv"))
    assert " 50 " in row
    assert json.loads(row.split()[-4]) > 30, "branches taken"
