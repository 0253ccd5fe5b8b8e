"""Options and arguments that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from roadworthy.cli.completion import names_of

Engine = StrEnum("Engine", ["local", "ray"])
"""Where cases run."""
OnBadImage = StrEnum("OnBadImage", ["error", "skip"])
"""What to do with an image that cannot be read."""
FailOn = StrEnum("FailOn", ["nothing", "regression"])
"""What makes a comparison fail."""
Kind = StrEnum("Kind", ["shifts", "outliers", "monitors", "metrics", "protocols", "models", "data", "suites", "tables"])
"""What `list` can list."""

ModelOption = Annotated[
    str,
    typer.Option("--model", help="An .onnx, torch or predictions file, code.py:function, or a server at http://..."),
]
CandidatesOption = Annotated[
    list[str],
    typer.Option(
        "--model",
        metavar="[NAME=]MODEL",
        help="An .onnx, torch or predictions file, code.py:function, or a server at http://...; repeat it to compare.",
    ),
]
OutliersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--outliers",
        metavar="[NAME=]PATH",
        help="Images of nothing that the model knows; default: the built-in scenery; repeat it for several sets.",
    ),
]
SuiteOption = Annotated[
    str | None,
    typer.Option(
        "--suite",
        help="quick, standard (default), full, approval, or localization (of boxes); a version (standard@1) pins it.",
        autocompletion=names_of("suites"),
    ),
]
MetricsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="A further metric to measure, such as one of a plugin; can be repeated.",
        autocompletion=names_of("metrics"),
    ),
]
WriteStudy = Annotated[
    Path | None,
    typer.Option(
        "--write-study", metavar="FILE", help="Write the study of this evaluation for export and run; test nothing."
    ),
]
BadImages = Annotated[
    OnBadImage, typer.Option("--on-bad-image", help="Stop at a corrupt image, or skip, record and count it.")
]
TrainOption = Annotated[str | None, typer.Option("--train", help="Training data, which GANs learn from.")]
CriteriaOption = Annotated[Path | None, typer.Option("--criteria", help="YAML file of acceptance criteria.")]
UntilDecided = Annotated[
    bool, typer.Option("--until-decided", help="Stop a case once the criteria that speak of it are decided.")
]
Complete = Annotated[
    bool, typer.Option("--complete", help="Go on with a run that stopped --until-decided, to the last image.")
]
BaselineOption = Annotated[
    Path | None,
    typer.Option("--baseline", help="Run of an earlier version: what is unchanged is taken over, regressions first."),
]
MonitorNameOption = Annotated[
    str | None,
    typer.Option(
        "--monitor",
        metavar="NAME",
        help="A monitor whose score tells outliers, not the model's certainty.",
        autocompletion=names_of("monitors"),
    ),
]
ValidationOption = Annotated[str | None, typer.Option("--validation", help="Held-out data, for what is fitted to it.")]
DataOption = Annotated[
    str, typer.Option("--data", help="A folder with a subfolder per class, a .csv/.parquet manifest or .npz.")
]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Folder of the run, or its address; one that holds part of it is resumed.")
]
Classes = Annotated[Path | None, typer.Option(help="File with one class name per line, in the model's order.")]
Range = Annotated[str | None, typer.Option("--range", help="0-1, 0-255, -1-1, imagenet or MEAN/STD.")]
Layout = Annotated[str | None, typer.Option(help="auto, nchw or nhwc.")]
Outputs = Annotated[str | None, typer.Option(help="auto, probabilities or logits.")]
Boxes = Annotated[
    str | None,
    typer.Option(help="Form of the boxes that a localizer answers, such as 'centre relative'."),
]
BoxOutput = Annotated[str | None, typer.Option(help="Output that holds the boxes, where name and shape do not tell.")]
ClassOutput = Annotated[str | None, typer.Option(help="Output beside the boxes that holds class scores, or none.")]
Format = Annotated[str | None, typer.Option("--format", help="How a server is asked: auto, json, multipart, kserve.")]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME=env:VARIABLE",
        help="A header for a server, its value from an environment variable; can be repeated.",
    ),
]
Colour = Annotated[str | None, typer.Option(help="rgb or bgr.")]
Size = Annotated[str | None, typer.Option(help="HEIGHTxWIDTH that images are brought to before any shift.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Arch = Annotated[str | None, typer.Option(help="For torch weights: file.py:factory that builds the network.")]
Trust = Annotated[bool, typer.Option("--trust", help="Run Python code named by you or the study, and TorchScript.")]
PluginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        help="A Python file or module that registers components of your own; needs --trust; can be repeated.",
    ),
]
Unpickle = Annotated[
    bool,
    typer.Option(
        "--unpickle",
        help="Read the weights with pickle, which runs any code they hold; only for files you made yourself.",
    ),
]
ModelVersion = Annotated[
    str | None,
    typer.Option(
        "--model-version", help="For functions, torch and servers: any text that changes when the answers do."
    ),
]
AcceptChance = Annotated[
    bool, typer.Option("--accept-chance", help="Test a model that is no better than chance all the same.")
]
AcceptVarying = Annotated[
    bool | None,
    typer.Option("--accept-varying", help="Test a model that answers the same images differently when asked twice."),
]
Isolate = Annotated[
    bool | None,
    typer.Option(
        "--isolate/--no-isolate",
        help="Run models in processes of their own, with limits of time and memory; by default those that are code.",
        show_default=False,
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Make everything again, also what the folder holds already.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Threads, or workers of a cluster; never changes a result.")]
Threads = Annotated[int | None, typer.Option("--workers", min=1, help="Threads; never changes a result.")]
EngineOption = Annotated[
    Engine, typer.Option("--engine", help="Where cases run: threads of this process, or a Ray cluster (extra ray).")
]
Address = Annotated[
    str | None,
    typer.Option("--address", metavar="HOST:PORT", help="Ray cluster, or auto; default: a Ray on this machine."),
]
Memory = Annotated[
    str | None,
    typer.Option(help="Most memory to take, such as 2GB, with fewer workers at once; never changes a result."),
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of all randomness.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors only; the exit code says the rest.")]
ShiftArgument = Annotated[
    str | None, typer.Argument(help="A shift; all of them where none is named.", autocompletion=names_of("shifts"))
]
StudyArgument = Annotated[Path, typer.Argument(help="The study file (YAML).")]
MarkdownOption = Annotated[
    str | None,
    typer.Option(
        "--markdown",
        metavar="FILE",
        help="Write Markdown for a job summary or a comment; - prints it; $GITHUB_STEP_SUMMARY is appended to.",
    ),
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The folder of a run, or its address, such as s3://bucket/run.")
]


def given_headers(headers: list[str] | None) -> dict[str, str] | None:
    """Headers by name, from `NAME=env:VARIABLE`; None where there are none."""
    return {name: value for name, _, value in (text.partition("=") for text in headers)} if headers else None


def given_settings(**settings: Any) -> dict[str, Any]:
    """The settings of a model that were given on the command line."""
    return {name: value for name, value in settings.items() if value is not None}
