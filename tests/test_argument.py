"""What a verdict exports: the matrix, and claim, argument and evidence as Mermaid, for vnvspec and as a picture."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook
from vnvspec import Report, Spec, TraceLink, build_trace_graph
from vnvspec.exporters.gsn_mermaid import export_gsn_mermaid

import roadworthy as rw
from commands import call
from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest_file
from roadworthy.statistics import Estimate
from roadworthy.verdict import Criterion, Failed, Measurement, judge
from samples import fill, study

HOSTILE = [
    '=cmd|"/c calc"!A1',
    "<script>alert(1)</script>",
    '"]; click G1 "x"',
    "%%{init: {}}%%",
    "a\x00b\n-->",
    "+1",
    "é🙂",
]
TEXT = r"(?:[\w .,:()/=+-]|#\d+;|<br/>|</?b>)*"
NODE = rf'    (?:(?:G\d+\["{TEXT}"\])|(?:S\d+\[/"{TEXT}"/\])|(?:Sn\d+\(\["{TEXT}"\]\))|(?:C\d+\("{TEXT}"\)))'
EDGE = r"    (?:G|S|Sn)\d+ (?:-->|-\.->) (?:G|S|Sn|C)\d+"
CLASS = r"    class(?:Def \w+ fill:#\w{6},stroke:#\w{6},color:#\w{6}| [GS\d,n]+ \w+)"
CRITERIA: list[dict[str, Any]] = [
    {"id": "A-1", "metric": "accuracy", "where": {"shift": "grey"}, "at_least": 0.99, "hazard": "=misread in fog"},
    {
        **{"id": "A-2", "metric": "accuracy_drop", "where": {"shift": "grey", "level": 5}, "at_most": 0.9},
        **{"hazard": "lost", "triggering_condition": "dusk", "min_groups": 12, "confidence": 0.9},
    },
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    folder = fill(tmp_path_factory.mktemp("argued"))
    content = study(data={"test": str(folder / "data.npz")}, models={"=m": {"onnx": str(folder / "model.onnx")}})
    content["criteria"] = {"example": True, "criteria": CRITERIA}
    return rw.run_study(content, out=folder / "run", workers=1, accept_chance=True, progress=rw.no_progress)


def of_hostile_names(name: str) -> Any:
    criterion = Criterion(id=name.replace("\0", ""), metric="accuracy", at_least=0.9, hazard=name.replace("\0", ""))
    row = Measurement({"model": name}, Estimate(0.5, 0.4, 0.6, n=9, groups=9))
    return judge([criterion], lambda asked, confidence: [row], failed=[Failed(name, name)])


def read_mermaid(text: str) -> dict[str, set[str]]:
    """The nodes of a flowchart with what they point to, by a strict grammar."""
    first, *lines = text.rstrip("\n").split("\n")
    assert first == "flowchart TD"
    links: dict[str, set[str]] = {}
    for line in lines:
        assert re.fullmatch(f"(?:{NODE})|(?:{EDGE})|(?:{CLASS})", line), line
        if re.fullmatch(NODE, line):
            links[re.match(r"\s*(\w+?\d+)", line)[1]] = set()  # type: ignore[index]
    for line in lines:
        if re.fullmatch(EDGE, line):
            start, _, end = line.split()
            assert {start, end} <= links.keys(), "every node of an edge is there"
            links[start].add(end)
    return links


def test_every_claim_of_the_flowchart_is_supported_by_artefacts(run: rw.Run) -> None:
    text = run.verdict().argument().to_mermaid()
    links = read_mermaid(text)
    goals = [name for name in links if name.startswith("G") and name != "G1"]
    assert len(goals) == len(CRITERIA)
    assert all(any(end.startswith("Sn") for end in links[goal]) for goal in goals)
    reached, todo = set(), ["G1"]
    while todo:
        node = todo.pop()
        reached.add(node)
        todo += [end for end in links[node] if end not in reached]
    assert reached == links.keys(), "one tree"
    manifests = [sha for name, sha in run.record.files.items() if name.endswith("manifest.json")]
    assert any(sha[:12] in text for sha in manifests)
    assert run.record.first.data.fingerprint[:12] in text


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_names(name: str) -> None:
    verdict = of_hostile_names(name)
    argument = verdict.argument()
    read_mermaid(argument.to_mermaid())
    for picture in (argument.to_svg(), argument.inline_svg()):
        tags = {element.tag.rpartition("}")[2] for element in ET.fromstring(picture).iter()}
        assert tags <= {"svg", "title", "style", "g", "path", "rect", "polygon", "text"}
    assert json.loads(argument.to_json())["requirements"][0]["id"] == verdict.findings[0].criterion.id
    sheet = load_workbook(io.BytesIO(verdict.to_xlsx()))["Criteria"]
    assert all(cell.data_type != "f" for row in sheet.iter_rows() for cell in row), "no cell is a formula"
    assert ET.fromstring(verdict.to_junit()).get("failures") == "1"


def test_vnvspec_reads_it_and_comes_to_the_same_verdict(run: rw.Run, tmp_path: Path) -> None:
    path, verdict = tmp_path / "argument.json", run.verdict()
    path.write_text(verdict.argument().to_json())
    spec, report = Spec.from_json(path), Report.model_validate_json(path.read_text())
    assert [requirement.id for requirement in spec.requirements] == ["A-1", "A-2"]
    assert spec.coverage_summary() == {"total": 2, "covered": 2, "uncovered": 0}
    assert report.verdict() == verdict.status
    assert len(report.evidence) == sum(len(finding.rows) for finding in verdict.findings)
    assert export_gsn_mermaid(report).startswith("flowchart TD")
    second = spec.get_requirement("A-2")
    assert second.metadata["validation_target"] == "at least 12 independent objects"
    assert second.metadata["acceptance_criterion"] == second.acceptance_criteria[0]
    assert "triggering condition: dusk" in second.rationale
    assert not spec.hazards, "no rating is made up"
    drop = spec.evidence_for("A-2")[0].details["artefacts"]
    assert {one["name"] for one in drop if one["kind"] == "readouts"} == {"=m at none", "=m at grey 5"}
    for one in (one for one in drop if one["kind"] in ("readouts", "table")):
        assert digest_file(run.path / one["file"]) == one["sha256"]
    tree = spec.metadata["argument"]
    links = [TraceLink(**{**link, "relation": "derives_from"}) for link in tree["links"]]
    assert len(build_trace_graph(links)) == len(tree["nodes"])
    failed = of_hostile_names("x").argument().to_vnvspec()
    assert Report.model_validate(failed).verdict() == "fail"


def test_the_matrix_has_a_row_per_condition_with_its_evidence(run: rw.Run, tmp_path: Path) -> None:
    content = run.verdict().to_xlsx(tmp_path / "v.xlsx")
    assert (tmp_path / "v.xlsx").read_bytes() == content == run.verdict().to_xlsx(), "the same verdict, the same file"
    book = load_workbook(tmp_path / "v.xlsx")
    assert book.sheetnames == ["Criteria", "Summary", "Evidence", "Models", "Provenance"]
    sheet = book["Criteria"]
    head, *rows = sheet.iter_rows(values_only=True)
    by_name = [dict(zip(head, row, strict=True)) for row in rows]
    assert [row["Requirement"] for row in by_name] == ["A-1", "A-1", "A-2"]
    assert (sheet.freeze_panes, sheet.auto_filter.ref) == ("B2", f"A1:{sheet.cell(1, len(head)).column_letter}4")
    assert by_name[0]["Hazard"] == "=misread in fog"
    assert sheet["C2"].data_type == "s", "text, not a formula"
    last = by_name[2]
    assert (last["Triggering condition"], last["Threshold"], last["Confidence"]) == ("dusk", 0.9, 0.9)
    assert (last["Acceptance criterion"], last["Validation target"]) == (
        "at most 0.9",
        "at least 12 independent objects",
    )
    assert by_name[0]["Validation target"] == "none"
    row = run.verdict().findings[1].rows[0].measurement.estimate
    assert (last["Value"], last["Lower bound"], last["Images"], last["Independent units"]) == (
        *(pytest.approx(row.value), pytest.approx(row.lo)),
        *(row.n, row.groups),
    )
    assert digest_file(run.path / last["Evidence file"]) == last["SHA-256"]
    assert all(5 < sheet.column_dimensions[letter].width <= 61 for letter in "ABCDEF")
    files = [row[3:5] for row in book["Evidence"].iter_rows(min_row=2, values_only=True) if row[1] == "readouts"]
    assert all(digest_file(run.path / file) == sha for file, sha in files)
    assert {row[0] for row in book["Models"].iter_rows(min_row=2, values_only=True)} == {"=m"}


def test_the_command_writes_them_and_says_what_it_does_not_know(run: rw.Run, tmp_path: Path) -> None:
    code = run.verdict().exit_code
    for ending, start in ((".svg", "<svg "), (".mmd", "flowchart TD"), (".json", "{")):
        call("verdict", run.path, "--argument", tmp_path / f"a{ending}", code=code)
        assert (tmp_path / f"a{ending}").read_text().startswith(start)
    call("verdict", run.path, "--json", tmp_path / "v.json", "--xlsx", tmp_path / "v.xlsx", code=code)
    assert json.loads((tmp_path / "v.json").read_text()) == json.loads((run.path / "verdict.json").read_text())
    assert (tmp_path / "v.xlsx").read_bytes()[:2] == b"PK"
    says = call("verdict", run.path, "--junit", tmp_path / "j.xml", "--argument", tmp_path / "a.pdf", code=2)
    assert "a.pdf must end in .mmd (Mermaid), .json (vnvspec) or .svg (a picture)" in says
    assert not (tmp_path / "j.xml").exists(), "nothing is written where one cannot be"
    with pytest.raises(InputError, match="must end in"):
        run.verdict().argument().written_as("a.txt")


def test_the_report_shows_the_argument_with_the_hashes_of_the_run(run: rw.Run) -> None:
    text = (run.path / "report.html").read_text()
    assert "The argument" in text
    assert run.verdict().argument().inline_svg() in text
    assert "Validation target" in text
    assert "Triggering condition: dusk" in text


def test_junit_names_acceptance_criterion_and_validation_target_apart(run: rw.Run) -> None:
    cases = ET.fromstring(run.verdict().to_junit()).findall("testcase")
    named = [{one.get("name"): one.get("value") for one in case.iter("property")} for case in cases]
    assert named[2]["acceptance_criterion"] == "accuracy_drop at most 0.9 for shift grey, level 5 (each, 90%)"
    assert named[2]["validation_target"] == "at least 12 independent objects"
    assert (named[2]["triggering_condition"], named[2]["evidence"]) == ("dusk", "12 independent objects")
