"""The viewer: the list of runs, their tables, the images behind a figure, progress, and who may ask for what."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import httpx2
import numpy as np
import pandas as pd
import pytest
from starlette.testclient import TestClient

import roadworthy as rw
from commands import call, snapshot
from records import record_anew
from roadworthy.core.errors import InputError
from roadworthy.core.record import read_record
from roadworthy.engine import chunks
from roadworthy.protocols.base import StoredCase
from roadworthy.viewer import index as indexing
from roadworthy.viewer.answers import SORTS
from roadworthy.viewer.app import make_app
from roadworthy.viewer.bundling import write_bundle
from roadworthy.viewer.figures import Headlines
from roadworthy.viewer.guarding import Guard
from roadworthy.viewer.index import Query, RunIndex, run_id
from roadworthy.viewer.serving import serve
from roadworthy.viewer.summaries import of_record, summarise
from roadworthy.viewer.tables import StoredTable, TableQuery
from tiny import save_onnx, write_study
from viewer_runs import HOSTILE, write_runs

GOLDEN = Path(__file__).parent / "golden"
given: dict[tuple[str, str], np.ndarray] = {}
"""The pixels that models were given, by the key of the stimulus and the id of the image."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_runs(tmp_path_factory.mktemp("viewer"), given)


@pytest.fixture(scope="module")
def client(runs: Path) -> Iterator[TestClient]:
    before = snapshot(runs)
    yield client_of(runs)
    assert snapshot(runs) == before  # whatever was asked, nothing changed


def client_of(folder: Path, host: str = "127.0.0.1", **options: Any) -> TestClient:
    return TestClient(make_app(folder, host), base_url="http://localhost:8723", **options)


