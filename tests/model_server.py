"""A server on this machine that tells dark images from bright ones, and misbehaves as it is told."""

from __future__ import annotations

import base64
import io
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image

Fault = Callable[[int], str]
"""What is wrong with the answer to a request, by its number; empty: nothing."""
METADATA = {
    "name": "light",
    "versions": ["7"],
    "inputs": [{"name": "pixels", "datatype": "FP32", "shape": [-1, 3, 8, 8]}],
    "outputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, 2]}],
}
FAULTS = ("hang", "500", "503", "garbage", "truncated", "rows", "columns", "nan", "sums", "close", "html")
PASSING = ("hang", "500", "503", "truncated", "close")
"""Faults after which the same request gets its answer when it is repeated."""


def at_random(seed: int, share: float, faults: Sequence[str] = FAULTS) -> Fault:
    """Faults at random, the same for the same seed and order of requests."""
    rng = random.Random(seed)
    return lambda number: rng.choice(faults) if rng.random() < share else ""


def rows_of(pixels: np.ndarray) -> np.ndarray:
    """Dark or bright (N, 2) by the mean of images (N, ...) with values from 0 to 255, exactly the same every time."""
    light = pixels.reshape(len(pixels), -1).astype(np.float64).mean(axis=1) / 255
    return np.stack([1 - light, light], axis=1)


