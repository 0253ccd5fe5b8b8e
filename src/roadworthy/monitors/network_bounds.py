"""Bounds of a network: what its logits can be while the input stays in a box.

A network is a chain of layers, each affine (y = W x + b), a ReLU or a max pooling. Two ways to bound a linear
function g(z) of its logits from below:

interval  every layer carries a box on: y in W c + b -+ |W| r, with c and r the centre and the radius of the box before
linear    g is carried back through the chain, each ReLU and max pooling replaced by the linear function that bounds it
          on the side that counts, until it is a linear function of the input, whose lowest value on the box is exact
          (Zhang et al. 2018, Singh et al. 2019). The boxes that go into layers are those of intervals

Boxes are widened by the rounding of each layer, and a bound says how large the terms are that it is the sum of, so that
a caller can leave room for rounding.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from roadworthy.core.errors import InputError
from roadworthy.models.torch_tensors import import_torch

Tensor = Any
Shape = tuple[int, ...]
Pair = tuple[int, int]
KINDS = (
    *("Conv2d", "Linear", "ReLU", "MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "BatchNorm2d", "Flatten", "Identity"),
    *("Dropout", "Dropout2d"),
)
"""The modules that can be bounded."""
ROUNDING = {"float32": 1e-6, "float64": 1e-14}
"""By how much a box is widened behind a layer, as a share of its bounds, by the type of its numbers."""


class Box(NamedTuple):
    """Lowest and highest values (N, ...) that go into a layer."""

    low: Tensor
    high: Tensor

    @property
    def centre(self) -> Tensor:
        """The middle."""
        return (self.low + self.high) / 2

    @property
    def radius(self) -> Tensor:
        """Half the width."""
        return (self.high - self.low) / 2

    def widened(self) -> Box:
        """The box and what rounding can add to it."""
        share = ROUNDING[str(self.low.dtype).removeprefix("torch.")]
        return Box(self.low - share * self.low.abs(), self.high + share * self.high.abs())


class Linear(NamedTuple):
    """Linear functions of what goes into a layer, S of them per image: weights (N, S, ...), offset (N, S).

    scale  (N, S) how large the terms are that the offset is the sum of
    """

    weights: Tensor
    offset: Tensor
    scale: Tensor

    def plus(self, weights: Tensor, terms: Tensor) -> Linear:
        """With other weights, and further terms (N, S, ...) in the offset."""
        flat = terms.flatten(2)
        return Linear(weights, self.offset + flat.sum(2), self.scale + flat.abs().sum(2))

    def lowest(self, box: Box) -> tuple[Tensor, Tensor]:
        """The lowest values (N, S) on a box, and how large the terms are that they are the sum of."""
        weights, centre, radius = self.weights.flatten(2), box.centre.flatten(1), box.radius.flatten(1)
        middle = (weights @ centre[:, :, None])[:, :, 0]
        reach = (weights.abs() @ radius[:, :, None])[:, :, 0]
        size = (weights.abs() @ centre.abs()[:, :, None])[:, :, 0]
        return middle - reach + self.offset, size + reach + self.scale


class Layer(ABC):
    """One layer of the chain, for values (N, *takes) per image."""

    is_affine = True

    def __init__(self, takes: Shape) -> None:
        self.takes = takes

    @abstractmethod
    def apply(self, values: Tensor) -> Tensor:
        """The layer itself."""

    @abstractmethod
    def carry(self, box: Box) -> Box:
        """The box behind the layer."""

    @abstractmethod
    def back(self, behind: Linear, box: Box) -> Linear:
        """Linear functions of what goes in that are nowhere above those of what comes out, on the box that goes in."""


class Affine(Layer):
    """y = W x + b, as a convolution or a matrix."""

    def __init__(self, takes: Shape, weight: Tensor, bias: Tensor, convolution: dict[str, Any] | None = None) -> None:
        super().__init__(takes)
        self.weight, self.bias, self.convolution = weight, bias, convolution

    def apply(self, values: Tensor) -> Tensor:
        """The values W x + b."""
        return self._times(values, self.weight, self.bias)

    def carry(self, box: Box) -> Box:
        """The box W c + b -+ |W| r."""
        centre, reach = self.apply(box.centre), self._times(box.radius, self.weight.abs(), None)
        return Box(centre - reach, centre + reach).widened()

    def back(self, behind: Linear, box: Box) -> Linear:
        """Weights W^T a and terms a b: exact."""
        torch = import_torch()
        images, functions = behind.weights.shape[:2]
        flat = behind.weights.flatten(0, 1)
        if self.convolution is None:
            weights, terms = flat @ self.weight, flat * self.bias
        else:
            shape = (len(flat), *self.takes)
            weights = torch.nn.grad.conv2d_input(shape, self.weight, flat, **self.convolution)
            terms = flat.sum((2, 3)) * self.bias
        return behind.plus(weights.reshape(images, functions, *self.takes), terms.reshape(images, functions, -1))

    def _times(self, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        functional = import_torch().nn.functional
        if self.convolution is None:
            return functional.linear(values, weight, bias)
        return functional.conv2d(values, weight, bias, **self.convolution)


class Scale(Layer):
    """y = s x + t per channel: a batch normalisation that is no longer trained."""

    def __init__(self, takes: Shape, scale: Tensor, shift: Tensor) -> None:
        super().__init__(takes)
        self.scale, self.shift = scale[:, None, None], shift[:, None, None]

    def apply(self, values: Tensor) -> Tensor:
        """The values s x + t."""
        return self.scale * values + self.shift

    def carry(self, box: Box) -> Box:
        """The box s c + t -+ |s| r."""
        centre, reach = self.apply(box.centre), self.scale.abs() * box.radius
        return Box(centre - reach, centre + reach).widened()

    def back(self, behind: Linear, box: Box) -> Linear:
        """Weights s a and terms a t: exact."""
        return behind.plus(behind.weights * self.scale, behind.weights * self.shift)


class Average(Layer):
    """The mean of each window; zeros around the image count."""

    def __init__(self, takes: Shape, kernel: Pair, stride: Pair, padding: Pair) -> None:
        super().__init__(takes)
        self.window: dict[str, Pair] = {"kernel_size": kernel, "stride": stride, "padding": padding}

    def apply(self, values: Tensor) -> Tensor:
        """The means."""
        return import_torch().nn.functional.avg_pool2d(values, **self.window)

    def carry(self, box: Box) -> Box:
        """The means of both bounds."""
        return Box(self.apply(box.low), self.apply(box.high)).widened()

    def back(self, behind: Linear, box: Box) -> Linear:
        """Each weight shared among its window: exact."""
        torch = import_torch()
        images, functions = behind.weights.shape[:2]
        flat = behind.weights.flatten(0, 1)
        kernel = self.window["kernel_size"]
        weight = flat.new_full((self.takes[0], 1, *kernel), 1 / math.prod(kernel))
        window = {"stride": self.window["stride"], "padding": self.window["padding"], "groups": self.takes[0]}
        weights = torch.nn.grad.conv2d_input((len(flat), *self.takes), weight, flat, **window)
        return behind._replace(weights=weights.reshape(images, functions, *self.takes))


class Flatten(Layer):
    """All values of an image in one row."""

    def apply(self, values: Tensor) -> Tensor:
        """The values (N, D)."""
        return values.flatten(1)

    def carry(self, box: Box) -> Box:
        """The same bounds."""
        return Box(box.low.flatten(1), box.high.flatten(1))

    def back(self, behind: Linear, box: Box) -> Linear:
        """The same weights."""
        return behind._replace(weights=behind.weights.reshape(*behind.weights.shape[:2], *self.takes))


class Relu(Layer):
    """y = max(x, 0). On a box [l, u] around 0: a x <= y <= s (x - l), s = u / (u - l), a = 1 where u > -l, else 0."""

    is_affine = False

    def apply(self, values: Tensor) -> Tensor:
        """max(x, 0)."""
        return values.clamp_min(0)

    def carry(self, box: Box) -> Box:
        """max(l, 0) to max(u, 0)."""
        return Box(box.low.clamp_min(0), box.high.clamp_min(0))

    def back(self, behind: Linear, box: Box) -> Linear:
        """Weights above 0 take the lower line, weights below 0 the upper one."""
        torch = import_torch()
        low, high = box.low.clamp_max(0), box.high.clamp_min(0)
        is_open = (low < 0) & (high > 0)
        is_on = (box.low >= 0).to(low.dtype)
        above = torch.where(is_open, high / (high - low).clamp_min(torch.finfo(low.dtype).tiny), is_on)
        below = torch.where(is_open, (high > -low).to(low.dtype), is_on)
        falling = behind.weights.clamp_max(0) * above[:, None]
        return behind.plus(
            behind.weights.clamp_min(0) * below[:, None] + falling, -falling * low[:, None] * is_open[:, None]
        )


class MaxPool(Layer):
    """y = max_i x_i over windows; with j the place of the highest lower bound and d_i = x_i - x_j:

    x_j <= y <= x_j + sum_i max(d_i, 0), each of these bounded as a ReLU is; where max_i u_i is lower, y <= max_i u_i.
    """

    is_affine = False

    def __init__(self, takes: Shape, kernel: Pair, stride: Pair) -> None:
        super().__init__(takes)
        self.kernel, self.stride = kernel, stride

    def apply(self, values: Tensor) -> Tensor:
        """The highest value of each window."""
        return import_torch().nn.functional.max_pool2d(values, self.kernel, self.stride)

    def carry(self, box: Box) -> Box:
        """The highest of the lower bounds to the highest of the upper ones."""
        return Box(self.apply(box.low), self.apply(box.high))

    def back(self, behind: Linear, box: Box) -> Linear:
        """Weights above 0 take x_j, weights below 0 the upper bound; windows that overlap are summed."""
        torch = import_torch()
        functional = torch.nn.functional
        images, functions, channels, *_ = behind.weights.shape
        low, high = (self._windows(bound) for bound in box)
        below = functional.one_hot(low.argmax(2), low.shape[2]).movedim(-1, 2).to(low.dtype)
        lowest, highest = ((below * bound).sum(2, keepdim=True) for bound in (low, high))
        reach, drop = (high - lowest).clamp_min(0) * (1 - below), (low - highest).clamp_max(0)
        slopes = reach / (reach - drop).clamp_min(torch.finfo(low.dtype).tiny)
        above = slopes + below * (1 - slopes.sum(2, keepdim=True))
        rest = -(slopes * drop).sum(2)
        top = high.amax(2)
        is_flat = top < (above * (low + high) / 2).sum(2) + rest
        above, rest = torch.where(is_flat[:, :, None], 0.0, above), torch.where(is_flat, top, rest)
        weights = behind.weights.reshape(images, functions, channels, 1, -1)
        rising, falling = weights.clamp_min(0), weights.clamp_max(0)
        spread = rising * below[:, None] + falling * above[:, None]
        folded = functional.fold(
            spread.reshape(-1, *spread.shape[-2:]), self.takes[1:], self.kernel, stride=self.stride
        )
        weights_in = folded.reshape(images, functions, *self.takes)
        return behind.plus(weights_in, falling[:, :, :, 0] * rest[:, None])

    def _windows(self, values: Tensor) -> Tensor:
        """The values of each window: (N, C, values, windows)."""
        images, channels, *side = values.shape
        unfolded = import_torch().nn.functional.unfold(
            values.reshape(images * channels, 1, *side), self.kernel, stride=self.stride
        )
        return unfolded.reshape(images, channels, *unfolded.shape[1:])


@dataclass(frozen=True)
class Chain:
    """The layers of a network, one behind the other."""

    layers: tuple[Layer, ...]

    def apply(self, values: Tensor) -> Tensor:
        """The logits (N, K)."""
        for layer in self.layers:
            values = layer.apply(values)
        return values

    @property
    def widest(self) -> int:
        """How many values of an image go into a layer at most."""
        return max(math.prod(layer.takes) for layer in self.layers)

    def boxes(self, box: Box) -> list[Box]:
        """The box that goes into each layer, by intervals."""
        boxes = [box]
        for layer in self.layers[:-1]:
            boxes.append(layer.carry(boxes[-1]))
        return boxes

    def lowest(self, functions: Tensor, boxes: list[Box], *, linear: bool) -> tuple[Tensor, Tensor]:
        """Lower bounds (N, S) of functions (N, S, K) of the logits, and how large the terms are they are the sum of.

        The functions are carried back to the last layer that is not affine, where its box bounds them; with `linear`
        to the input, and the better of both bounds counts.
        """
        torch = import_torch()
        nothing = functions.new_zeros(functions.shape[:2])
        carried = Linear(functions, nothing, nothing)
        bound: tuple[Tensor, Tensor] | None = None
        for layer, box in zip(reversed(self.layers), reversed(boxes), strict=True):
            if bound is None and not layer.is_affine:
                bound = carried.lowest(layer.carry(box))
                if not linear:
                    return bound
            carried = layer.back(carried, box)
        exact = carried.lowest(boxes[0])
        if bound is None:
            return exact
        is_better = exact[0] > bound[0]
        return torch.where(is_better, exact[0], bound[0]), torch.where(is_better, exact[1], bound[1])


def chain_of(module: Any, takes: Shape, name: str, dtype: str = "float64") -> Chain:
    """The layers of a torch module that takes images of shape `takes`, computing in `dtype` (float32 or float64).

    An `InputError` for a module of other layers. A softmax at the end is left out: it keeps the order of the classes.

    >>> nn = import_torch().nn
    >>> chain = chain_of(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3)), (3, 2, 2), "tiny")
    >>> [type(layer).__name__ for layer in chain.layers], chain.widest
    (['Flatten', 'Affine', 'Relu', 'Affine'], 12)
    """
    torch = import_torch()
    layers: list[Layer] = []
    numbers = getattr(torch, dtype)
    values = torch.zeros(1, *takes, dtype=numbers)
    for part in parts_of(module, name):
        layer = _layer(copy.deepcopy(part).to("cpu", numbers), tuple(values.shape[1:]), name)
        if layer is not None:
            values = layer.apply(values)
            layers.append(layer)
    if not layers or values.ndim != 2:
        raise InputError(f"the network of model {name} cannot be bounded: it must end in one row of logits per image")
    return Chain(tuple(layers))


def parts_of(module: Any, name: str) -> list[Any]:
    """The modules of a network in the order in which they run; an `InputError` that names one of an unknown kind.

    What their settings allow shows only when `chain_of` is asked for a shape.
    """
    nn = import_torch().nn
    parts = _parts(module, name)
    while parts and isinstance(parts[-1], nn.Softmax | nn.LogSoftmax):
        parts.pop()
    for part in parts:
        if not any(isinstance(part, getattr(nn, kind)) for kind in KINDS):
            raise _refusal(part, name)
    return parts


def _parts(module: Any, name: str) -> list[Any]:
    nn = import_torch().nn
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        return [part for child in module for part in _parts(child, name)]
    if next(module.children(), None) is not None:
        raise _refusal(module, name)
    return [module]


def _refusal(part: Any, name: str, reason: str = "") -> InputError:
    what, known = f"{type(part).__name__}{reason}", ", ".join(KINDS)
    return InputError(
        f"the network of model {name} cannot be bounded because of its {what}: use a Sequential of {known}"
    )


def _layer(part: Any, takes: Shape, name: str) -> Layer | None:
    """The layer of the chain for a module; None for one that does nothing once a network is trained."""
    nn = import_torch().nn
    if isinstance(part, nn.Identity | nn.Dropout | nn.Dropout2d):
        return None
    if isinstance(part, nn.ReLU):
        return Relu(takes)
    if isinstance(part, nn.Flatten):
        if (part.start_dim, part.end_dim) not in ((1, -1), (1, len(takes))):
            raise _refusal(part, name, " of some sides only")
        return Flatten(takes)
    if isinstance(part, nn.Linear) and len(takes) == 1:
        return Affine(takes, *_weight_and_bias(part))
    if len(takes) == 3:
        layer = _image_layer(part, takes, name)
        if layer is not None:
            return layer
    raise _refusal(part, name, f" of values {takes}" if isinstance(part, nn.Linear) else "")


def _image_layer(part: Any, takes: Shape, name: str) -> Layer | None:
    """The layer for a module of feature maps; None where there is none."""
    nn = import_torch().nn
    if isinstance(part, nn.Conv2d):
        return _convolution(part, takes, name)
    if isinstance(part, nn.BatchNorm2d):
        if part.running_mean is None:
            raise _refusal(part, name, " without running statistics")
        scale, shift = 1 / (part.running_var + part.eps).sqrt(), 0.0
        if part.affine:
            scale, shift = scale * part.weight.detach(), part.bias.detach()
        return Scale(takes, scale, shift - part.running_mean * scale)
    if isinstance(part, nn.MaxPool2d):
        if _pair(part.padding) != (0, 0) or _pair(part.dilation) != (1, 1) or part.ceil_mode or part.return_indices:
            raise _refusal(part, name, " with padding, dilation, ceil_mode or return_indices")
        return MaxPool(takes, _pair(part.kernel_size), _pair(part.stride))
    if isinstance(part, nn.AdaptiveAvgPool2d) and _pair(part.output_size) == (1, 1):
        return Average(takes, (takes[1], takes[2]), (1, 1), (0, 0))
    if isinstance(part, nn.AvgPool2d):
        padding = _pair(part.padding)
        if part.ceil_mode or part.divisor_override or (padding != (0, 0) and not part.count_include_pad):
            raise _refusal(part, name, " with ceil_mode, divisor_override or padding that is not counted")
        return Average(takes, _pair(part.kernel_size), _pair(part.stride), padding)
    return None


def _convolution(part: Any, takes: Shape, name: str) -> Affine:
    if part.padding_mode != "zeros":
        raise _refusal(part, name, f" with padding_mode {part.padding_mode!r}")
    padding = part.padding
    if isinstance(padding, str):
        around = [dilation * (side - 1) for dilation, side in zip(part.dilation, part.kernel_size, strict=True)]
        if padding == "same" and any(total % 2 for total in around):
            raise _refusal(part, name, " with padding 'same' and an even kernel")
        padding = tuple(total // 2 for total in around) if padding == "same" else (0, 0)
    options = {"stride": part.stride, "padding": padding, "dilation": part.dilation, "groups": part.groups}
    return Affine(takes, *_weight_and_bias(part), options)


def _weight_and_bias(part: Any) -> tuple[Tensor, Tensor]:
    weight = part.weight.detach()
    return weight, weight.new_zeros(len(weight)) if part.bias is None else part.bias.detach()


def _pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))
