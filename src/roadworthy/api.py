"""The public Python API: evaluate a model, run a study, open a run."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import roadworthy.damages
import roadworthy.maite
import roadworthy.uncertainty  # noqa: F401 (all register)
from roadworthy.auditing import bundle_run as bundle_run
from roadworthy.auditing import replay_bundle as replay_bundle
from roadworthy.comparing import compare_runs as compare_runs
from roadworthy.core.errors import InputError, from_here
from roadworthy.core.remote import absolute_location
from roadworthy.core.roles import Model
from roadworthy.core.validation import check_number, parse_size
from roadworthy.data import open_dataset
from roadworthy.data.curation import Curation as Curation
from roadworthy.data.curation import curate, read_settings
from roadworthy.data.leaks import counted_once
from roadworthy.deploying import export_monitor as export_monitor
from roadworthy.deploying import monitor_decisions as monitor_decisions
from roadworthy.engine.cleaning import Cleaning
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.progress import ProgressBar as ProgressBar
from roadworthy.engine.progress import no_progress as no_progress
from roadworthy.engine.progress import terminal_progress as terminal_progress
from roadworthy.engines import check_options
from roadworthy.evaluation import (
    GivenData,
    candidates_of,
    evaluation_study,
    in_memory,
    name_of,
    opened_live,
    outlier_sets,
    settings_for,
    with_whole_path,
)
from roadworthy.evaluation import model_spec as model_spec
from roadworthy.executing import execute as execute
from roadworthy.exporting import export_images
from roadworthy.indicators import collect_indicators as collect_indicators
from roadworthy.indicators import write_indicators as write_indicators
from roadworthy.models.check import CheckReport, check_model, open_given
from roadworthy.models.isolation import FOREIGN
from roadworthy.opening import Given, model_builder, open_or_stand_in
from roadworthy.plugins import GivenPlugins, load_given
from roadworthy.preparing import Prepared as Prepared
from roadworthy.preparing import prepare as prepare
from roadworthy.protocols import DEFAULTS, find_protocol, find_suite, suite_for
from roadworthy.protocols.monitoring.standalone import evaluate_decisions as evaluate_decisions
from roadworthy.protocols.od_test.choosing import choose
from roadworthy.protocols.operating_points.choosing import ThresholdChoice, choose_thresholds, parse_cost
from roadworthy.protocols.operating_points.settings import NAME as OPERATING_POINTS
from roadworthy.stored import Run as Run
from roadworthy.stored import open_run as open_run
from roadworthy.stored_evidence import stored_parts, stored_settings
from roadworthy.study import load_study, whole_paths
from roadworthy.verdict import load_decided


def run_study(
    source: str | Path | dict[str, Any],
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    plugins: GivenPlugins = (),
    trust: bool = False,
    unpickle: bool = False,
    device: str = "auto",
    accept_chance: bool = False,
    fresh: bool = False,
    engine: str = "local",
    address: str | None = None,
    progress: ProgressBar = terminal_progress,
) -> Run:
    """Run a study file (or its content) into `out` (default: runs/<name of the study>); resumes by itself.

    It runs in threads of this process, or with `engine="ray"` on the Ray cluster at `address` (without one: a Ray that
    is started on this machine).

    `fresh` makes everything anew, also what the folder holds already; `accept_chance` tests models that are no better
    than chance all the same. `plugins` are Python files (or modules) with components of one's own, imported before the
    study is read, beside those that it names; all of their code runs only with `trust`. With `memory`, such as "2GB",
    as many workers are at work as this process has memory for below it.
    """
    study, base = load_study(source, plugins=plugins, trust=trust)
    target = absolute_location(out or Path("runs") / study.name)  # code of a model may change the working folder
    options: dict[str, Any] = {"engine": engine, "address": address, "memory": memory}
    check_options(**options, out=target)
    prepared = prepare(
        study, base=base, trust=trust, unpickle=unpickle, device=device, accept_chance=accept_chance, progress=progress
    )
    return execute(prepared, target, workers=workers, fresh=fresh, progress=progress, **options)


def clean(run: str | Path | Run, *, dry_run: bool = False, foreign: bool = False) -> Cleaning:
    """Remove from a finished run what nothing refers to, such as cases of an earlier version of its study.

    Files that somebody else put into its folder stay, and are listed, unless `foreign` ones are to go too. A `dry_run`
    only says what would be removed.
    """
    opened = run if isinstance(run, Run) else open_run(run)
    return opened.clean(dry_run=dry_run, foreign=foreign)


def export_study(
    source: str | Path | dict[str, Any],
    folder: str | Path,
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    plugins: GivenPlugins = (),
    trust: bool = False,
    progress: ProgressBar = terminal_progress,
) -> int:
    """Write the disturbed images of a study to a new folder, without opening its models; returns how many.

    GANs that draw some of them are trained in `out`, the folder of the run that will read the answers (default:
    runs/<name of the study>). `plugins` and `trust` are those of `run_study`.
    """
    allowed: dict[str, Any] = {"plugins": plugins, "trust": trust}
    return export_images(source, folder, out=out, workers=workers, progress=progress, **allowed).images


def evaluate(
    model: Any,
    data: Any,
    *,
    suite: str | None = None,
    metrics: str | Sequence[str] = (),
    criteria: str | Path | list[Any] | dict[str, Any] | None = None,
    outliers: Any = None,
    train: Any = None,
    validation: Any = None,
    monitor: str | None = None,
    until_decided: bool = False,
    complete: bool = False,
    out: str | Path | None = None,
    name: str | None = None,
    size: str | tuple[int, int] | None = None,
    classes: str | Sequence[str] | None = None,
    seed: int = 0,
    workers: int | None = None,
    memory: str | int | None = None,
    device: str = "auto",
    plugins: GivenPlugins = (),
    trust: bool = False,
    unpickle: bool = False,
    on_bad_image: str = "error",
    accept_chance: bool = False,
    fresh: bool = False,
    baseline: str | os.PathLike[str] | None = None,
    engine: str = "local",
    address: str | None = None,
    progress: ProgressBar = terminal_progress,
    **model_settings: Any,
) -> Run:
    """Evaluate one model, or several candidates side by side, under a suite: `standard`, of localizers `localization`.

    `model` is what `load_model` takes, or a mapping of names to several; `data` what `open_dataset` takes. Settings of
    the model such as `range="0-255"` go on to its adapter, of several to each. `outliers` (a path or a mapping of names
    to sets), `train` and `validation` are further data, `monitor` one whose score answers for outliers;
    what would be ignored is refused. The run lands in `out` (default: runs/<model>), and one that was stopped is
    resumed; the finished run of another model or of other data there is refused, unless `fresh` makes everything anew.
    A model that is no better than chance is refused, unless `accept_chance` is set. `metrics` are further metrics to
    measure, by name, besides those of the suite. `plugins` are Python files (or modules) that add metrics, suites,
    kinds of models or of data; their code runs only with `trust`. With `until_decided` cases stop as soon as their
    criteria are decided; `complete` goes on with such a run to the last image. `baseline` is the run of an earlier
    version: what is unchanged is taken over, regressions come first. `engine`, `address`, `memory`: see `run_study`.
    """
    loaded = load_given(plugins, trust)
    candidates, given_data = candidates_of(model, name), GivenData(outlier_sets(outliers), train, validation, monitor)
    data = opened_live(data, size=parse_size(size), classes=classes)
    same: dict[str, Any] = {"settings": model_settings, "classes": classes, "seed": seed, "size": size}
    study_by = partial(
        evaluation_study,
        candidates,
        data,
        given=given_data,
        metrics=[metrics] if isinstance(metrics, str) else metrics,
        **same,
        criteria=str(criteria) if isinstance(criteria, Path) else criteria,
        plugins=[record.model_dump() for record in loaded],
        until_decided="complete" if complete else until_decided,
        baseline=None if baseline is None else os.fspath(baseline),
    )
    study = study_by(suite=DEFAULTS[0] if suite is None else suite)
    base = Path.cwd()  # code of a model may change it
    target = absolute_location(out or Path("runs") / study.name, base)
    options: dict[str, Any] = {"engine": engine, "address": address, "memory": memory}
    check_options(**options, out=target)
    allowed: dict[str, Any] = {"trust": trust, "unpickle": unpickle, "device": device}
    settings = {own: {**allowed, **settings_for(one, data, model_settings)} for own, one in candidates.items()}
    builders = _builders(candidates, study.size, base, settings)
    opened = {own: open_or_stand_in(build, own, candidates[own]) for own, build in builders.items()}
    chosen = suite_for(opened.values(), suite)
    given_data.check_used(chosen, opened.values())
    learned = (in_memory(data), in_memory(train), in_memory(validation))
    given = Given(opened, builders, *learned, outliers=given_data.outliers)
    allowed |= {"on_bad_image": on_bad_image, "accept_chance": accept_chance}
    prepared = prepare(study_by(suite=chosen.name), base=base, given=given, progress=progress, **allowed)
    if not fresh:
        _refuse_another(prepared, RunFolder(target))
    return execute(prepared, target, workers=workers, fresh=fresh, progress=progress, **options)


def _builders(
    candidates: Mapping[str, Any], size: tuple[int, int] | None, base: Path, settings: Mapping[str, Mapping[str, Any]]
) -> dict[str, Callable[..., Model]]:
    """What makes each candidate, by name; somebody's code runs in a process of its own unless settings say no."""
    return {
        own: model_builder(candidate, size, name=own, base=base, **{"isolate": FOREIGN, **settings[own]})
        for own, candidate in candidates.items()
    }


