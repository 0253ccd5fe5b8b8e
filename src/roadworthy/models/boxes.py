"""How a model writes boxes (corners or centre, pixels or shares, with or without variance), and in which output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError, UnknownName
from roadworthy.core.types import Prediction
from roadworthy.models.outputs import as_rows
from roadworthy.models.preprocess import parse_choice

FORMS = ("corners", "centre")
UNITS = ("pixels", "relative")
ORDERS = ("xy", "yx")
VARIANCES = ("none", "variance", "sigma", "log_variance")
WORDS = {"form": FORMS, "unit": UNITS, "order": ORDERS, "variance": VARIANCES}
SIDES = 4
BOX_NAMES = frozenset({"box", "boxes", "bbox", "bboxes"})
"""Names by which an output is known to hold boxes, whatever their case."""
CLASS_NAMES = frozenset({"class", "classes", "scores", "logits", "probabilities"})
"""Names by which an output is known to hold class scores, whatever their case."""
NO_CLASSES = "none"
"""The value of `class_output` that says: none of the outputs holds class scores."""
FROM_CENTRE = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [-0.5, 0, 0.5, 0], [0, -0.5, 0, 0.5]])
"""(cx, cy, w, h) times this is (x0, y0, x1, y1)."""
TO_CENTRE = np.array([[0.5, 0, -1, 0], [0, 0.5, 0, -1], [0.5, 0, 1, 0], [0, 0.5, 0, 1]])
"""(x0, y0, x1, y1) times this is (cx, cy, w, h)."""
SWAPPED = [1, 0, 3, 2]

Floats = NDArray[np.floating[Any]]
Size = tuple[int, int]


@dataclass(frozen=True)
class BoxForm:
    """How a model writes a box.

    form      `corners` is x0, y0, x1, y1 (right and bottom edge exclusive), `centre` is cx, cy, w, h
    unit      `pixels` of the model's input, or `relative`: shares of the width and height of its input
    order     `xy`, or `yx` where each pair is written the other way round: y0, x0, y1, x1 or cy, cx, h, w
    variance  `none`: four numbers a box. Else eight: the box, then for each of its numbers a `variance`, its root
              `sigma` or its logarithm `log_variance`, in the same form, unit and order

    >>> str(BoxForm("centre", "relative")), BoxForm(variance="sigma").columns
    ('centre relative', 8)
    """

    form: str = "corners"
    unit: str = "pixels"
    order: str = "xy"
    variance: str = "none"

    def __post_init__(self) -> None:
        for setting, allowed in WORDS.items():
            parse_choice(f"{setting} of boxes", getattr(self, setting), allowed)

    def __str__(self) -> str:
        """The shortest text from which `parse_box_form` reads it."""
        rest = [text for text in (self.order, self.variance) if text not in ("xy", "none")]
        return " ".join([self.form, self.unit, *rest])

    @property
    def columns(self) -> int:
        """How many numbers it has for an image: 4, or 8 with variance."""
        return SIDES if self.variance == "none" else 2 * SIDES

    @property
    def places(self) -> tuple[BoxForm, ...]:
        """All forms that differ from it in form, unit or order alone, itself first."""
        others = (
            replace(self, form=form, unit=unit, order=order) for unit in UNITS for form in FORMS for order in ORDERS
        )
        return (self, *(other for other in others if other != self))

    def read(
        self, rows: Floats, input_size: Size, image_size: Size
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Boxes (N, 4) x0, y0, x1, y1 and their variance (N, 4), or None, in pixels of images of `image_size` (H, W).

        rows (N, 4) or (N, 8) are what a model wrote about an input of `input_size` (H, W). A box whose corners are
        crossed (x1 < x0) stays so. The variance of corners that are written as centre, width and height is that of
        the linear map with independent numbers: Var x0 = Var x1 = Var cx + Var w / 4, and y alike. A negative variance
        or sigma is a `ModelError`.

        >>> form = BoxForm("centre", "relative", variance="sigma")
        >>> boxes, variance = form.read(np.array([[0.5, 0.5, 0.2, 0.4, 0.1, 0.0, 0.0, 0.2]]), (10, 10), (10, 20))
        >>> boxes.round(3).tolist(), variance.round(3).tolist()
        ([[8.0, 3.0, 12.0, 7.0]], [[4.0, 1.0, 4.0, 1.0]])
        """
        if rows.ndim != 2 or rows.shape[1] != self.columns:
            raise ModelError(f"boxes written as {self} are {self.columns} numbers an image, not of shape {rows.shape}")
        values = np.asarray(rows, np.float64)
        factor = self._factor(input_size, image_size)
        boxes, variance = values[:, :SIDES], values[:, SIDES:]
        if self.order == "yx":
            boxes, variance = boxes[:, SWAPPED], variance[:, SWAPPED] if variance.size else variance
        boxes = (boxes @ FROM_CENTRE if self.form == "centre" else boxes) * factor
        if self.variance == "none":
            return np.asarray(boxes, np.float32), None
        variance = self._variance(variance)
        variance = (variance @ FROM_CENTRE**2 if self.form == "centre" else variance) * factor**2
        return np.asarray(boxes, np.float32), np.asarray(variance, np.float32)

    def write(self, boxes: Floats, input_size: Size, image_size: Size) -> NDArray[np.float64]:
        """What a model of this form would have written (N, 4) for boxes in pixels of the images: `read` backwards.

        >>> BoxForm("centre", "relative").write(np.array([[8.0, 3, 12, 7]]), (10, 10), (10, 20)).round(3).tolist()
        [[0.5, 0.5, 0.2, 0.4]]
        """
        corners = np.asarray(boxes, np.float64) / self._factor(input_size, image_size)
        rows = corners @ TO_CENTRE if self.form == "centre" else corners
        return rows[:, SWAPPED] if self.order == "yx" else rows

    def _factor(self, input_size: Size, image_size: Size) -> NDArray[np.float64]:
        """(4,): what x0, y0, x1, y1 as written are multiplied by to be pixels of the images."""
        height, width = image_size
        input_height, input_width = input_size if self.unit == "pixels" else (1, 1)
        return np.array([width / input_width, height / input_height] * 2)

    def _variance(self, written: NDArray[np.float64]) -> NDArray[np.float64]:
        """The variance (N, 4) of what is written, from what is written of it."""
        if self.variance == "log_variance":
            with np.errstate(over="ignore"):  # an infinite variance is refused where answers are checked
                return np.exp(written)
        negative = int((written < 0).any(axis=1).sum())
        if negative:
            raise ModelError(
                f"the {self.variance} of boxes is negative for {negative} of {len(written)} images: if it is a "
                f"logarithm, declare `boxes={str(replace(self, variance='log_variance'))!r}`"
            )
        return written**2 if self.variance == "sigma" else written