class ModelServer(ThreadingHTTPServer):
    """What it was asked, and how it answers."""

    daemon_threads, allow_reuse_address = True, True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock, self.stopped = threading.Lock(), threading.Event()
        self.fault: Fault = lambda number: ""
        self.kind, self.delay, self.retry_after, self.patience = "probabilities", 0.0, "0", 30.0
        self.metadata: dict[str, Any] = METADATA
        self.extensions: list[str] = []
        self.model_version, self.location = "", ""
        self.closes, self.pause = False, 0.0
        self.forget()

    def forget(self) -> None:
        self.asked = self.in_flight = self.most_in_flight = 0
        self.starts: list[float] = []
        self.headers: list[dict[str, str]] = []
        self.sizes: list[int] = []
        self.paths: list[str] = []

    def url(self, path: str = "/predict") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are no error."""


@contextmanager
def serving() -> Iterator[ModelServer]:
    server = ModelServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stopped.set()
        server.shutdown()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    server: ModelServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        if self.path == "/v2":
            self.reply({"name": "tests", "extensions": self.server.extensions})
        elif self.path.startswith("/v2/models/light"):
            self.reply(self.server.metadata)
        else:
            self.reply({"error": "no such path"}, 404)

    def do_POST(self) -> None:
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with server.lock:
            server.asked += 1
            fault = server.fault(server.asked)
            server.in_flight += 1
            server.most_in_flight = max(server.most_in_flight, server.in_flight)
            server.starts.append(time.monotonic())
            server.headers.append(dict(self.headers))
            server.paths.append(self.path)
        server.stopped.wait(server.delay)
        with server.lock:  # before the answer: who has it may ask again at once
            server.in_flight -= 1
        with suppress(BrokenPipeError, ConnectionResetError):
            self.respond(fault, body)

    def respond(self, fault: str, body: bytes) -> None:
        if fault == "hang":
            self.close_connection = True
            self.server.stopped.wait(self.server.patience)
        elif fault == "close":
            self.close_connection = True
        elif fault == "echo":
            self.reply({"error": f"bad header {dict(self.headers)}"}, 500)
        elif fault == "redirect":
            self.reply({}, 307, {"Location": self.server.location})
        elif fault in ("500", "503", "400", "404"):
            self.reply({"error": "it is tired"}, int(fault), {"Retry-After": self.server.retry_after})
        elif fault == "html":
            self.send(b"<html>{}</html>", 200, {"Content-Type": "text/html"})
        elif fault == "twice":
            self.send(b'{"a": {"outputs": 1, "outputs": 2}}', 200, {"Content-Type": "application/json"})
        elif fault == "garbage":
            self.send(b'{"probabilities": [[0.5, 0.5', 200, {"Content-Type": "application/json"})
        elif fault == "drip":
            self.drip()
        elif fault == "huge":
            self.huge()
        else:
            kserve = self.path.startswith("/v2/")
            rows, extra = (self.kserve_rows(body), {}) if kserve else (rows_of(self.images(body)), {})
            self.server.sizes.append(len(rows))
            content = self.kserve_answer(spoiled(rows, fault)) if kserve else {self.server.kind: spoiled(rows, fault)}
            if self.server.model_version:
                extra = {"model_version": self.server.model_version}
            self.reply({**content, **extra}, cut=fault == "truncated")

    def images(self, body: bytes) -> np.ndarray:
        kind = self.headers["Content-Type"]
        if kind.startswith("multipart"):
            parts = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body).get_payload()
            assert [part.get_param("name", header="content-disposition") for part in parts] == ["images"] * len(parts)
            files = [part.get_payload(decode=True) for part in parts]
        else:
            files = [base64.b64decode(text) for text in json.loads(body)["images"]]
        return np.stack([np.asarray(Image.open(io.BytesIO(file))) for file in files])

    def kserve_rows(self, body: bytes) -> np.ndarray:
        length = int(self.headers.get("Inference-Header-Content-Length", len(body)))
        (entry,) = json.loads(body[:length])["inputs"]
        dtype = {"FP32": "<f4", "UINT8": "u1"}[entry["datatype"]]
        values = np.frombuffer(body[length:], dtype) if length < len(body) else np.array(entry["data"], dtype)
        assert entry["name"] == "pixels"
        tensor = values.reshape(entry["shape"]).astype(np.float64)
        return rows_of(tensor if entry["datatype"] == "UINT8" else np.rint(tensor * 255))

    def kserve_answer(self, rows: list[Any]) -> dict[str, Any]:
        shape = [len(rows), len(rows[0])]
        scores = {"name": "scores", "datatype": "FP32", "shape": shape, "data": [v for row in rows for v in row]}
        names = {"name": "names", "datatype": "BYTES", "shape": [len(rows)], "data": ["dark"] * len(rows)}
        return {"model_name": "light", "model_version": self.server.metadata["versions"][0], "outputs": [names, scores]}

    def drip(self) -> None:
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for _ in range(150):
            if self.server.stopped.wait(0.02):
                return
            self.wfile.write(b"X")
            self.wfile.flush()

    def huge(self) -> None:
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        piece = b"100000\r\n" + b" " * 2**20 + b"\r\n"
        while not self.server.stopped.is_set():
            self.wfile.write(piece)

    def reply(self, content: Any, status: int = 200, headers: dict[str, str] | None = None, cut: bool = False) -> None:
        own = {"Content-Type": "application/json", **(headers or {})}
        self.send(json.dumps(content).encode(), status, own, cut)

    def send(self, content: bytes, status: int, headers: dict[str, str], cut: bool = False) -> None:
        self.send_response(status)
        ends = {"Connection": "close"} if self.server.closes else {}
        for name, value in {**headers, **ends, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.server.stopped.wait(self.server.pause)
        self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection |= cut


def spoiled(rows: np.ndarray, fault: str) -> list[Any]:
    """Rows as JSON, with what is wrong with them."""
    if fault == "rows":
        return [*rows.tolist(), [0.5, 0.5]]
    if fault == "columns":
        return [[*row, 0.0] for row in rows.tolist()]
    if fault == "nan":
        return [[float("nan"), 1.0], *rows.tolist()[1:]]
    if fault == "sums":
        return [[0.9, 0.9], *rows.tolist()[1:]]
    if fault == "text":
        return [["0.5", "0.5"] for _ in rows]
    if fault == "true":
        return [[True, 0.0], *rows.tolist()[1:]]
    if fault == "random":
        light = np.random.default_rng().random(len(rows))
        return np.stack([1 - light, light], axis=1).tolist()
    return rows.tolist()
