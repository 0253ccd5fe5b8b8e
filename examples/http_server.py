"""A small server for an ONNX classifier, to try `roadworthy check --model http://127.0.0.1:8080/predict`.

    python examples/http_server.py m.onnx --port 8080

It takes what docs/http.md calls the formats `json` and `multipart`. Only the standard library serves; for real use take
a real server. Images are brought to the range 0 to 1, in the layout N, C, H, W.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnxruntime
from PIL import Image


def images_of(content_type: str, body: bytes) -> list[bytes]:
    """The PNG files in a request."""
    if content_type.startswith("multipart/form-data"):
        parts = message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body).get_payload()
        return [part.get_payload(decode=True) for part in parts]
    return [base64.b64decode(text) for text in json.loads(body)["images"]]


def make_server(model: str, port: int) -> ThreadingHTTPServer:
    """A server on this machine that answers with the class scores of an ONNX file."""
    session = onnxruntime.InferenceSession(model)
    name = session.get_inputs()[0].name

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            files = images_of(self.headers["Content-Type"], body)
            pixels = np.stack([np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) for file in files])
            tensor = (pixels.transpose(0, 3, 1, 2) / 255).astype(np.float32)
            rows = session.run(None, {name: tensor})[0]
            answer = json.dumps({"probabilities": rows.tolist()}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("model")
    arguments.add_argument("--port", type=int, default=8080)
    given = arguments.parse_args()
    with make_server(given.model, given.port) as server:
        print(f"http://127.0.0.1:{given.port}/predict")
        server.serve_forever()