def text(page: str) -> str:
    """A page as people read it."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page)))


def links(page: str, pattern: str) -> list[str]:
    return [html.unescape(link) for link in re.findall(rf'(?:href|src)="({pattern})"', page)]


def images_of(client: TestClient, run: str, table: str, **wanted: Any) -> str:
    """The address of the images behind the row of a table with these values."""
    frame = rw.open_run(client.app.runs / run).tables[table]  # type: ignore[attr-defined]
    rows = np.flatnonzero(np.logical_and.reduce([frame[name] == value for name, value in wanted.items()]))
    assert len(rows) == 1
    return f"/run/{run_id(run)}/images?table={table}&row={rows[0]}"


# The list


def test_the_list_shows_chooses_and_sorts_runs(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    shown = text(page.text)
    for words in ("signs/v1", "tiny, worse", "no criteria", "hostile", "fail", "V-1: accuracy", "Accuracy"):
        assert words in shown, words
    assert HOSTILE not in page.text
    assert "signs/v1" not in client.get("/?status=fail").text
    assert "signs/v1" in client.get("/?model=worse").text
    assert "hostile-" not in client.get("/?model=worse").text
    assert "No run matches" in client.get("/?words=nothing+of+this+kind").text
    assert links(client.get("/?sort=name&ascending=1").text, '/run/[^"]*') == [
        f"/run/{run_id('hostile')}",
        f"/run/{run_id('signs/v1')}",
    ]
    assert client.get("/?page=99999999999999999999&sort=..&status=%00").status_code == 200


def test_a_summary_from_the_head_is_that_of_the_whole_record(runs: Path) -> None:
    stored = [path.parent for path in (*runs.rglob("run.json"), *GOLDEN.rglob("run.json"))]
    assert len(stored) > 6
    for run in stored:
        assert summarise(run, "x") == of_record(run, "x", read_record(run)), run


def test_runs_are_read_once_and_again_when_they_change(runs: Path, tmp_path: Path, monkeypatch: Any) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    index, read = RunIndex(tmp_path / "runs"), []
    original = indexing.summarise
    monkeypatch.setattr(indexing, "summarise", lambda path, name: read.append(name) or original(path, name))
    assert {run.summary.name for run in index.runs().values()} == {"hostile", "signs/v1"}
    assert sorted(read) == ["hostile", "signs/v1"]
    index.runs()
    assert len(read) == 2
    verdict = tmp_path / "runs" / "hostile" / "verdict.json"
    verdict.write_text(verdict.read_text().replace('"status": "fail"', '"status": "pass"'))
    record_anew(verdict.parent)
    assert index.find(run_id("hostile")).summary.status == "pass"  # type: ignore[union-attr]
    assert read[2:] == ["hostile"]
    shutil.rmtree(tmp_path / "runs" / "hostile")
    assert [*index.runs()] == [run_id("signs/v1")]
    assert index.find(run_id("hostile")) is None


def test_many_runs_come_page_by_page_and_nothing_is_left_out_silently(runs: Path, tmp_path: Path) -> None:
    for number in range(120):
        home = tmp_path / f"run{number:03d}"
        home.mkdir()
        for name in ("run.json", "verdict.json"):
            shutil.copy(runs / "hostile" / name, home / name)
    deep = tmp_path / "a" / "b" / "c" / "d" / "e" / "f" / "g"
    shutil.copytree(runs / "hostile", deep)
    listing = RunIndex(tmp_path).listing(Query(page=3, sort="name", ascending=True))
    assert (listing.total, listing.pages, len(listing.shown)) == (120, 3, 20)
    assert listing.shown[0].summary.name == "run100"
    assert listing.note == "Folders more than 5 levels down were not looked into."
    assert listing.note in client_of(tmp_path).get("/").text


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda run: (run / "run.json").write_text("{"), "run.json is damaged: EOF"),
        (lambda run: [(run / "run.json").unlink(), os.mkfifo(run / "run.json")], "run.json is something else"),
        (lambda run: (run / "run.json").write_text("[" * 100_000), "recursion"),
        (lambda run: (run / "run.json").write_text('{"schema": 99}'), "run schema 99"),
        (lambda run: (run / "verdict.json").write_text('{"status": 1}'), "verdict.json was changed"),
        (lambda run: [(run / "verdict.json").write_text('{"status": 1}'), record_anew(run)], "verdict.json is damaged"),
        (lambda run: change(run, sources={}), "sources"),
        (lambda run: change(run, files={"../../x": "0"}), "leads outside"),
        (lambda run: change(run, cases={}), "is not listed"),
    ],
)
def test_a_damaged_run_is_listed_as_such_with_the_reason(runs: Path, tmp_path: Path, damage: Any, why: str) -> None:
    shutil.copytree(runs / "hostile", tmp_path / "run")
    damage(tmp_path / "run")
    client = client_of(tmp_path)
    page = client.get(f"/run/{run_id('run')}")
    assert page.status_code == 200
    assert "This run is damaged." in text(page.text)
    assert why.lower() in text(page.text).lower()
    listed = text(client.get("/").text)
    assert "damaged" in listed
    assert why.lower() in listed.lower()
    for address in ("report.html", "table/classification", "images?table=classification&row=0", "file/verdict.json"):
        assert client.get(f"/run/{run_id('run')}/{address}").status_code in (200, 404)


def change(run: Path, **values: Any) -> None:
    """Write other values to run.json in the form in which it is written."""
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(content | values, indent=1))


# A run, its tables and its files


def test_a_run_shows_verdict_tables_and_files_with_hashes(client: TestClient, runs: Path) -> None:
    page = client.get(f"/run/{run_id('hostile')}")
    record = rw.open_run(runs / "hostile").record
    for words in ("FAIL".lower(), "V-1", HOSTILE, "classification_confusion", record.files["verdict.json"]):
        assert words in text(page.text), words
    assert HOSTILE not in page.text
    for name in ("run.json", "verdict.json", "tables/classification.csv", "tables/classification.parquet"):
        answer = client.get(f"/run/{run_id('hostile')}/file/{name}")
        assert answer.content == (runs / "hostile" / name).read_bytes(), name
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == "attachment"  # no page of ours, and so saved, never shown
    report = client.get(f"/run/{run_id('hostile')}/report.html")
    assert report.content == (runs / "hostile" / "report.html").read_bytes()
    policy = report.headers["content-security-policy"]
    assert "sandbox allow-scripts" in policy
    assert "allow-same-origin" not in policy
    assert "connect-src" not in policy
    assert "default-src 'none'" in policy


def test_a_page_of_a_table_is_what_pandas_says(runs: Path) -> None:
    stored = StoredTable(runs / "signs" / "v1", "classification")
    frame = pd.read_parquet(runs / "signs" / "v1" / "tables" / "classification.parquet")

    def numbers(query: TableQuery) -> list[int]:
        pages = stored.page(query, 7).pages
        rows = [stored.page(TableQuery(**{**vars(query), "page": page}), 7).rows for page in range(1, pages + 1)]
        return [number for some in rows for number, _ in some]

    assert numbers(TableQuery()) == [*range(len(frame))]
    chosen = frame[(frame["shift"] == "fog") & (frame["level"] == 5)]
    assert numbers(TableQuery(where=(("shift", "fog"), ("level", "5")))) == [*chosen.index]
    values = frame["value"].sort_values(kind="stable")
    assert numbers(TableQuery(sort="value")) == [*values.index]
    assert numbers(TableQuery(words="WORSE ece_drop")) == [
        *frame[(frame["model"] == "worse") & (frame["metric"] == "ece_drop")].index
    ]
    row = stored.row(3)
    assert {name: row[name] for name in ("model", "shift", "metric")} == frame.iloc[3][
        ["model", "shift", "metric"]
    ].to_dict()
    with pytest.raises(InputError, match="no row 99999"):
        stored.row(99999)
    assert stored.choices(["shift", "metric", "none"])["shift"] == ["fog", "noise", "none"]


def test_a_table_is_sorted_and_filtered_by_its_address(client: TestClient) -> None:
    address = f"/run/{run_id('signs/v1')}/table/classification"
    page = client.get(address, params={"where.shift": "fog", "where.metric": "accuracy", "sort": "value"})
    rows = re.findall(r"<tr><td>(\w+)</td><td>(\w+)</td><td class=\"n\">(\d)</td><td>(\w+)</td>", page.text)
    assert {(shift, metric) for _, shift, _, metric in rows} == {("fog", "accuracy")}
    assert len(rows) == 4
    assert 'aria-sort="ascending"' in page.text
    assert client.get(address, params={"sort": "nothing", "page": "x", "where.level": "%"}).status_code == 200
    assert client.get(f"/run/{run_id('signs/v1')}/table/nothing").status_code == 404


# The images behind a figure


@pytest.fixture
def clicked(client: TestClient, runs: Path) -> TestClient:
    client.app.runs = runs  # type: ignore[attr-defined]
    return client


@pytest.mark.parametrize(("shift", "level"), [("none", 0), ("noise", 1), ("fog", 5)])
def test_a_picture_is_what_the_model_was_given(clicked: TestClient, runs: Path, shift: str, level: int) -> None:
    wanted = {"model": "worse", "shift": shift, "level": level, "metric": "accuracy"}
    page = clicked.get(images_of(clicked, "signs/v1", "classification", **wanted)).text
    record = rw.open_run(runs / "signs/v1").record
    [case] = {address.split("/")[4] for address in links(page, '/run/[^"]*/picture/[^"]*')}
    stimulus = record.cases[case].stimulus
    assert (record.cases[case].system, stimulus.name, stimulus.level) == ("worse", shift, level)
    ids = re.findall(r'class="id">([^<]*)<', page)
    pictures = [address for address in links(page, '/run/[^"]*/picture/[^"]*') if "small" not in address]
    assert len(ids) == len(pictures) == 48
    for image_id, address in [*zip(ids, pictures, strict=True)][::9]:
        answer = clicked.get(address)
        assert answer.headers["content-type"] == "image/png"
        shown = cv2.imdecode(np.frombuffer(answer.content, np.uint8), cv2.IMREAD_UNCHANGED)[..., ::-1]
        np.testing.assert_array_equal(shown, given[stimulus.value().key, image_id])


def test_images_say_what_every_model_answered(clicked: TestClient, runs: Path) -> None:
    address = images_of(clicked, "signs/v1", "classification", model="worse", shift="fog", level=5, metric="accuracy")
    run = rw.open_run(runs / "signs/v1")
    cases = {case.system: case for case in run.record.cases.values() if case.stimulus.name == "fog"}
    stored = {}
    for hash_, case in run.record.cases.items():
        if (case.stimulus.name, case.stimulus.level) == ("fog", 5):
            stored[case.system] = pd.read_parquet(next((runs / "signs/v1" / case.folder).glob("*.parquet")))
            assert hash_
    assert {*stored} == {"tiny", "worse"} == {*cases}
    own, names = stored["worse"], run.record.first.data.class_names
    wrong = own[own["label"] != own["prediction"]].sort_values("confidence", ascending=False, kind="stable")
    page = clicked.get(f"{address}&show=wrong&sort={SORTS[0]}").text
    assert f"{len(wrong)} images of 70" in text(page)
    assert re.findall(r'class="id">([^<]*)<', page) == [*wrong["id"]][:48]
    first = wrong.iloc[0]
    other = stored["tiny"].set_index("id").loc[first["id"]]
    captions = [text(caption) for caption in re.findall(r"<figcaption>(.*?)</figcaption>", page, re.S)]
    assert f"{names[first['label']]}" in captions[0]
    assert f"worse: {names[first['prediction']]} {first['confidence']:.3f}" in captions[0]
    assert f"tiny: {names[other['prediction']]} {other['confidence']:.3f}" in captions[0]
    right = text(clicked.get(f"{address}&show=right").text)
    assert f"{70 - len(wrong)} images of 70" in right
    least = re.findall(r'class="id">([^<]*)<', clicked.get(f"{address}&sort={SORTS[1]}").text)
    assert least == [*own.sort_values("confidence", kind="stable")["id"]][:48]


def test_a_row_leads_to_the_images_it_speaks_of(clicked: TestClient, runs: Path) -> None:
    confusion = rw.open_run(runs / "signs/v1").tables["classification_confusion"]
    row = confusion[confusion["label"] != confusion["prediction"]].iloc[0]
    where = {name: row[name] for name in ("model", "shift", "level", "label", "prediction")}
    page = text(clicked.get(images_of(clicked, "signs/v1", "classification_confusion", **where)).text)
    assert f": {row['count']} image" in page
    bins = rw.open_run(runs / "signs/v1").tables["classification_reliability"]
    for _, row in bins[(bins["model"] == "tiny") & (bins["shift"] == "fog") & (bins["level"] == 5)].iterrows():
        where = {name: row[name] for name in ("model", "shift", "level", "bin")}
        page = text(clicked.get(images_of(clicked, "signs/v1", "classification_reliability", **where)).text)
        assert f": {row['count']} image" in page, row
    overall = images_of(clicked, "signs/v1", "classification_overall", model="tiny", metric="accuracy")
    names = re.findall(r'<option value="[0-9a-f]{64}"[^>]*>([^<]*)<', clicked.get(overall).text)
    assert names == [f"tiny, {shift} {level}" for shift in ("noise", "fog") for level in (1, 5)]
    assert "No single images" in clicked.get(f"/run/{run_id('signs/v1')}/images?table=timing_cases&row=0").text
    assert clicked.get(f"/run/{run_id('signs/v1')}/images?table=classification&row=9999999").status_code == 404


def test_conditions_choose_images(tmp_path: Path) -> None:
    save_onnx(tmp_path / "tiny.onnx")
    content = {
        "name": "sliced",
        "size": "32x32",
        "data": {"test": {"builtin": "signs", "n": 70}},
        "models": {"tiny": {"onnx": str(tmp_path / "tiny.onnx")}},
        "protocols": {"classification": {"shifts": ["fog"], "levels": [5]}},
    }
    rw.run(content, out=tmp_path / "runs" / "sliced", progress=rw.no_progress)
    client = client_of(tmp_path / "runs")
    client.app.runs = tmp_path / "runs"  # type: ignore[attr-defined]
    slices = rw.open_run(tmp_path / "runs" / "sliced").tables["classification_by_condition"]
    accuracy = slices[(slices["metric"] == "accuracy") & (slices["shift"] == "fog")]
    assert len(accuracy) > 2
    for _, row in accuracy.iterrows():
        where = {name: row[name] for name in ("model", "shift", "level", "condition", "condition_value", "metric")}
        address = images_of(client, "sliced", "classification_by_condition", **where)
        shown = int(re.findall(r": ([\d,]+) image", text(client.get(address).text))[0])
        right = int(re.findall(r": ([\d,]+) image", text(client.get(f"{address}&show=right").text))[0])
        assert shown == row["n"], row
        assert right / shown == pytest.approx(row["value"])


def test_images_of_every_stored_run_can_be_asked_for(tmp_path: Path) -> None:
    """Runs of every protocol and schema: each table opens, and what it leads to says something."""
    shutil.copytree(GOLDEN, tmp_path / "golden")
    client = client_of(tmp_path / "golden", raise_server_exceptions=True)
    leading = set()
    for run in links(client.get("/").text, '/run/[^"]*'):
        for table in links(client.get(run).text, f'{run}/table/[^"]*'):
            page = client.get(table)
            assert page.status_code == 200, table
            for address in links(page.text, f'{run}/images[^"]*')[:1]:
                images = client.get(address)
                assert images.status_code == 200, address
                assert "image" in text(images.text)
                leading.add(table.split("/")[-1])
    own = {"classification", "ood", "od_test", "monitoring", "localization", "dependability_confusions"}
    assert own <= leading
    assert "anova_classification" not in leading


def test_images_that_cannot_be_made_again_say_why(runs: Path, tmp_path: Path) -> None:
    def sentence(name: str) -> str:
        client = client_of(tmp_path)
        page = client.get(f"/run/{run_id(name)}/images?table=classification&row=0")
        assert page.status_code == 200
        assert not links(page.text, '/run/[^"]*/picture/[^"]*')
        assert len(re.findall(r'class="id"', page.text)) == 48  # the answers are there all the same
        case = next(iter(read_record(tmp_path / name).cases))
        assert client.get(f"/run/{run_id(name)}/picture/{case}/0.png").status_code == 404
        return text(re.findall(r'id="no-pictures">(.*?)</p>', page.text)[0])

    def copied(name: str, before: str, after: str) -> None:
        shutil.copytree(runs / "hostile", tmp_path / name)
        path = tmp_path / name / "study.yaml"
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after))

    data = str(runs.parent / "hostile.npz")
    copied("gone", data, str(tmp_path / "gone.npz"))
    assert "there is no data at" in sentence("gone")
    copied("remote", data, "s3://bucket/hostile.npz")
    assert "at an address (s3://bucket/hostile.npz), and the viewer fetches nothing" in sentence("remote")
    with np.load(data) as stored:
        content = dict(stored)
    content["images"] = content["images"].copy()
    content["images"][0, 0, 0, 0] ^= 1
    np.savez(tmp_path / "other.npz", **content)
    copied("other", data, str(tmp_path / "other.npz"))
    assert "their fingerprint differs" in sentence("other")
    copied("code", "name: hostile", "name: hostile\nplugins: [/nowhere/plugin.py]")
    assert "plugin" in sentence("code")


def test_stored_pictures_stand_in(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "hostile", tmp_path / "run")
    study = tmp_path / "run" / "study.yaml"
    study.write_text(study.read_text().replace("hostile.npz", "gone.npz"))
    client = client_of(tmp_path)
    client.app.runs = tmp_path  # type: ignore[attr-defined]
    mistakes = rw.open_run(tmp_path / "run").tables["classification_mistakes"]
    row = mistakes.iloc[0]
    address = images_of(client, "run", "classification_mistakes", shift=row["shift"], level=row["level"], id=row["id"])
    [picture] = links(client.get(address).text, '/run/[^"]*/file/media/[^"]*')
    assert client.get(picture).content == (tmp_path / "run" / "media" / row["media"]).read_bytes()


# Two runs


def test_two_runs_are_compared(client: TestClient, runs: Path, tmp_path: Path) -> None:
    v1 = run_id("signs/v1")
    for query in ("", f"?run={v1}", f"?run={v1}&run={v1}", f"?run={v1}&run=nothing"):
        assert "Choose two different runs" in client.get(f"/compare{query}").text
    page = client.get(f"/compare?run={v1}&run={run_id('hostile')}")
    assert "cannot be compared" in page.text
    shutil.copytree(runs / "signs", tmp_path / "signs")
    shutil.copytree(tmp_path / "signs" / "v1", tmp_path / "signs" / "v2")
    own = client_of(tmp_path)
    page = own.get(f"/compare?run={v1}&run={run_id('signs/v2')}")
    assert page.status_code == 200
    assert "v2 against v1" in page.text
    assert "no regression" in page.text
    assert "sandbox" in page.headers["content-security-policy"]


def test_the_earlier_run_is_the_baseline_wherever_it_stands(runs: Path, tmp_path: Path) -> None:
    for name, created in (("b", "2026-01-01T00:00:00+00:00"), ("a", "2026-01-02T00:00:00+00:00")):
        shutil.copytree(runs / "signs" / "v1", tmp_path / name)
        record = tmp_path / name / "run.json"
        record.write_text(re.sub(r'"created": "[^"]*"', f'"created": "{created}"', record.read_text(), count=1))
        record_anew(tmp_path / name)
    own, earlier, later = client_of(tmp_path), run_id("b"), run_id("a")
    for pair in ((earlier, later), (later, earlier)):
        assert "a against b" in own.get(f"/compare?run={pair[0]}&run={pair[1]}").text
    assert "Mark two; the earlier one is the baseline." in text(own.get("/").text)
    assert "b (earlier: the baseline)" in text(own.get(f"/run/{later}").text)
    assert "a (later)" in text(own.get(f"/run/{earlier}").text)


def test_a_run_that_is_judged_without_criteria_has_a_headline(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "signs" / "v1", tmp_path / "approval")
    verdict = {"status": "inconclusive", "questions": [], "criteria": []}
    (tmp_path / "approval" / "verdict.json").write_text(json.dumps(verdict))
    record_anew(tmp_path / "approval")
    summary = summarise(tmp_path / "approval", "approval")
    assert (summary.status, summary.headline) == ("inconclusive", "")
    assert Headlines().of(tmp_path / "approval", summary).startswith("Accuracy ")
    without_table = replace(summary, protocols=("operating_points", *summary.protocols))
    assert Headlines().of(tmp_path / "approval", without_table).startswith("Accuracy ")
    assert re.search(
        r'data-label="Headline" class="headline"><span class="clamp">Accuracy ', client_of(tmp_path).get("/").text
    )


# A study that is being run


def test_a_running_study_shows_its_finished_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    protocols = {"classification": {"shifts": ["noise", "fog", "dark", "blur"], "levels": [1, 3, 5], "conditions": []}}
    study = write_study(tmp_path, 56, protocols=protocols)
    run = tmp_path / "runs" / "slow"
    run.parent.mkdir()
    client = client_of(tmp_path / "runs")
    assert "There are no runs here yet" in client.get("/").text
    original = chunks.ask_systems
    lists: list[str] = []
    pages: list[httpx2.Response] = []

    def looking(*given: Any) -> Any:
        lists.append(client.get("/").text)
        pages.append(client.get(f"/run/{run_id('slow')}"))
        return original(*given)

    with monkeypatch.context() as patch:
        patch.setattr(chunks, "ask_systems", looking)
        rw.run(study, out=run, workers=1, progress=rw.no_progress)
    seen: list[int] = []
    for listed, page in zip(lists, pages, strict=True):
        counted = re.findall(r"([\d,]+) of 13 cases finished", text(page.text))
        assert 'data-refresh="1000"' in page.text
        assert "running" in text(listed)
        finished = re.findall(r'id="finished">(.*?)</table>', page.text, re.S)
        rows = re.findall(r'<tr><th scope="row"', finished[0]) if finished else []
        assert len(rows) == int(counted[0])
        seen.append(len(rows))
    assert len({*seen}) > 3
    assert seen == sorted(seen)
    assert 0 < max(seen) <= 13
    assert len({page.headers["etag"] for page in pages}) > 1
    done = client.get(f"/run/{run_id('slow')}")
    assert "no criteria" in text(done.text)
    assert "data-refresh" not in done.text
    assert not [*run.glob("plan.json*")]
    assert rw.open_run(run).verify() == []


def test_a_page_that_is_the_same_is_not_sent_again(client: TestClient) -> None:
    first = client.get("/")
    again = client.get("/", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_stopped_run_is_not_finished_and_not_running(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "stopped"
    run.mkdir()
    (run / ".lock").touch()
    (run / "plan.json.4711.tmp").write_text("{")
    shutil.copy(runs / "hostile" / "study.yaml", run)
    client = client_of(tmp_path)
    assert "run the same command again to go on" in text(client.get(f"/run/{run_id('stopped')}").text)
    assert "not finished" in text(client.get("/").text)


# Who may ask for what


@pytest.mark.parametrize(
    "path",
    [
        *("../secret.txt", "..%2fsecret.txt", "%2e%2e/secret.txt", "%252e%252e/secret.txt", "..%5csecret.txt"),
        *("/etc/passwd", "%2fetc%2fpasswd", "tables/../../secret.txt", "tables/..%2f..%2fsecret.txt", "%00", "a%00b"),
        *("link.txt", "linked/secret.txt", "media/link.png", ".lock", "readouts", "", "notes.txt", "evil.html"),
        *("....//secret.txt", "\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), "tables"),
    ],
)
def test_nothing_outside_a_run_is_read(runs: Path, tmp_path: Path, path: str) -> None:
    shutil.copytree(runs / "hostile", tmp_path / "runs" / "run")
    run = tmp_path / "runs" / "run"
    (tmp_path / "secret.txt").write_text("secret words")
    (tmp_path / "runs" / "secret.txt").write_text("secret words")
    (run / "link.txt").symlink_to(tmp_path / "secret.txt")
    (run / "linked").symlink_to(tmp_path, target_is_directory=True)
    (run / "media" / "link.png").symlink_to(tmp_path / "secret.txt")
    for name in ("notes.txt", "evil.html"):
        (run / name).write_text("secret words")
    change(run, files=read_record(run).files | {"link.txt": "0", "linked/secret.txt": "0", "media/link.png": "0"})
    client = client_of(tmp_path / "runs")
    for address in (f"/run/{run_id('run')}/file/{path}", f"/{path}", f"/static/{path}", f"/run/{path}"):
        answer = client.get(address)
        assert b"secret words" not in answer.content
        assert b"root:" not in answer.content
        assert answer.status_code == 404 or (address == "/" and answer.status_code == 200), address


def test_links_that_lead_outside_are_not_followed(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "linked").symlink_to(runs, target_is_directory=True)
    shutil.copytree(runs / "hostile", tmp_path / "served" / "own")
    (tmp_path / "served" / "own" / "verdict.json").unlink()
    (tmp_path / "served" / "own" / "verdict.json").symlink_to(runs / "hostile" / "verdict.json")
    client = client_of(tmp_path / "served")
    page = text(client.get("/").text)
    assert "1 run" in page
    assert "verdict.json is a link, not a file" in page
    assert client.get(f"/run/{run_id('linked/hostile')}").status_code == 404


@pytest.mark.parametrize(
    ("header", "known"),
    [
        *((host, True) for host in ("localhost", "localhost:8723", "127.0.0.1:1", "[::1]:8723", "[::1]", "LOCALHOST")),
        *((host, False) for host in ("evil.example", "evil.example:8723", "127.0.0.1.evil.example", "", "0.0.0.0")),
        *((host, False) for host in ("localhost.evil.example", "localhost:x", "user@localhost", "192.168.1.5", "[::1")),
    ],
)
def test_a_foreign_host_is_refused(client: TestClient, header: str, known: bool) -> None:
    answer = client.get("/", headers={"host": header})
    assert answer.status_code == (200 if known else 421)
    assert ("signs/v1" in answer.text) is known


def test_a_host_that_is_asked_for_is_known() -> None:
    async def nothing(*_: object) -> None: ...

    assert Guard(nothing, "viewer.example").knows("viewer.example:80")
    assert not Guard(nothing, "viewer.example").knows("other.example")
    assert Guard(nothing, "0.0.0.0").knows("192.168.1.5:8723")
    assert not Guard(nothing, "0.0.0.0").knows("evil.example")
    assert not Guard(nothing, "192.168.1.5").knows("192.168.1.6")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_only_questions_are_answered(client: TestClient, method: str) -> None:
    answer = client.request(method, "/")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"
    assert client.head("/").status_code == 200


def test_every_answer_is_shut_in(client: TestClient) -> None:
    for address in ("/", f"/run/{run_id('hostile')}", "/nothing", "/static/viewer.js", "/compare", "/run/x/file/y"):
        headers = client.get(address).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"


# The command


def test_what_cannot_be_served_is_one_sentence(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no folder" in call("serve", tmp_path / "nothing", code=2)
    assert "is an address" in call("serve", "s3://bucket/runs", code=2)
    assert "cannot listen at 203.0.113.7" in call("serve", runs, "--host", "203.0.113.7", code=2)
    assert "port 70000 is not a port" in call("serve", runs, "--port", "70000", code=2)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "serve" in call("serve", runs, code=2)
    assert "optional dependency" in call("serve", runs, code=2)


def test_another_machine_is_let_in_only_with_a_warning(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    addresses: list[str] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    serve(runs, port=0, ready=addresses.append)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", addresses[0])
    with pytest.warns(UserWarning, match="other machines can reach .* there is no password"):
        serve(runs, host="0.0.0.0", port=0, ready=addresses.append)


# The bundle


def test_a_bundle_holds_all_that_its_pages_load(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "run.json").write_text("{")
    out = tmp_path / "site"
    before = snapshot(tmp_path / "runs")
    assert "3 runs" in call("serve", tmp_path / "runs", "--bundle", out)
    assert snapshot(tmp_path / "runs") == before
    for page in out.rglob("*.html"):
        if page.name == "report.html":
            continue
        content = page.read_text()
        assert HOSTILE not in content
        for link in links(content, '[^"#]*'):
            assert "://" not in link
            assert not link.startswith("/")
            target = (page.parent / link.partition("?")[0]).resolve()
            assert target.is_file(), (page, link)
            assert target.is_relative_to(out)
    listed = json.loads((out / "runs.json").read_text())["runs"]
    assert {entry["name"]: entry["status"] for entry in listed} == {
        "broken": "damaged",
        "hostile": "fail",
        "signs/v1": "none",
    }
    frame = rw.open_run(runs / "signs/v1").tables["classification"]
    pages = sorted((out / "runs" / run_id("signs/v1") / "tables" / "classification").glob("*.json"))
    rows = [row for page in pages for row in json.loads(page.read_text())]
    assert [row[:2] for row in rows] == frame[["model", "shift"]].to_numpy().tolist()
    report = out / "runs" / run_id("hostile") / "report.html"
    assert report.read_bytes() == (runs / "hostile" / "report.html").read_bytes()


def test_a_bundle_goes_to_a_new_folder(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    assert "is not empty" in call("serve", runs, "--bundle", tmp_path / "full", code=2)
    assert "lies in the folder of the runs" in call("serve", runs, "--bundle", runs / "site", code=2)
    assert not (runs / "site").exists()
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["a"]
    assert write_bundle(runs, tmp_path / "new").runs == 2


def test_a_stored_case_is_told_by_its_own_facts() -> None:
    """What the registry's protocols say of a case are columns of their own tables."""
    from roadworthy.core.types import Stimulus
    from roadworthy.protocols import PROTOCOLS

    for name in ("classification", "break_point"):
        protocol = PROTOCOLS.get(name)()
        facts = protocol.row_facts(StoredCase("net", Stimulus("f", "fog", 3, {}, 1)))
        columns = {column for spec in protocol.table_specs for column in spec.columns}
        assert {*facts} - {"repeat"} <= columns
        assert facts["model"] == "net"