def study_of_evaluation(
    model: Any,
    data: str | Path,
    *,
    suite: str | None = None,
    metrics: str | Sequence[str] = (),
    criteria: str | Path | list[Any] | dict[str, Any] | None = None,
    outliers: Any = None,
    train: Any = None,
    validation: Any = None,
    monitor: str | None = None,
    until_decided: bool = False,
    complete: bool = False,
    baseline: str | os.PathLike[str] | None = None,
    name: str | None = None,
    size: str | tuple[int, int] | None = None,
    classes: str | Sequence[str] | None = None,
    seed: int = 0,
    plugins: GivenPlugins = (),
    trust: bool = False,
    **model_settings: Any,
) -> str:
    """The study (YAML) that `evaluate` would run, for `export_study` and `run_study`; no model is opened.

    Paths are written out whole. A model may be a file of answers that is still to be written; so nothing says what it
    answers, and without a suite it is `standard`.
    """
    loaded = load_given(plugins, trust)
    candidates, given_data = candidates_of(model, name), GivenData(outlier_sets(outliers), train, validation, monitor)
    in_files = [data, train, validation, *given_data.outliers.values(), *candidates.values()]
    if any(in_memory(one) is not None for one in in_files):
        raise InputError("a study names files: models and data that live in memory cannot be written into one")
    suite = DEFAULTS[0] if suite is None else suite
    given_data.check_used(find_suite(suite))
    base = Path.cwd()
    load_decided(criteria, base)
    if (until_decided or complete) and criteria is None:
        raise InputError("`until_decided=True` needs criteria that can be decided: name some with `criteria=`")
    study = evaluation_study(
        {own: with_whole_path(candidate, base) for own, candidate in candidates.items()},
        data,
        suite,
        given_data,
        metrics=[metrics] if isinstance(metrics, str) else metrics,
        settings=model_settings,
        classes=classes,
        seed=seed,
        size=size,
        criteria=str(base / criteria) if isinstance(criteria, str | Path) else criteria,
        until_decided="complete" if complete else until_decided,
        baseline=None if baseline is None else str(absolute_location(baseline, base)),
        plugins=[record.model_dump() for record in loaded],
    )
    whole = {key: whole_paths(getattr(study, key), base) for key in ("data", "models", "outliers")}
    return study.model_copy(update=whole).to_yaml()


