"""Starting the viewer: on this machine alone, unless another address is asked for."""

from __future__ import annotations

import socket
import threading
import warnings
import webbrowser
from collections.abc import Callable
from pathlib import Path

from roadworthy.core.errors import InputError, MissingExtra
from roadworthy.core.remote import is_address
from roadworthy.viewer.guarding import EVERYWHERE, is_loopback

HOST, PORT = "127.0.0.1", 8723


def serve(
    folder: str | Path,
    *,
    host: str = HOST,
    port: int = PORT,
    open_browser: bool = False,
    bundle: str | Path | None = None,
    ready: Callable[[str], None] = print,
) -> None:
    """Show the runs below a folder in a browser, at http://127.0.0.1:8723/ unless told otherwise, until it is stopped.

    It only reads: no request changes a file, no code of a run is executed, nothing is fetched. Another `host` than a
    loopback address lets other machines ask, without any password; port 0 takes a free one. `ready` is told the
    address. With `bundle`, the viewer is written to that new folder instead, as files for a web server. Needs the extra
    `serve`.
    """
    folder = checked_folder(folder)
    if bundle is not None:
        from roadworthy.viewer.bundling import write_bundle

        written = write_bundle(folder, Path(bundle))
        ready(f"{written.runs:,} runs in {written.files:,} files: {bundle}/index.html")
        return
    try:
        import uvicorn

        from roadworthy.viewer.app import make_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio"):
            raise
        raise MissingExtra("web pages of the viewer", "serve") from None
    app = make_app(folder, host)
    listening = listen(host, port)
    address = _address(host, listening.getsockname()[1])
    if not is_loopback(host):
        warnings.warn(
            f"other machines can reach {address}, and whoever does can read all runs below {folder} and the images "
            "that their studies name: there is no password",
            stacklevel=2,
        )
    config = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False, date_header=False, lifespan="off", ws="none"
    )
    ready(address)
    if open_browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def checked_folder(folder: str | Path) -> Path:
    """The folder that is to be served, whole; an `InputError` where there is none."""
    if is_address(folder):
        raise InputError(f"{folder} is an address: the viewer shows runs of this machine, copy them here first")
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise InputError(f"there is no folder {str(folder)!r}: give one that holds runs")
    return path.resolve()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; an `InputError` where that is taken, or not of this machine."""
    if not 0 <= port < 2**16:
        raise InputError(f"port {port} is not a port: give a number from 1 to 65535, or 0 for a free one with `port=`")
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((name, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise InputError(
            f"the viewer cannot listen at {name}, port {port} ({error.strerror or error}): choose another with `port=` "
            "or `host=`"
        ) from None
    return listening


def _address(host: str, port: int) -> str:
    name = host.strip("[]")
    shown = socket.gethostname() if name in EVERYWHERE else f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/"
