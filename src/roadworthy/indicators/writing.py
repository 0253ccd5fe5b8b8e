"""Writing indicators: indicators.json for programs, a rule file for Prometheus, and a page for people."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from roadworthy.core.errors import InputError, from_here
from roadworthy.core.files import json_bytes, write_bytes
from roadworthy.engine.folder import RunFolder, writing
from roadworthy.indicators.collecting import Indicators, collect_indicators
from roadworthy.indicators.indicator import Indicator
from roadworthy.indicators.prometheus import IMAGES, SUM, check_window, rule_file
from roadworthy.plugins import GivenPlugins
from roadworthy.report.markdown import table, text

JSON_FILE, RULE_FILE, PAGE = "indicators.json", "roadworthy.rules.yaml", "indicators.md"
HEAD = ("indicator", "each image adds", "images", "bound and alarm")
FILES = (JSON_FILE, RULE_FILE, PAGE)


@dataclass(frozen=True)
class WrittenIndicators:
    """What was written: the indicators and the folder with their files."""

    indicators: Indicators
    folder: Path

    def lines(self) -> list[str]:
        """What there is to say of it, a line each."""
        own = self.indicators
        without, labelled = own.of(needs_labels=False), own.of(needs_labels=True)
        alarms = [one for one in own.indicators if one.alarm is not None]
        lines = [f"{one.id}: {one.sentence()}" for one in alarms]
        lines += [f"not watched: criterion {name}, {reason}" for name, reason in own.not_watched.items()]
        if own.verdict != "pass":
            lines.append(
                f"the verdict of the run is {own.verdict}: these bounds are measured, but nobody approved them"
            )
        lines.append(
            f"{len(own.indicators)} indicators, {len(without)} without and {len(labelled)} with labels, {len(alarms)} "
            f"with an alarm limit, are in {from_here(self.folder)}"
        )
        return lines


def write_indicators(
    run: str | os.PathLike[str],
    out: str | Path | None = None,
    *,
    window: str = "1d",
    level: float = 0.001,
    excess: float = 2.0,
    power: float = 0.95,
    force: bool = False,
    plugins: GivenPlugins = (),
    trust: bool = False,
) -> WrittenIndicators:
    """Write the indicators of a run: indicators.json, roadworthy.rules.yaml for Prometheus, and indicators.md.

    out     a folder, by default that of the run with `-indicators` after its name; files in it are replaced only with
            `force`
    window  the length of time that rules look back, such as 1d;  the others: see `collect_indicators`
    """
    check_window(window)
    indicators = collect_indicators(run, level=level, excess=excess, power=power, plugins=plugins, trust=trust)
    folder = _default_folder(run) if out is None else Path(out).absolute()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: name a folder with `out=`")
    taken = [name for name in FILES if (folder / name).exists()]
    if taken and not force:
        raise InputError(f"{folder / taken[0]} is there already: name another folder, or replace it with `force=True`")
    texts = {JSON_FILE: json_bytes({**indicators.to_json(), "window": window}), PAGE: page(indicators, window).encode()}
    texts[RULE_FILE] = rule_file(indicators, window).encode()
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in texts.items():
            write_bytes(folder / name, content)
    return WrittenIndicators(indicators, folder)


def _default_folder(run: str | os.PathLike[str]) -> Path:
    folder = RunFolder(os.fspath(run))
    name = f"{Path(folder.address.rstrip('/')).name}-indicators"
    return Path.cwd() / name if folder.mirror else folder.path.with_name(name)


def page(indicators: Indicators, window: str) -> str:
    """The indicators as Markdown for people."""
    lines = [
        f"# Indicators of {text(indicators.study)}",
        f"Verdict of the run: **{text(indicators.verdict)}**. SHA-256 of its run.json: `{indicators.run_sha256}`.",
        "",
        f"For each indicator the service counts images in `{IMAGES}` and the sum of what they add in `{SUM}`, both "
        "with the label `indicator`. Count one image of each object: frames of one object are not independent. An "
        f"alarm looks at a window of {window}; while the bound holds, its chance is at most {indicators.rule.level:g} "
        "per window.",
    ]
    for title, needs_labels in (("Without labels", False), ("With labelled samples", True)):
        own = indicators.of(needs_labels=needs_labels)
        bounded = [one for one in own if one.watchable.side is not None]
        lines += ["", f"## {title}"]
        lines += table(HEAD, _rows(bounded)) if bounded else ["None."]
        others = sorted({(one.watchable.name, one.reason) for one in own if one.watchable.side is None})
        for name, reason in others:
            ids = [one.id for one in own if one.watchable.name == name and one.watchable.side is None]
            listed = ", ".join(f"`{one}`" for one in ids[:8]) + (" and more" if len(ids) > 8 else "")
            lines += ["", f"`{name}` ({len(ids)}: {listed}) is recorded without an alarm: {text(reason)}."]
    if indicators.not_watched:
        lines += ["", "## Not watched"]
        lines += [f"- criterion {text(name)}: {text(why)}" for name, why in indicators.not_watched.items()]
    return "\n".join([*lines, ""])


def _rows(indicators: list[Indicator]) -> Iterator[tuple[str, ...]]:
    for one in indicators:
        own = one.watchable
        note = f"; {own.note}" if own.note else ""
        yield f"`{one.id}`", text(own.adds), text(own.images), text(one.sentence() + note)
