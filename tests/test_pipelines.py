"""Release pipelines: verdict and comparison as Markdown, and the examples for GitHub and GitLab, run as written."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import string
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from markdown_it import MarkdownIt

import roadworthy as rw
from commands import call
from records import run_record, source_record
from roadworthy.report.markdown import code, comparison_markdown, text, verdict_markdown
from roadworthy.statistics.paired import IMPROVEMENT, NO_DIFFERENCE, REGRESSION
from tiny import save_onnx, study, write_npz

CI = Path(__file__).parent.parent / "examples" / "ci"
GITHUB, GITLAB = CI / ".github" / "workflows" / "roadworthy.yml", CI / ".gitlab-ci.yml"
HOSTILE = (
    "|",
    "a|b",
    "\\|",
    "`",
    "``|``",
    "<img src=x onerror=alert(1)>",
    "*b*",
    "[x](http://x.y)",
    "@team",
    "#1",
    "\n# h",
)
CRITERIA = [
    {"id": "FOG", "metric": "accuracy", "where": {"shift": "fog"}, "at_least": 0.99, "hazard": "misread in fog"},
    {"id": "CLEAN", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.1},
]


def rendered(markdown: str) -> str:
    """As GitHub would show it, all HTML in it let through."""
    return str(MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough").render(markdown))


def shape(html: str) -> list[list[int]]:
    """The number of cells of every row of every table."""
    tables = re.findall(r"<table>.*?</table>", html, re.DOTALL)
    return [
        [len(re.findall(r"<t[hd]", row)) for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)] for table in tables
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run and a later one of a worse model."""
    folder, made = tmp_path_factory.mktemp("runs"), []
    protocols = {"classification": {"shifts": ["fog"], "levels": [1, 5]}}
    for name, blur in (("old", 0.0), ("new", 1.0)):
        models = {"tiny": {"onnx": str(save_onnx(folder / f"{name}.onnx", blur=blur))}}
        content = study(folder, n=140, protocols=protocols, models=models, criteria=CRITERIA)
        made.append(rw.run(content, out=folder / name, progress=rw.no_progress).path)
    return made[0], made[1]


def test_the_verdict_as_a_job_summary(runs: tuple[Path, Path], tmp_path: Path) -> None:
    printed = call("verdict", runs[0], "--markdown", "-", code=1)
    lines = printed.splitlines()
    assert lines[0] == "## Roadworthy: ❌ fail"
    assert "`tiny` on `signs` (140 images of 28 objects)" in lines[2]
    row = rw.open_run(runs[0]).tables["classification"].query("shift == 'fog' and level == 5 and metric == 'accuracy'")
    figures = f"| {100 * row['value'].item():.1f}\u00a0% | {100 * row['lo'].item():.1f} to"
    failed = next(line for line in lines if line.startswith("| ❌ fail | `FOG` misread in fog | Accuracy"))
    assert figures in failed
    assert failed.endswith("| at least 99.0\u00a0% | 28 independent objects | `model tiny, shift fog, level 5` |"), (
        "the worst of both levels"
    )
    assert lines.index(failed) < next(i for i, line in enumerate(lines) if "✅ pass | `CLEAN`" in line)
    assert any(line.startswith("- Worst condition: fog level 5: tiny") for line in lines)
    assert "<summary>The worst of 2 conditions that do not meet a criterion</summary>" in printed
    assert [len(set(rows)) for rows in shape(rendered(printed))] == [1, 1]
    assert len(lines) < 30
    file = tmp_path / "summary.md"
    plain = call("verdict", runs[0], "--markdown", file, code=1)
    assert "verdict: fail" in plain
    assert file.read_text() == printed
    assert rw.open_run(runs[0]).markdown() == printed


