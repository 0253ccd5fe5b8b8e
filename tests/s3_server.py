"""A server of S3 in another process, on loopback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec
import pytest

SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def s3_bucket() -> Iterator[str]:
    """The address of a bucket, found as users name one: by variables of the environment."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([sys.executable, "-c", SERVER], text=True, **pipes)
    assert server.stdout is not None
    endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.get_filesystem_class("s3").clear_instance_cache()  # one of a server before has its address
        fsspec.filesystem("s3").mkdir("bucket")
        yield "s3://bucket"
    server.kill()
    server.wait()
