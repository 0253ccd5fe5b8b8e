"""Lists in large JSON files: every element with its line, little of the file in memory, and the line of a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.core.errors import InputError
from roadworthy.data.curation import json_lists
from roadworthy.data.curation.json_lists import json_list, json_sections


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("chunk", [1, 3, 7, 1000])
def test_elements_are_whole_whatever_the_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(json_lists, "CHUNK", chunk)
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf [\r\n {"a": [1,\n 2]},\n 12345, -1.5e3,\n\n "x\\n\xc3\xa9" , null]\n\n')
    assert list(json_list(path)) == [(2, {"a": [1, 2]}), (4, 12345), (4, -1500.0), (6, "x\n\u00e9"), (6, None)]
    for empty in ("[]", " [\n] "):
        assert list(json_list(write(path, empty))) == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(VALUES, max_size=4), st.integers(1, 40), st.booleans())
def test_a_list_is_what_the_library_reads_at_once(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], chunk: int, ascii_alone: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lists, "CHUNK", chunk)
        write(path, json.dumps(values, ensure_ascii=ascii_alone))
        assert [value for _, value in json_list(path)] == values
        write(path, json.dumps({"other": values, "b": values, "a": []}, ensure_ascii=ascii_alone))
        assert [value for _, _, value in json_sections(path, ("a", "b"))] == values


@pytest.mark.parametrize("chunk", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1: the file ends where a list in \[ \] is expected"),
        ("\n{}", r"line 2: a list in \[ \] is expected here"),
        ("[1,\n2", r"line 2: the file ends where a comma or \] is expected"),
        ("[1\n2]", r"line 2: a comma or \] is expected here"),
        ("[1,\n]", r"line 2: this is not valid JSON \(Expecting value\)"),
        ("[1,\n{\n3}]", r"line 3: this is not valid JSON \(Expecting property name"),
        ('[{"a":\n1', r"line 2: the file ends before the JSON does"),
        ('["abc', r"line 1: the file ends before the JSON does"),
        ("[]\n]", r"line 2: nothing may follow here"),
        ("[1]\n\n2", r"line 3: nothing may follow here"),
        ("[\n" + "[" * 100_000, r"line 2: the JSON is nested too deeply"),
        ("[1,\n" + "9" * 5000 + "]", r"line 2: a number has too many digits"),
    ],
)
def test_a_broken_list_is_named_with_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str, chunk: int
) -> None:
    monkeypatch.setattr(json_lists, "CHUNK", chunk if len(text) < 100 else 1000)
    with pytest.raises(InputError, match=rf"a\.json, {message}"):
        list(json_list(write(tmp_path / "a.json", text)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1: the file ends where an object in \{ \} is expected"),
        ("[]", r"line 1: an object in \{ \} is expected here"),
        ("{}", r"line 1: the object ends here without a list 'a'"),
        ('{"a": [1],\n"x": {"a": [2]}}', r"line 2: the object ends here without a list 'b'"),
        ('{"a": [],\n"b": {}}', r"line 2: a list in \[ \] is expected here"),
        ('{"a": [],\n"a": []}', r"line 2: there are two lists 'a': keep one of them"),
        ('{"a": [],\n3: []}', r"line 2: a name in double quotes is expected here"),
        ('{"a"\n[]}', r"line 2: a colon is expected here"),
        ('{"a": []\n"b": []}', r"line 2: a comma or \} is expected here"),
        ('{"a": [],\n"b": []} ]', r"line 2: nothing may follow here"),
    ],
)
def test_broken_sections_are_named_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"a\.json, {message}"):
        list(json_sections(write(tmp_path / "a.json", text), ("a", "b")))


def test_the_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'[1,\n"\xe9"]')
    with pytest.raises(InputError, match=r"a\.json, line 2: this is not UTF-8 text: save the file as UTF-8"):
        list(json_list(path))


def test_a_file_is_never_held_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lists, "CHUNK", 50)
    held: list[int] = []
    fill = json_lists._JsonText.fill

    def noted(self: json_lists._JsonText) -> None:
        fill(self)
        held.append(len(self.text))

    monkeypatch.setattr(json_lists._JsonText, "fill", noted)
    elements = json.dumps([{"number": number} for number in range(1000)])
    assert len(list(json_list(write(tmp_path / "a.json", elements)))) == 1000
    assert len(list(json_sections(write(tmp_path / "a.json", f'{{"a": {elements}}}'), ("a",)))) == 1000
    # A fault is found where it is, and not when all of the file is in memory.
    with pytest.raises(InputError, match="line 1: this is not valid JSON"):
        list(json_list(write(tmp_path / "a.json", elements.replace("{", "[", 1))))
    assert max(held) < 150