def test_the_summary_of_github_is_appended_to(
    runs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "summary.md"
    file.write_text("of an earlier step\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    call("verdict", runs[0], "--markdown", file, code=1)
    assert file.read_text().startswith("of an earlier step\n## Roadworthy: ❌ fail")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    call("verdict", runs[0], "--markdown", file, code=1)
    assert file.read_text().startswith("## Roadworthy: ❌ fail"), "any other file is written anew"
    says = call("verdict", runs[0], "--markdown", tmp_path / "absent" / "x.md", code=2)
    assert says == f"cannot write {tmp_path / 'absent' / 'x.md'}: No such file or directory"


def test_a_run_without_criteria_or_with_failures_says_so() -> None:
    record = run_record(source_record(["tiny"], ["a", "b"], images=3, groups=1))
    empty = verdict_markdown({"status": "none", "criteria": [], "failed": []}, record, [])
    assert "## Roadworthy: no criteria" in empty
    assert "nothing was judged" in empty
    failed = [{"name": f"tiny at fog {level}", "reason": "out of memory", "kind": "case"} for level in range(7)]
    shown = verdict_markdown({"status": "inconclusive", "criteria": [], "failed": failed}, record, [])
    assert "**7 parts of the run failed, which is never a pass:**" in shown
    assert "- `tiny at fog 0`: out of memory" in shown
    assert "... and 2 more in the report." in shown


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_names(name: str) -> None:
    row = {"where": {"model": name}, "value": 0.5, "lo": 0.4, "hi": 0.6, "status": "fail", "because": name, "n": 1}
    row |= {"groups": 1, "unit": "independent objects"}
    entry = {"id": name, "metric": "accuracy", "at_least": 0.9, "confidence": 0.95, "hazard": name, "remark": name}
    criteria: list[dict[str, Any]] = [{**entry, "status": "fail", "rows": [row, row]}]
    failed = [{"name": name, "reason": name, "kind": "case"}]
    record = run_record(source_record([name], ["a", "b"], name=name, images=3, groups=1), study=name)
    verdict = {
        "status": "fail",
        "criteria": criteria,
        "failed": failed,
        "questions": [{"question": name, "status": "fail"}],
    }
    html = rendered(verdict_markdown(verdict, record, [name]))
    assert shape(html) == [[2, 2], [8, 8], [6, 6, 6]]
    assert set(re.findall(r"<(\w+)", html)) <= {
        *("h2", "p", "code", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "strong"),
    }
    for called in ("@team", "#1"):
        assert called not in re.sub(r"<code>.*?</code>", "", html), "nobody is called, nothing is linked"
    plain = html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("\u200b", "")
    assert plain.count(" ".join(name.split())) >= 9, "and every name can be read"


def test_code_and_text_keep_what_they_are_given() -> None:
    for name in HOSTILE:
        for written in (code(name), text(name)):
            html = rendered(f"| {written} |\n|---|\n| {written} |\n")
            assert shape(html) == [[1, 1]]
    assert len(code("x" * 500)) < 200


def test_the_comparison_as_a_comment(runs: tuple[Path, Path], tmp_path: Path) -> None:
    printed = call("compare", *runs, "--markdown", "-", "--metric", "accuracy", "--out", tmp_path / "changes.csv")
    changes = pd.read_csv(tmp_path / "changes.csv")
    worse = changes[changes["result"] == REGRESSION]
    assert printed.startswith(f"## Roadworthy: ❌ {len(worse)} regression")
    assert "`new/tiny` against `old/tiny`: the same images" in printed
    first = worse.iloc[0]
    assert (
        f"| `undisturbed` | Accuracy | {100 * first['before']:.1f}\u00a0% | {100 * first['after']:.1f}\u00a0% |"
        in printed
    )
    assert all(len(set(rows)) == 1 for rows in shape(rendered(printed)))
    file = tmp_path / "comment.md"
    plain = call("compare", *runs, "--markdown", file, "--metric", "accuracy", "--fail-on", "regression", code=1)
    assert file.read_text() == printed
    assert plain.startswith(f"{len(worse)} regression")
    same = call("compare", runs[0], runs[0], "--markdown", "-", "--metric", "accuracy")
    assert same.startswith("## Roadworthy: ✅ 0 regressions, 0 improvements")


def test_a_comment_on_hundreds_of_changes_stays_short(runs: tuple[Path, Path]) -> None:
    row = rw.compare(runs, metrics=["accuracy"]).iloc[[0]]
    results = [REGRESSION] * 120 + [IMPROVEMENT] * 100 + [NO_DIFFERENCE] * 200
    table = pd.concat([row] * len(results), ignore_index=True)
    table["result"] = results
    table["condition"] = [f"{HOSTILE[i % len(HOSTILE)]} {i}" for i in range(len(table))]
    table["model"] = [f"new/{HOSTILE[i % len(HOSTILE)]}" for i in range(len(table))]
    table["level"] = 1
    comment = comparison_markdown(table, 0.05, 0.001)
    assert len(comment.splitlines()) <= 60
    assert comment.startswith("## Roadworthy: ❌ 120 regressions, 100 improvements")
    html = rendered(comment)
    assert shape(html) == [[8] * 16, [9] * 21]
    assert "105 further regressions, 100 improvements and 200 without a clear difference" in html
    assert "<img" not in html
    assert html.index("<details>") > html.index("</table>"), "regressions are in sight, the rest is folded"
    assert "... and 385 more in the CSV" in comment


@pytest.mark.skipif(importlib.util.find_spec("check_jsonschema") is None, reason="check-jsonschema is not installed")
@pytest.mark.parametrize(("schema", "file"), [("github-workflows", GITHUB), ("gitlab-ci", GITLAB)])
def test_the_examples_fit_their_schemas(schema: str, file: Path, tmp_path: Path) -> None:
    from check_jsonschema import main
    from click.testing import CliRunner

    result = CliRunner().invoke(main, ["--builtin-schema", f"vendor.{schema}", str(file)])
    assert result.exit_code == 0, result.output
    spoiled = tmp_path / file.name
    spoiled.write_text(re.sub(r"(?m)^(\s+)(runs-on|script):", r"\1nonsense:", file.read_text()))
    assert CliRunner().invoke(main, ["--builtin-schema", f"vendor.{schema}", str(spoiled)]).exit_code == 1


def commands_of(file: Path) -> tuple[dict[str, str], list[str]]:
    """The variables of an example, and every line that starts `roadworthy`, in its order."""
    content = yaml.safe_load(file.read_text())
    jobs = content["jobs"].values() if "jobs" in content else [job for job in content.values() if isinstance(job, dict)]
    steps = [step for job in jobs for step in job.get("steps", ()) if "run" in step]
    lines = [line for step in steps for line in step["run"].splitlines()]
    lines += [line for job in jobs for line in job.get("script", ())]
    known = content.get("env") or content["variables"]
    return known, [line for line in lines if line.startswith("roadworthy ")]


def test_what_the_examples_run_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "step.md")
    write_npz(tmp_path / "test.npz", 42)
    save_onnx(tmp_path / "model.onnx")
    (tmp_path / "criteria.yaml").write_text(yaml.safe_dump(CRITERIA))
    done: dict[str, str] = {}
    for file in (GITHUB, GITLAB):
        variables, lines = commands_of(file)
        assert [line.split()[1] for line in lines] == ["evaluate", "verdict", "compare"]
        known = {**variables, "DATA": "test.npz", "GITHUB_STEP_SUMMARY": os.environ["GITHUB_STEP_SUMMARY"]}
        for line in lines:
            words = shlex.split(string.Template(line).substitute(known))[1:]
            if " ".join(words) not in done:
                done[" ".join(words)] = call(*words, code=1 if words[0] == "verdict" else 0)
            if words[0] == "evaluate" and not (tmp_path / "runs" / "baseline").exists():
                shutil.copytree(tmp_path / "runs" / "new", tmp_path / "runs" / "baseline")
    assert "failures=" in (tmp_path / "verdict.xml").read_text()
    assert (tmp_path / "step.md").read_text() == (tmp_path / "summary.md").read_text()
    assert (tmp_path / "comment.md").read_text().startswith("## Roadworthy: ✅ 0 regressions")
    assert len(pd.read_csv(tmp_path / "changes.csv")) > 30
    assert len(done) == 5, "both evaluate in the same way"