def _refuse_another(prepared: Prepared, folder: RunFolder) -> None:
    """Refuse to put a run in the place of a finished one of another model, of other data or of another seed."""
    folder.check_usable()
    if not folder.is_finished:
        return
    record = folder.record()
    models = {name: model.fingerprint for name, model in record.models.items()}
    bench = next(iter(prepared.sources.values()))
    what = ""
    if models != {name: bench.fingerprint(model) for name, model in bench.models.items()}:
        what = "another model"
    elif bool(record.settings.get("until_decided")) != bool(prepared.study.until_decided):
        what = "the same images in another order (`until_decided=True`)"
    elif record.first.data.fingerprint != bench.data.fingerprint():
        what = "other data"
    elif record.seed != prepared.study.seed:
        what = f"another seed, {record.seed}"
    if what:
        raise InputError(
            f"{folder.path} holds the run of {what} ({', '.join(models)} on {record.first.data.name}): choose "
            f"another folder with `out=`, or replace it with `fresh=True`{_as_new_version(folder, what)}"
        )


def _as_new_version(folder: RunFolder, what: str) -> str:
    """How to test a model against the run of another that is in a folder; nothing where data or seed differ."""
    here = from_here(folder.path)
    again = f"; for a new version of it add `out='{here}-new'` and `baseline='{here}'` to the same command"
    return again if what == "another model" else ""


