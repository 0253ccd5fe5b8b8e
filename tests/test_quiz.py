"""A quiz for people: the images of a run without their classes, answers that come back, accuracy with bounds."""

from __future__ import annotations

import base64
import csv
import json
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest
import yaml

import roadworthy as rw
from commands import call
from roadworthy.api import prepare
from roadworthy.core.errors import InputError
from roadworthy.protocols.classification.human import COLUMNS, image_key, read_answers
from roadworthy.statistics.intervals import wilson
from roadworthy.study import load_study
from tiny import study, write_study

ASKED = 4
PROTOCOLS = {"classification": {"shifts": ["noise", "fog"], "levels": [1, 5]}}


def payload(page: Path) -> dict[str, Any]:
    """What the script of a page is given."""
    (line,) = [line for line in page.read_text().splitlines() if line.startswith("const quiz = ")]
    content: dict[str, Any] = json.loads(line.removeprefix("const quiz = ").removesuffix(";"))
    return content


def picture(uri: str) -> Any:
    encoded = np.frombuffer(base64.b64decode(uri.removeprefix("data:image/png;base64,")), np.uint8)
    return cv2.imdecode(encoded, cv2.IMREAD_COLOR)[..., ::-1]


def write_answers(path: Path, rows: list[tuple[str, str, str, str]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return path


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study and the page of its quiz."""
    folder = tmp_path_factory.mktemp("quiz")
    source = write_study(folder, protocols=PROTOCOLS)
    said = call("preview", "--quiz", source, "--images", ASKED, "--out", folder / "quiz.html")
    assert "12 images of 3 conditions" in said
    return folder


def test_the_page_shows_the_images_of_the_run_and_no_class(asked: Path) -> None:
    quiz, page = payload(asked / "quiz.html"), (asked / "quiz.html").read_text()
    loaded, base = load_study(asked / "study.yaml")
    prepared = prepare(loaded, base=base, progress=rw.no_progress)
    data, shown = prepared.sources[""].data, {s.stimulus.key: s for s in prepared.plan.stimuli.values()}
    rows = {image_key(image_id): row for row, image_id in enumerate(data.ids)}
    counted = Counter(item["stimulus"].partition("-r0")[0] for item in quiz["items"])
    assert counted == {"none-0": ASKED, "noise-5": ASKED, "fog-5": ASKED}, "the highest level"
    for item in quiz["items"]:
        assert {*item} == {"stimulus", "image", "picture"}
        batch = shown[item["stimulus"]].show(data.batch([rows[item["image"]]]))
        assert np.array_equal(picture(item["picture"]), batch.images[0])
    groups = [data.groups[rows[item["image"]]] for item in quiz["items"]]
    assert len({*groups}) == len(groups), "every image shows another object"
    assert not any(image_id in page for image_id in data.ids)
    assert [known["name"] for known in quiz["classes"]] == [*data.class_names]
    order = [item["stimulus"] for item in quiz["items"]]
    assert order != sorted(order)
    asked_about = {item["picture"] for item in quiz["items"]}
    assert all(known["picture"] not in asked_about for known in quiz["classes"])


def test_the_seed_decides_images_and_order(asked: Path, tmp_path: Path) -> None:
    for name, seed in (("again", 0), ("other", 1)):
        call("preview", "--quiz", asked / "study.yaml", "--images", ASKED, "--seed", seed, "--out", tmp_path / name)
    assert (tmp_path / "again").read_bytes() == (asked / "quiz.html").read_bytes()
    assert (tmp_path / "other").read_bytes() != (asked / "quiz.html").read_bytes()
    call("preview", "fog", "--quiz", asked / "study.yaml", "--level", 1, "--images", 2, "--out", tmp_path / "one")
    keys = Counter(item["stimulus"].partition("-r0")[0] for item in payload(tmp_path / "one")["items"])
    assert keys == {"none-0": 2, "fog-1": 2}


def scripted(folder: Path, name: str, person: str, wrong: str, unsure: str) -> Path:
    """The answers of somebody who errs under one shift and cannot tell under another, both in one image less."""
    quiz = payload(folder / "quiz.html")
    data = rw.open_dataset({"builtin": "signs", "n": 150}, size=32)
    label = {image_key(i): data.class_names[k] for i, k in zip(data.ids, data.labels, strict=True)}
    rows, left = [], {wrong: ASKED - 1, unsure: ASKED - 1}
    for item in quiz["items"]:
        shift, answer = item["stimulus"].partition("-")[0], label[item["image"]]
        if left.get(shift, 0):
            left[shift] -= 1
            answer = "" if shift == unsure else next(other for other in data.class_names if other != answer)
        rows.append((person, item["stimulus"], item["image"], answer))
    return write_answers(folder / name, rows)


def test_human_accuracy_stands_in_the_report_with_n_and_bounds(asked: Path, tmp_path: Path) -> None:
    answers = scripted(asked, "answers.csv", "a", wrong="noise", unsure="fog")
    said = call("preview", "--quiz", asked / "study.yaml", "--answers", answers).splitlines()
    lo, hi = wilson(1, ASKED)
    bounds = f"0.250  {lo:.3f} to {hi:.3f}".split()
    assert [line.split() for line in said[1:]] == [
        ["none", "0", "1.000", f"{wilson(4, 4)[0]:.3f}", "to", "1.000", "4", "4", "0"],
        ["fog", "5", *bounds, "4", "4", "3"],
        ["noise", "5", *bounds, "4", "4", "0"],
    ]
    plain = rw.run_study(asked / "study.yaml", out=tmp_path / "plain", workers=1, progress=rw.no_progress)
    content = yaml.safe_load((asked / "study.yaml").read_text())
    content["protocols"]["classification"]["human"] = "answers.csv"
    (asked / "answered.yaml").write_text(yaml.safe_dump(content))
    run = rw.run_study(asked / "answered.yaml", out=tmp_path / "run", workers=1, progress=rw.no_progress)
    table = run.tables["classification_human"]
    people = table[table["answered_by"] == "people"].set_index("shift")
    assert [*people.index] == ["none", "fog", "noise"]
    assert people[["level", "people", "cannot_tell", "n", "groups"]].to_numpy().tolist() == [
        [0, 1, 0, 4, 4],
        [5, 1, 3, 4, 4],
        [5, 1, 0, 4, 4],
    ]
    assert people.loc["fog", ["value", "lo", "hi", "method"]].to_list() == [0.25, lo, hi, "wilson"]

    items, readouts = payload(asked / "quiz.html")["items"], {}
    for part in (tmp_path / "run" / "readouts").glob("*/part-*.parquet"):
        frame = pd.read_parquet(part).set_index("id")
        if "prediction" in frame:  # the conditions of the data are no answers
            readouts[part.parent.name.rsplit("-", 2)[0]] = frame
    for shift, row in table[table["answered_by"] == "model"].set_index("shift").iterrows():
        answered = readouts[f"{shift}-{row['level']}"]
        keys = {image_key(image_id): image_id for image_id in answered.index}
        own = answered.loc[[keys[i["image"]] for i in items if i["stimulus"].startswith(f"{shift}-")]]
        assert row["value"] == (own["prediction"] == own["label"]).mean()
        assert (row["model"], row["n"], row["people"]) == ("tiny", 4, 0)

    assert "classification_human" not in plain.tables
    section = re.compile(r'<section id="[^"]*human"[^>]*>(.*?)</section>', re.S)
    assert not section.search(plain.report().read_text())
    shown = section.search(run.report().read_text())
    assert shown
    words = re.sub(r"<[^>]*>", " ", shown[1])
    assert re.search(r"fog, level 5\s+4\s+4\s+1\s+3\s+25\.0", words), words
    answers.unlink()
    assert run.verify() == [], "the run holds the answers itself"
    other = [name for name in plain.tables if not name.startswith("timing_")]
    assert [name for name in other if not plain.tables[name].equals(run.tables[name])] == []


def test_several_people_on_one_image_are_one_object(asked: Path, tmp_path: Path) -> None:
    first = scripted(asked, "first.csv", "a", wrong="noise", unsure="fog").read_text()
    second = scripted(asked, "second.csv", "b", wrong="none", unsure="").read_text()
    (tmp_path / "both.csv").write_text(first + second.partition("\n")[2])
    said = call("preview", "--quiz", asked / "study.yaml", "--answers", tmp_path / "both.csv").splitlines()
    shift, level, accuracy, *_, n, objects, _ = said[3].split()
    assert (shift, level, accuracy, n, objects) == ("noise", "5", "0.625", "8", "4")


HOSTILE = ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "=cmd|' /C calc'!A0", 'a,"b"\nc']


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (24, 8, 8, 3), dtype=np.uint8), np.arange(24) % len(HOSTILE)
    np.savez(folder / "data.npz", images=images, labels=labels, class_names=np.array(HOSTILE))
    content = study(folder, data={"test": str(folder / "data.npz")}, size=8, protocols=PROTOCOLS)
    (folder / "<img src=x>.yaml").write_text(yaml.safe_dump(content))
    call("preview", "--quiz", folder / "<img src=x>.yaml", "--images", 2, "--out", folder / "quiz.html")
    return folder


def test_names_cannot_break_out_of_the_page(hostile: Path) -> None:
    class Tags(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.seen = Counter[str]()

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.seen[tag] += 1
            assert not any(name.startswith("on") for name, _ in attrs)

    reader = Tags()
    reader.feed((hostile / "quiz.html").read_text())
    assert (reader.seen["script"], reader.seen["img"]) == (1, 1)
    assert [known["name"] for known in payload(hostile / "quiz.html")["classes"]] == HOSTILE
    assert "default-src 'none'" in (hostile / "quiz.html").read_text()


BROWSER = """
class Element {
  constructor() { this.listeners = {}; this.children = []; this.attributes = {}; }
  append(child) { this.children.push(child); }
  addEventListener(name, act) { this.listeners[name] = act; }
  setAttribute(name, value) { this.attributes[name] = value; }
  click() { if (this.listeners.click) { this.listeners.click(); } else { globalThis.saved = this; } }
}
const elements = {};
const find = (id) => elements[id] ??= new Element();
globalThis.document = { getElementById: find, createElement: () => new Element() };
URL.createObjectURL = (blob) => blob;
find("person").value = '=me "and" you';
"""
PERSON = """
const pressed = () => find("classes").children.map((button) => button.attributes["aria-pressed"] === "true");
find("classes").children[1].click();
find("back").click();
if (!pressed()[1] || pressed()[0]) { throw new Error("the answer that was given is not marked"); }
for (const button of find("classes").children) { button.click(); }
find("unsure").click();
find("next").click();
if (find("count").textContent !== "Image 6 of 6; answered: 5") { throw new Error(find("count").textContent); }
if (find("shown").src !== quiz.items[5].picture) { throw new Error("another image is shown"); }
find("save").click();
saved.href.text().then((text) => process.stdout.write(text));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the script of the page")
def test_the_page_saves_what_a_person_clicks(hostile: Path, tmp_path: Path) -> None:
    """Each class once, in order, after a change of mind; then once that they cannot tell; the last one is open."""
    script = (hostile / "quiz.html").read_text().partition("<script>")[2].partition("</script>")[0]
    script = script.replace('"use strict";', "", 1)
    (tmp_path / "quiz.js").write_text(BROWSER + script + PERSON)
    done = subprocess.run(["node", str(tmp_path / "quiz.js")], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    (tmp_path / "answers.csv").write_bytes(done.stdout)
    assert done.stdout.decode().splitlines()[1].startswith('"\'=me ""and"" you",')
    expected: dict[str, dict[str, str]] = {}
    for item, answer in zip(payload(hostile / "quiz.html")["items"], [*HOSTILE, ""], strict=False):
        expected.setdefault(item["stimulus"], {})[item["image"]] = answer
    assert read_answers(tmp_path / "answers.csv") == {'=me "and" you': expected}
    call("preview", "--quiz", hostile / "<img src=x>.yaml", "--answers", tmp_path / "answers.csv")


def test_answers_that_cannot_be_used(asked: Path, tmp_path: Path) -> None:
    item = payload(asked / "quiz.html")["items"][0]
    row = ("a", item["stimulus"], item["image"], "stop")
    mistakes = {
        "which the study does not show": [("a", "fog-5-r0-00000000", item["image"], "stop")],
        "which the data does not have": [("a", item["stimulus"], "0" * 16, "stop")],
        "did you mean 'stop'": [("a", item["stimulus"], item["image"], "stopp")],
        "row 3 answers an image of .* a second time": [row, row],
        "row 2 has 3 cells, not 4": [row[:3]],
        "hold no answer": [],
    }
    for words, rows in mistakes.items():
        path = write_answers(tmp_path / "answers.csv", rows)  # type: ignore[arg-type]
        assert re.search(words, call("preview", "--quiz", asked / "study.yaml", "--answers", path, code=2)), words
        protocols = {"classification": {**PROTOCOLS["classification"], "human": str(path)}}
        with pytest.raises(InputError, match=words):
            rw.run_study(study(tmp_path, protocols=protocols), out=tmp_path / "run", progress=rw.no_progress)
    (tmp_path / "answers.csv").write_text("id,answer\n")
    words = "must have the columns person, stimulus, image, answer"
    assert words in call("preview", "--quiz", asked / "study.yaml", "--answers", tmp_path / "answers.csv", code=2)
    (tmp_path / "answers.csv").write_bytes(b"\xff\xfe")
    answers = ("--answers", tmp_path / "answers.csv")
    assert "no CSV file in UTF-8" in call("preview", "--quiz", asked / "study.yaml", *answers, code=2)
    assert "cannot be read" in call("preview", "--quiz", asked / "study.yaml", "--answers", tmp_path / "no", code=2)
    assert not (tmp_path / "run").exists()


def test_examples_of_classes_are_training_images_where_there_are_any(tmp_path: Path) -> None:
    train = {"builtin": "signs", "split": "train", "n": 140}
    data = {"test": {"builtin": "signs", "n": 30}, "train": train}
    source = write_study(tmp_path, data=data, protocols=PROTOCOLS)
    call("preview", "--quiz", source, "--images", 6, "--out", tmp_path / "quiz.html")
    trained = rw.open_dataset(train, size=32)
    for label, known in enumerate(payload(tmp_path / "quiz.html")["classes"]):
        row = trained.labels.tolist().index(label)
        assert np.array_equal(picture(known["picture"]), trained.batch([row]).images[0])


def test_attacks_are_left_out_and_several_sources_refused(tmp_path: Path) -> None:
    source = write_study(tmp_path, protocols={"classification": {"shifts": ["square", "fog"], "levels": [5]}})
    page = tmp_path / "quiz.html"
    said = call("preview", "--quiz", source, "--images", 2, "--out", page)
    assert "square is left out: it is an attack" in said
    assert len(payload(page)["items"]) == 4
    page.unlink()
    assert "square is an attack" in call("preview", "square", "--quiz", source, "--out", page, code=2)
    content = study(tmp_path, protocols=PROTOCOLS)
    one = {"data": content.pop("data"), "models": content.pop("models")}
    source.write_text(json.dumps({**content, "sources": {"a": one, "b": one}}))
    assert "several" in call("preview", "--quiz", source, "--out", page, code=2)
    answers = {"a": {"fog-5-r0-00000000": {"0": "stop"}}}
    content["protocols"] = {"classification": {**PROTOCOLS["classification"], "human": answers}}
    with pytest.raises(InputError, match="study of one source"):
        rw.run_study({**content, "sources": {"a": one, "b": one}}, out=tmp_path / "run", progress=rw.no_progress)
    source.write_text(yaml.safe_dump(study(tmp_path, protocols={"dependability": {}})))
    assert "has no protocol classification" in call("preview", "--quiz", source, "--out", page, code=2)
    assert not page.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--quiz", "study.yaml", "--data", "builtin:signs"), "--data is not used with --quiz"),
        (("--quiz", "study.yaml", "--answers", "a.csv", "--level", "5"), "--level is not used with --answers"),
        (("--answers", "a.csv"), "--answers is not used without --quiz"),
        (("--quiz", "study.yaml", "--level", "3"), "shows noise at the levels 1, 5, not at 3"),
        (("fogg", "--quiz", "study.yaml"), "did you mean 'fog'"),
        (("--quiz", "study.yaml", "--images", "64"), "the data shows 30 objects"),
    ],
)
def test_a_quiz_that_cannot_be(
    asked: Path, words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copy(asked / "study.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert message in call("preview", *words, code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]