def parse_box_form(text: str) -> BoxForm:
    """The form that a study's text says, such as `corners pixels` or `centre relative yx log_variance`.

    Form and unit must be there, order and variance may be; the words come in any order.

    >>> parse_box_form("corners relative yx log_variance")
    BoxForm(form='corners', unit='relative', order='yx', variance='log_variance')
    """
    settings: dict[str, str] = {}
    for word in str(text).split():
        setting = next((setting for setting, allowed in WORDS.items() if word in allowed), None)
        if setting is None:
            raise UnknownName("word of a box form", word, [known for allowed in WORDS.values() for known in allowed])
        if setting in settings:
            raise InputError(f"the box form {text!r} says its {setting} twice: {settings[setting]} and {word}")
        settings[setting] = word
    for setting in ("form", "unit"):
        if setting not in settings:
            choices = " or ".join(WORDS[setting])
            raise InputError(f"the box form {text!r} lacks {choices}: write for example `boxes='corners pixels'`")
    return BoxForm(**settings)


def scaled_to(prediction: Prediction, input_size: Size, image_size: Size) -> Prediction:
    """An answer whose boxes are in pixels of a model's input (H, W), in pixels of images (H, W) instead.

    >>> answer = Prediction(boxes=np.float32([[1, 2, 3, 4]]))
    >>> scaled_to(answer, (8, 8), (8, 16)).boxes.tolist()
    [[2.0, 2.0, 6.0, 4.0]]
    """
    if prediction.boxes is None or tuple(input_size) == tuple(image_size):
        return prediction
    factor = np.array([image_size[1] / input_size[1], image_size[0] / input_size[0]] * 2)
    variance = prediction.box_variance
    return prediction.changed(
        boxes=np.asarray(prediction.boxes * factor, np.float32),
        box_variance=None if variance is None else np.asarray(variance * factor**2, np.float32),
    )


