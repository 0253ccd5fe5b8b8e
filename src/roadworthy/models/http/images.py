"""The formats `json` and `multipart`: images as PNG files, class scores by name."""

from __future__ import annotations

import base64
import hashlib
import json
from abc import abstractmethod
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import ModelError
from roadworthy.core.types import Images
from roadworthy.models.http.client import Client
from roadworthy.models.http.connection import Answer, Request
from roadworthy.models.http.formats import (
    FORMATS,
    InputSettings,
    Scores,
    WireFormat,
    check_version,
    read_array,
    read_json,
    refuse_settings,
)
from roadworthy.models.preprocess import Preprocess

KINDS = ("probabilities", "logits")
FAST = [cv2.IMWRITE_PNG_COMPRESSION, 1]


def png(image: Images) -> bytes:
    """An image (H, W, 1 or 3), RGB, as a PNG file: the same pixels come out of it.

    >>> png(np.zeros((2, 2, 3), np.uint8))[:4]
    b'\\x89PNG'
    """
    stored = image[..., ::-1] if image.shape[-1] == 3 else image
    _, content = cv2.imencode(".png", np.ascontiguousarray(stored), FAST)
    return bytes(content)


class ImageFormat(WireFormat):
    """Images as PNG files; the server brings them to the size and range that its model needs."""

    def __init__(self, client: Client, settings: InputSettings) -> None:
        refuse_settings(self.name, settings.given(), "it sends images as they are, which the server prepares")
        self._client, self._version = client, settings.version
        self.preprocess = Preprocess("0-255", "nhwc", "rgb", settings.size, 0, "uint8")

    def request(self, tensor: NDArray[Any]) -> Request:
        """The images (N, H, W, C) in one request."""
        content_type, body = self.body([png(image) for image in tensor])
        return Request("POST", self._client.address.target, body, content_type)

    @abstractmethod
    def body(self, files: list[bytes]) -> tuple[str, bytes]:
        """The content type and the body that hold these PNG files."""

    def scores(self, answer: Answer, count: int) -> Scores:
        """The rows under `probabilities` or `logits`."""
        content = read_json(self._client, answer)
        check_version(self._client, content, self._version)
        named = [kind for kind in KINDS if kind in content]
        if len(named) != 1:
            keys = self._client.secrets.safe(", ".join(map(str, content))) or "nothing"
            raise ModelError(f"{self._client.address} answered {keys}, not either probabilities or logits")
        return Scores(read_array(self._client, content[named[0]], named[0]), named[0])


@FORMATS.register("json")
class JsonFormat(ImageFormat):
    """`{"images": [BASE64, ...]}`: PNG files in base64."""

    name = "json"

    def body(self, files: list[bytes]) -> tuple[str, bytes]:
        """The JSON object."""
        images = [base64.b64encode(file).decode("ascii") for file in files]
        return "application/json", json.dumps({"images": images}).encode()


@FORMATS.register("multipart")
class MultipartFormat(ImageFormat):
    """`multipart/form-data` with one part `images` per PNG file, named `0.png`, `1.png`, ..."""

    name = "multipart"

    def body(self, files: list[bytes]) -> tuple[str, bytes]:
        """The parts; what stands between them follows from their bytes and occurs in none."""
        boundary = hashlib.sha256(b"".join(files)).hexdigest()
        pieces = []
        for number, file in enumerate(files):
            disposition = f'Content-Disposition: form-data; name="images"; filename="{number}.png"'
            pieces.append(f"--{boundary}\r\n{disposition}\r\nContent-Type: image/png\r\n\r\n".encode() + file + b"\r\n")
        return f"multipart/form-data; boundary={boundary}", b"".join(pieces) + f"--{boundary}--\r\n".encode()
