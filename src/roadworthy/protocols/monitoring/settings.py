"""What a study may say of the benchmark of monitors, and what the run notes of each source."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from roadworthy.protocols.choices import check_names
from roadworthy.protocols.monitoring.names import ADVERSARIAL, ALL, NOVEL_CLASS

LEVEL = 3
"""The level of a shift, where a benchmark names none."""
LEAST_RESAMPLES = 100

Share = Annotated[float, Field(gt=0, lt=1)]


class Strict(BaseModel):
    """A frozen value that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BenchmarkChoice(Strict):
    """The OOD side of a benchmark: a set outside, or a shift of the ID test images.

    kind      novel_class, adversarial, distributional_shift, noise or anomaly
    outliers  a set outside that the study names, or a maker of outliers such as `uniform_noise`
    shift     a shift or attack, at a `level` of its own table (default 3) or with `parameters` of its own
    near      whether it is near to the source; where that is left open, what the source says (`near`)
    sources   the sources that meet it; all of them where none is named
    """

    kind: Literal["novel_class", "adversarial", "distributional_shift", "noise", "anomaly"]
    outliers: str | None = None
    shift: str | None = None
    level: Annotated[int, Field(ge=1)] | None = None
    parameters: dict[str, Any] | None = None
    near: bool | None = None
    sources: list[str] | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> BenchmarkChoice:
        if (self.outliers is None) == (self.shift is None):
            raise ValueError("name what its OOD side comes from: a set outside (outliers) or a shift, one of the two")
        if self.shift is None and (self.level is not None or self.parameters is not None):
            raise ValueError("level and parameters belong to a shift: name it, or leave them out")
        if self.level is not None and self.parameters is not None:
            raise ValueError("give the level of the shift or parameters of its own, not both")
        if self.kind == NOVEL_CLASS and self.shift is not None:
            raise ValueError("a shift makes no novel class: name a set outside under outliers, or another kind")
        if self.kind == ADVERSARIAL and self.shift is None:
            raise ValueError("an adversarial benchmark needs an attack: name it under shift, for example shift: fgsm")
        if self.sources is not None and not 0 < len(self.sources) == len({*self.sources}):
            raise ValueError("sources must name different sources, at least one; leave it out for all")
        return self

    def made_from(self) -> str:
        """What its OOD side is made from, in a few words.

        >>> BenchmarkChoice(kind="noise", shift="fog").made_from()
        'fog level 3'
        >>> BenchmarkChoice(kind="noise", shift="fog", parameters={"factor": 0.2}).made_from()
        'fog factor 0.2'
        """
        if self.shift is None:
            return str(self.outliers)
        if self.parameters is None:
            return f"{self.shift} level {self.level or LEVEL}"
        return " ".join([self.shift, *(f"{key} {value}" for key, value in self.parameters.items())])


class ThresholdChoice(Strict):
    """The rule that finds a threshold from ID images alone: see `roadworthy.monitors.id_threshold.IdRule`."""

    rule: Literal["share", "smallest", "conformal", "own"] = "share"
    rejected: Share = 0.05
    confidence: Share = 0.95
    per_class: bool = False


def benchmark_names(value: Any) -> Any:
    """Refuse names of benchmarks that cannot stand in a table."""
    check_names("benchmark", value or (), (ALL,))
    return value


class Settings(Strict):
    """What a study says under `protocols: monitoring:`.

    limit          most images of each side and of the validation data; `whole_objects` takes all images of an object
                   or none, so that streams in the order `runs` have whole ones
    benchmarks     by name (default: those of `default_benchmarks`)
    ratio          the share of OOD images in a stream;  order: random, blocks (of `block` images of one side),
                   gradual (ever more OOD images) or runs (the images of an object stay together, as in a video)
    frame_rate     images per second, for false alarms per hour
    threshold      the rule for all monitors;  thresholds: other rules, by the label of a monitor. A monitor with a
                   threshold of its own keeps that, unless a rule is named for it; the parts of a combination have
                   theirs from the share `rejected` that is named here
    layers         hidden layers whose values are stored for every image, besides what monitors keep
    alarm_level    the chance of a false alarm on ID images alone, over a whole stream: of the test of exchangeability
                   at most this; of the rejection rate at most this plus 1 - confidence, the chance that the promise of
                   rule conformal does not hold. Without a promise, the rejection rate is not tested
    resamples      of the bootstrap that bounds what is not a share of images
    timed_images   how many images model and monitors are timed with, one by one; where there are fewer, they are shown
                   again. 0 times nothing
    timed_seconds  the most seconds that model, or model and one monitor, are timed for: those that are slow are timed
                   with fewer images
    memory         whether the memory that they take is measured, each in a process of its own
    """

    limit: Annotated[int, Field(ge=2)] | None = 1000
    whole_objects: bool = False
    benchmarks: dict[str, BenchmarkChoice] | None = None
    ratio: Share = 0.5
    order: Literal["random", "blocks", "gradual", "runs"] = "random"
    block: Annotated[int, Field(ge=1)] = 50
    frame_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    threshold: ThresholdChoice = ThresholdChoice()
    thresholds: dict[str, ThresholdChoice] = {}
    layers: list[str] = []
    alarm_level: Share = 0.01
    resamples: Annotated[int, Field(ge=LEAST_RESAMPLES, le=100_000)] = 1000
    timed_images: Annotated[int, Field(ge=0, le=10_000)] = 1000
    timed_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0
    memory: bool = True

    @field_validator("benchmarks")
    @classmethod
    def _valid_names(cls, value: Any) -> Any:
        if value is not None and not value:
            raise ValueError("no benchmark is named: name one, or leave the key out for the default ones")
        return benchmark_names(value)


class MonitorNote(Strict):
    """A monitor of the study: its registered name, what is other than in its paper, and how it comes to decisions.

    parameters      its settings as text;  is_sequential: a decision also depends on the images before
    """

    monitor: str
    differs_from_paper: str = ""
    parameters: dict[str, str] = {}
    is_sequential: bool = False


class BenchmarkNote(Strict):
    """A benchmark as it was planned for a source.

    made_from    what its OOD side is made from, in a few words
    has_label    whether its OOD images have labels of the source: those of a novel class have none, nor those of a
                 maker, nor those of a set with other classes
    keeps_label  whether they have labels and still show what these say (a black frame does not)
    shared       whether its OOD side shows the images of the ID side, disturbed
    attacks      whether it is made against each model
    images       of its OOD side;  leaked: how many of them are images of the source's own data
    left_out     labels of ID images that are left out, since the set shares these classes with the source
    """

    kind: str
    made_from: str
    near: bool = False
    keeps_label: bool = True
    has_label: bool = True
    shared: bool = False
    attacks: bool = False
    images: int = 0
    leaked: int = 0
    left_out: list[int] = []
    note: str = ""


class Context(Strict):
    """What the tables need of a source besides readouts.

    architectures  of its models, by their name;  networks: hashes of the artifacts that each is made of
    benchmarks     that it meets;  skipped: those that it does not meet, each with the reason
    left_out       monitors that are not tested here by their label, each with the reason
    valid_from     where the images come from that thresholds are found with, in a few words
    valid_note     what must be known of a threshold that is found on these; empty where nothing
    leaked         ID test images that are images of the validation data
    """

    architectures: dict[str, str]
    networks: dict[str, list[str]] = {}
    monitors: dict[str, MonitorNote]
    benchmarks: dict[str, BenchmarkNote]
    skipped: dict[str, str] = {}
    left_out: dict[str, str] = {}
    valid_from: str = ""
    valid_note: str = ""
    leaked: int = 0
