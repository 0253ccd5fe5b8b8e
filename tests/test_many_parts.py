"""A run of many parts: what is stored is listed once per case, and names are checked as strictly as one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from roadworthy.api import prepare
from roadworthy.core import manifests
from roadworthy.core.errors import InputError
from roadworthy.core.files import check_inside
from roadworthy.core.manifests import commit, counted_parts, discard, write_receipt
from roadworthy.engine import readouts
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.ledger import pending_tasks
from roadworthy.engine.stopping import Stops
from roadworthy.study import parse_study
from tiny import study, write_npz


def test_parts_count_by_receipt_or_manifest(tmp_path: Path) -> None:
    assert counted_parts(tmp_path / "none") == set()
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    write_receipt(tmp_path / "a")
    write_receipt(tmp_path / "b")
    assert counted_parts(tmp_path) == {"a", "b"}
    commit(tmp_path, {}, ["a", "b"])
    assert not [*tmp_path.glob("*.sha256")]
    assert counted_parts(tmp_path) == {"a", "b"}
    discard(tmp_path / "a")
    assert counted_parts(tmp_path) == {"b"}


def test_pending_tasks_read_each_manifest_once_however_many_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"test": str(write_npz(tmp_path / "signs.npz", 5 * 1024))}
    prepared = prepare(parse_study(study(tmp_path, data=data), "study"), accept_chance=True)
    planned = [node.planned for node in prepared.plan.graph().cases.values()][:1]
    folder, home = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run").case(planned[0].case.key)
    home.mkdir(parents=True)
    for chunk in (0, 1, 3):
        readouts.part_path(home, chunk).write_text("part")
        write_receipt(readouts.part_path(home, chunk))
    readouts.commit(home, planned[0].case, 2, 14)  # parts 0 and 1 count by the manifest, part 3 by its receipt
    reads: list[Path] = []
    original = manifests.named_parts
    monkeypatch.setattr(manifests, "named_parts", lambda path: (reads.append(path), original(path))[1])
    tasks = pending_tasks(planned, folder, Stops(planned, folder), lambda count: None)
    assert [task.chunk for task in tasks] == [2, 4]
    assert len(reads) <= 2


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "out/x", "link", "a\0b", "", ".."])
def test_a_name_that_leads_outside_is_refused_among_many(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_text("x")
    (run / "out").symlink_to(tmp_path / "other")
    (run / "link").symlink_to(tmp_path / "other" / "x")
    names = [f"part-{number}" for number in range(5)]
    check_inside(run, names)
    with pytest.raises(InputError, match="cannot be read"):
        check_inside(run, [*names, name])