def check(
    model: Any,
    data: Any,
    *,
    sample: int = 512,
    name: str | None = None,
    size: str | tuple[int, int] | None = None,
    classes: str | Path | Sequence[str] | None = None,
    seed: int = 0,
    device: str = "auto",
    plugins: GivenPlugins = (),
    trust: bool = False,
    unpickle: bool = False,
    on_bad_image: str = "error",
    **model_settings: Any,
) -> CheckReport:
    """Try a model on a sample of the data, before an evaluation: does it work as given, and if not, what would help?

    Takes the same models, data and keywords as `evaluate`. Print the report; `report.ok` is True where nothing wrong
    was found, and `report.findings[0].settings` are keywords that put it right.
    """
    check_number("sample", sample, 1, math.inf)
    load_given(plugins, trust)
    wanted = parse_size(size)
    base = Path.cwd()  # code of a model may change it
    allowed = {"trust": trust, "unpickle": unpickle, "device": device}
    data = opened_live(data, size=wanted, classes=classes)
    settings = settings_for(model, data, model_settings)
    build = model_builder(model, wanted, name=name or name_of(model), base=base, **allowed, **settings)
    fallback = open_given(build)[0].input_size
    dataset = open_dataset(
        data, base=base, classes=classes, size=wanted, fallback_size=fallback, on_bad_image=on_bad_image, seed=seed
    )
    return check_model(build, counted_once(dataset), sample=sample, seed=seed)


def choose_monitor(run: str | os.PathLike[str], *, source: str | None = None) -> str:
    """Which monitor the OD-test of a run supports, in one paragraph: over all sources, or at one `source`.

    Reads stored tables and changes nothing; a run of an earlier version, which lacks some of them, says less.
    """
    opened = open_run(os.fspath(run))
    opened.folder.check_finished()
    return choose(opened.path, source)


def choose_operating_point(
    run: str | os.PathLike[str],
    *,
    cost: str | None = None,
    accepted_wrong_at_most: float | None = None,
    plugins: GivenPlugins = (),
    trust: bool = False,
) -> list[ThresholdChoice]:
    """A threshold for each model of a run, chosen on its held-out images, and what follows on its test data.

    `cost` is written as `accepted_wrong=10,rejected_right=1`. Writes nothing.
    """
    opened = open_run(os.fspath(run), plugins=plugins, trust=trust)
    opened.folder.check_finished()
    opened.require_plugins()
    record, protocol = opened.record, find_protocol(OPERATING_POINTS)
    if protocol.name not in record.protocols:
        raise InputError(f"{opened.path} has no {protocol.name}: run a study with protocols: {protocol.name}")
    parts, settings = stored_parts(opened.folder, record)[protocol.name], stored_settings(record)[protocol.name]
    evidence = protocol.evidence_of(parts, settings, seed=record.seed)
    asked = None if cost is None else parse_cost(cost)
    return choose_thresholds(evidence, cost=asked, accepted_wrong_at_most=accepted_wrong_at_most)


def curate_data(
    format: str | None = None,
    root: str | Path | None = None,
    *,
    out: str | Path | None = None,
    settings: str | Path | None = None,
    dry_run: bool = False,
    workers: int | None = None,
    progress: ProgressBar = terminal_progress,
    **given: Any,
) -> Curation:
    """Cut crops with one main object each from annotated frames into the folder `out`, with manifests and tables.

    `settings` is a YAML file with the key `curate`; what is given here wins over it: `format` and `root` of the
    annotations, and any of `size`, `seed`, `rejected`, `corrected`, `classes`, `caps` and so on (see
    `roadworthy.data.curation.CurationSettings`). `dry_run` counts only.
    """
    given = {"format": format, "root": None if root is None else os.fspath(root), **given}
    complete = read_settings(None if settings is None else Path(settings), given)
    target = None if out is None else Path(out)
    return curate(complete, target, dry_run=dry_run, workers=workers, progress=progress)
