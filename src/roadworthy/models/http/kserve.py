"""The format `kserve`: the open inference protocol (v2) of KServe, Triton, MLServer and others, with a tensor in JSON
or, where the server says that it takes them, in raw bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError
from roadworthy.models.http.address import Address
from roadworthy.models.http.client import Client, Rejected
from roadworthy.models.http.connection import Answer, Request
from roadworthy.models.http.formats import (
    FORMATS,
    InputSettings,
    Scores,
    WireFormat,
    check_version,
    read_array,
    read_json,
)
from roadworthy.models.outputs import as_rows, refuse_detector
from roadworthy.models.preprocess import Preprocess, read_shape

TYPES = {"FP32": "float32", "UINT8": "uint8"}
BINARY = "binary_tensor_data"
MODEL = re.compile(r"(?P<root>.*/v2)/models/(?P<name>[^/]+)(/versions/(?P<version>[^/]+))?(/infer)?/?")


@FORMATS.register("kserve")
class KServeFormat(WireFormat):
    """A tensor to `/v2/models/NAME/infer`; name, type and shape of the input come from `/v2/models/NAME`."""

    name = "kserve"

    def __init__(self, client: Client, settings: InputSettings) -> None:
        self._client, self._output = client, settings.output
        parts = MODEL.fullmatch(client.address.path)
        if parts is None:
            raise InputError(
                f"{client.address} names no model of a kserve server: write http://HOST:PORT/v2/models/NAME"
            )
        metadata = self._get(f"{parts['root']}/models/{parts['name']}" + _version_path(parts["version"]))
        self.version = parts["version"] or _stated_version(metadata, settings.version)
        self._target = f"{parts['root']}/models/{parts['name']}{_version_path(self.version)}/infer"
        self._read_input(metadata, settings)
        self._is_binary = self._takes_bytes(parts["root"])

    @classmethod
    def fits(cls, address: Address) -> bool:
        """Whether the path is that of a model on such a server.

        >>> KServeFormat.fits(Address("http", "h", 80, "/v2/models/signs"))
        True
        """
        return MODEL.fullmatch(address.path) is not None

    def request(self, tensor: NDArray[Any]) -> Request:
        """The tensor as the one input."""
        values = tensor.reshape(len(tensor), -1) if self._is_flat else tensor
        entry: dict[str, Any] = {"name": self._input, "shape": list(values.shape), "datatype": self._datatype}
        content: dict[str, Any] = {"inputs": [entry]}
        if self._output is not None:
            content["outputs"] = [{"name": self._output}]
        if not self._is_binary:
            entry["data"] = values.ravel().tolist()
            return Request("POST", self._target, json.dumps(content).encode(), "application/json")
        raw = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
        entry["parameters"] = {"binary_data_size": len(raw)}
        head = json.dumps(content).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        return Request("POST", self._target, head + raw, "application/octet-stream", headers)

    def scores(self, answer: Answer, count: int) -> Scores:
        """The output that was asked for, or the only one with one row of class scores per image."""
        content = read_json(self._client, answer)
        if self.version is None and content.get("model_version"):
            self.version = str(content["model_version"])  # of the answer to a probe: all later ones are held to it
        check_version(self._client, content, self.version)
        outputs = content.get("outputs")
        if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
            raise ModelError(f"{self._client.address} answered no list of outputs")
        arrays = {str(output.get("name")): self._array(output) for output in outputs}
        if self._output is not None and self._output not in arrays:
            raise ModelError(
                f"{self._client.address} answered no output {self._output!r}: it has {self._names(arrays)}"
            )
        refuse_detector(arrays, count, str(self._client.address))
        asked = {name: as_rows(array, count) for name, array in arrays.items() if self._output in (None, name)}
        fitting = {name: rows for name, rows in asked.items() if rows is not None and rows.shape[1] > 1}
        if len(fitting) > 1:
            raise InputError(
                f"{self._client.address} answers several outputs that may be class scores ({self._names(fitting)}): "
                "say which with `output=`"
            )
        for rows in fitting.values():
            return Scores(rows)
        shapes = ", ".join("x".join(map(str, array.shape)) for array in arrays.values() if array.size) or "nothing"
        raise ModelError(
            f"{self._client.address} answered {shapes} to {count} images, not one row of class scores each"
        )

    def settings(self) -> dict[str, Any]:
        """The names of input and output; bytes and JSON give the same numbers."""
        return {"input": self._input, "output": self._output, "flat": self._is_flat}

    def _get(self, target: str) -> dict[str, Any]:
        return read_json(self._client, self._client.ask(Request("GET", target)))

    def _read_input(self, metadata: Mapping[str, Any], settings: InputSettings) -> None:
        """Take the name, type and shape of the input from the metadata, completed by the settings."""
        what, inputs = str(self._client.address), metadata.get("inputs")
        if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
            count = len(inputs) if isinstance(inputs, list) else 0
            raise InputError(
                f"{what} states {count} inputs of its model, and one is needed: declare name, datatype and shape of "
                "one input in the model's configuration on the server"
            )
        name, datatype, shape = (inputs[0].get(key) for key in ("name", "datatype", "shape"))
        if not isinstance(name, str) or not isinstance(shape, list) or not all(type(side) is int for side in shape):
            raise InputError(f"{what} states an input of its model without a name or a shape")
        if datatype not in TYPES:
            stated = self._client.secrets.safe(str(datatype))
            raise InputError(f"{what} takes {stated}: images are sent as {' or '.join(TYPES)}")
        self._input, self._datatype, dtype = name, str(datatype), TYPES[str(datatype)]
        self._is_flat = len(shape) == 2
        dims = _unfolded(shape, settings, what) if self._is_flat else shape
        known = [None if side < 1 else side for side in dims]
        layout, channels, size, self.fixed_batch = read_shape(known, settings.layout, settings.size, what)
        chosen = settings.range or ("0-255" if dtype == "uint8" else "0-1")
        self.preprocess = Preprocess(chosen, layout, settings.colour, size, channels, dtype)

    def _takes_bytes(self, root: str) -> bool:
        """Whether the server says that it takes tensors as bytes."""
        try:
            return BINARY in self._get(root).get("extensions", ())
        except (Rejected, TypeError):
            return False

    def _array(self, output: Mapping[str, Any]) -> NDArray[np.float64]:
        """An output in its shape; one that holds no numbers, such as class names, is empty."""
        data, shape = output.get("data"), output.get("shape")
        if str(output.get("datatype", "")).startswith(("BYTES", "BOOL")):
            return np.zeros(0)
        array = read_array(self._client, data, f"an output {self._names([str(output.get('name'))])} of values").ravel()
        if not isinstance(shape, list) or not all(type(side) is int and side >= 0 for side in shape):
            raise ModelError(f"{self._client.address} answered an output without a shape")
        if int(np.prod(shape, dtype=object)) != array.size:
            raise ModelError(f"{self._client.address} answered {array.size} numbers in an output of shape {shape[:6]}")
        return array.reshape(shape)

    def _names(self, names: Any) -> str:
        return self._client.secrets.safe(", ".join(map(str, names))) or "none"


def _version_path(version: str | None) -> str:
    return "" if version is None else f"/versions/{quote(version, safe='')}"


def _stated_version(metadata: Mapping[str, Any], wanted: str | None) -> str | None:
    """The version that the server has of the model: the wanted one, or the only one; None where it states neither."""
    versions = metadata.get("versions")
    stated = (
        [version for version in versions if isinstance(version, str) and version] if isinstance(versions, list) else []
    )
    if wanted in stated:
        return wanted
    return stated[0] if len(stated) == 1 else None


def _unfolded(shape: list[int], settings: InputSettings, what: str) -> list[int]:
    """The shape (N, H, W, C) or (N, C, H, W) that was flattened to (N, D), as models of tables take images."""
    if settings.size is None or settings.layout == "auto":
        raise InputError(
            f"{what} takes an input of shape {'x'.join(map(str, shape))}, images as rows of numbers: give "
            "`size='HxW'` and `layout='nhwc'` or `layout='nchw'` that it was trained with"
        )
    height, width = settings.size
    channels, rest = divmod(shape[1], height * width) if shape[1] > 0 else (3, 0)
    if rest or channels not in (1, 3):
        raise InputError(f"{what} takes {shape[1]} numbers per image, which are no image of {height}x{width}")
    return [shape[0], channels, height, width] if settings.layout == "nchw" else [shape[0], height, width, channels]