def mixed_boxes(boxes: Floats, variance: Floats | None = None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and variance (N, 4) of boxes (S, N, 4) of S passes or members, each with the same weight.

    mean = 1/S sum_s b_s and variance = 1/S sum_s (b_s - mean)^2 + 1/S sum_s v_s, both summed in float64. The first part
    of the variance is divided by S, not S - 1 (ddof 0): it is that of the equal mixture itself. v_s is the `variance`
    (S, N, 4) that members state of their own, by the law of total variance; 0 where there is none.

    >>> mean, variance = mixed_boxes(np.array([[[0.0, 0, 4, 4]], [[2.0, 0, 4, 8]]]))
    >>> mean.tolist(), variance.tolist()
    ([[1.0, 0.0, 4.0, 6.0]], [[1.0, 0.0, 0.0, 4.0]])
    """
    values = np.asarray(boxes, np.float64)
    total = values.var(axis=0)
    if variance is not None:
        total = total + np.asarray(variance, np.float64).mean(axis=0)
    return np.asarray(values.mean(axis=0), np.float32), np.asarray(total, np.float32)


@dataclass(frozen=True)
class DeclaredBoxes:
    """What a user says of the boxes of a model: their form, and the outputs that hold boxes and class scores.

    `box_output` are the names of the outputs whose columns, side by side, are boxes in the form; none where that is to
    be found out. `class_output` is the name of the output of class scores, `none` where no output holds any.
    """

    form: BoxForm
    box_output: tuple[str, ...] = ()
    class_output: str | None = None

    def reading(self, outputs: Mapping[str, NDArray[Any]], what: str) -> BoxReading:
        """The reading of outputs (N, K) by name: as declared, else by name or number of columns; a doubt is an error.

        >>> DeclaredBoxes(BoxForm()).reading({"where": np.zeros((2, 4)), "what": np.zeros((2, 7))}, "m.onnx").classes
        'what'
        """
        scores = () if self.class_output in (None, NO_CLASSES) else (self.class_output,)
        for name in (*self.box_output, *scores):
            if name not in outputs:
                raise UnknownName(f"output of {what}", str(name), outputs)
        boxes = self.box_output or _box_output(outputs, self.form, self.class_output, what)
        if sum(outputs[name].shape[1] for name in boxes) != self.form.columns:
            raise InputError(
                f"{what}: the boxes {self.form} are {self.form.columns} numbers an image, but "
                f"{_listed(outputs, boxes)}: declare another `boxes=` or `box_output=`"
            )
        return BoxReading(self.form, boxes, _class_output(outputs, boxes, self.class_output, what))


def declared_boxes(
    boxes: str | None, box_output: str | Sequence[str] | None, class_output: str | None
) -> DeclaredBoxes | None:
    """What the settings `boxes`, `box_output` and `class_output` of a model say; None for a classifier.

    >>> declared_boxes("centre relative", "loc", None)  # doctest: +ELLIPSIS
    DeclaredBoxes(form=BoxForm(form='centre', ...), box_output=('loc',), class_output=None)
    """
    if boxes is None:
        if box_output is not None or class_output is not None:
            raise InputError("`box_output=` and `class_output=` are for models that answer boxes: declare `boxes=` too")
        return None
    names = () if box_output is None else (box_output,) if isinstance(box_output, str) else tuple(box_output)
    return DeclaredBoxes(parse_box_form(boxes), names, class_output)


@dataclass(frozen=True)
class BoxReading:
    """How the outputs of a localizer are read: the form of its boxes, the outputs that hold them, and the class scores.

    `boxes` are the names of the outputs whose columns, side by side, are written in the form; `classes` is the name of
    the output of class scores, None where there is none.

    >>> reading = BoxReading(BoxForm(), ("where",), "what")
    >>> reading.joined({"what": np.zeros((2, 7)), "where": np.zeros((2, 4))}).shape
    (2, 11)
    """

    form: BoxForm
    boxes: tuple[str, ...]
    classes: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """The outputs that count: those of the boxes, then that of the class scores."""
        return self.boxes if self.classes is None else (*self.boxes, self.classes)

    def joined(self, outputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """The outputs that count side by side, (N, 4 or 8 + K): the boxes as written, then the class scores."""
        return np.concatenate([outputs[name] for name in self.names], axis=1)

    def settings(self) -> dict[str, Any]:
        """All of it as plain values, for a fingerprint."""
        return {"boxes": str(self.form), "box_output": list(self.boxes), "class_output": self.classes}

    @property
    def capabilities(self) -> frozenset[str]:
        """The columns that the boxes are answered in."""
        return frozenset({"boxes"} if self.form.variance == "none" else {"boxes", "box_variance"})


def output_rows(outputs: Mapping[str, Any], count: int) -> dict[str, NDArray[Any]]:
    """Those of some outputs that are numbers with a row per image, as (N, K); sides of 1 are left out.

    >>> sorted(output_rows({"box": np.zeros((2, 1, 4)), "maps": np.zeros((2, 3, 5))}, 2))
    ['box']
    """
    rows_by_name = {}
    for name, output in outputs.items():
        array = np.asarray(output)
        if array.ndim > 2 and array.size == count * max(array.shape[1:]):
            array = array.reshape(count, -1)
        rows = as_rows(array, count)
        if rows is not None and rows.dtype.kind in "fiu" and rows.shape[1] > 1:
            rows_by_name[name] = rows
    return rows_by_name


def _listed(outputs: Mapping[str, NDArray[Any]], names: Sequence[str]) -> str:
    return " and ".join(f"output {name!r} has {outputs[name].shape[1]}" for name in names) or "there is no output"


def _box_output(
    outputs: Mapping[str, NDArray[Any]], form: BoxForm, class_output: str | None, what: str
) -> tuple[str, ...]:
    """The one output that has as many columns as the form, of several the one with the name of boxes."""
    fitting = [name for name, rows in outputs.items() if rows.shape[1] == form.columns and name != class_output]
    named = [name for name in fitting if name.lower() in BOX_NAMES]
    chosen = named if len(named) == 1 else fitting
    if not chosen:
        besides = (
            f" besides {class_output!r}, which is declared to hold class scores" if class_output in outputs else ""
        )
        raise InputError(
            f"{what} answers no boxes {form}, which are {form.columns} numbers an image: "
            f"{_listed(outputs, [name for name in outputs if name != class_output])}{besides}; declare another "
            "`boxes=`, or name the outputs that hold them with `box_output=`"
        )
    if len(chosen) > 1:
        raise InputError(
            f"{what}: {_listed(outputs, chosen)} numbers an image, and one of them must hold the boxes: say which with "
            f"`box_output={chosen[0]!r}`"
        )
    return (chosen[0],)


def _class_output(
    outputs: Mapping[str, NDArray[Any]], boxes: Sequence[str], class_output: str | None, what: str
) -> str | None:
    """The output of class scores: as declared, else the only one that can be, or the one with such a name."""
    if class_output == NO_CLASSES:
        return None
    if class_output is not None:
        if class_output in boxes:
            raise InputError(f"{what}: the output {class_output!r} cannot hold both boxes and class scores")
        return class_output
    possible = [name for name, rows in outputs.items() if name not in boxes and rows.dtype.kind == "f"]
    named = [name for name in possible if name.lower() in CLASS_NAMES]
    chosen = named if len(named) == 1 else possible
    if len(chosen) > 1:
        raise InputError(
            f"{what} has several outputs beside the boxes ({', '.join(map(repr, chosen))}): say which holds class "
            f"scores with `class_output={chosen[0]!r}`, or `class_output='none'`"
        )
    return chosen[0] if chosen else None
