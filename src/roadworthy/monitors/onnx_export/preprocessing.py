"""Preprocessing as nodes of a graph: uint8 images (N, H, W, C) to what a network takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from roadworthy.models.preprocess import Preprocess, parse_range
from roadworthy.monitors.onnx_export.builder import GraphBuilder, Tensor, input_sides, value_info

LEVELS = np.arange(256)


def add_preprocessing(
    graph: GraphBuilder, preprocess: Preprocess, size: Sequence[int], network: onnx.ValueInfoProto, name: str
) -> onnx.ValueInfoProto:
    """Add nodes from an input `name` to the input of the network; returns the new input (N, H, W, C) uint8, R, G, B.

    Images are at the network's own size, with as many channels as it takes. The values are those of `Preprocess`, bit
    for bit.
    """
    channels = preprocess.channels
    pixels = graph.declare(name, np.uint8)
    if preprocess.layout == "nchw":
        pixels = graph.add("Transpose", pixels, perm=[0, 3, 1, 2])
    if preprocess.colour == "bgr" and channels == 3:
        axis = 1 if preprocess.layout == "nchw" else 3
        pixels = graph.add("Gather", pixels, np.arange(channels)[::-1].copy(), axis=axis)
    graph.name_output(_scaled(graph, preprocess, pixels), network.name)
    return value_info(name, np.uint8, (input_sides(network)[0], *size, channels))


def _scaled(graph: GraphBuilder, preprocess: Preprocess, pixels: Tensor) -> Tensor:
    """(x / 255 - mean) / std in the type of the network.

    In single precision as (x - 255 mean) / (255 std) where that gives the same values for all 256 levels, else looked
    up in a table of them.
    """
    if preprocess.dtype == "uint8":
        return pixels
    mean, std = (np.broadcast_to(values, preprocess.channels) for values in parse_range(preprocess.range))
    if preprocess.colour == "bgr":
        mean, std = mean[::-1], std[::-1]
    shape = (-1, 1, 1) if preprocess.layout == "nchw" else (-1,)
    table = ((LEVELS / 255.0 - mean[:, None]) / std[:, None]).astype(preprocess.dtype)
    offset, scale = (255.0 * mean).astype(np.float32), (255.0 * std).astype(np.float32)
    quick = (LEVELS.astype(np.float32) - offset[:, None]) / scale[:, None]
    if not np.array_equal(quick.astype(preprocess.dtype), table):
        starts = (len(LEVELS) * np.arange(preprocess.channels)).reshape(shape)
        return graph.add("Gather", table.ravel(), graph.add("Add", graph.cast(pixels, np.int64), starts))
    values = graph.cast(pixels, np.float32)
    values = graph.add("Sub", values, offset.reshape(shape)) if offset.any() else values
    values = graph.add("Div", values, scale.reshape(shape)) if (scale != 1).any() else values
    return graph.cast(values, preprocess.dtype)
