"""Files at an address of any fsspec file system: `s3://bucket/run`, `gs://bucket/run`, `memory://run`.

What is written is whole or not there, nothing is renamed, and an object can be created exclusively: see `probe`. An
error is one sentence in a `RemoteFault`, which is an `OSError`: the store is to blame for it, never a model.
"""

from __future__ import annotations

import errno
import os
import re
import time
import uuid
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from roadworthy.core.errors import InputError, MissingExtra, first_line
from roadworthy.core.files import check_name_inside

TRIES = 3
"""How often something is tried that fails for a reason which may pass."""
PAUSE = 0.5
"""Seconds before the second try; each later pause is twice as long."""

EXTRAS = {"gs": "google", "gcs": "google"}
"""The extra that brings a scheme's file system; that of all others is `stores`."""
WEB = ("http", "https", "ftp")
"""Schemes of pages, which nothing can be written to and which do not list their files."""

KIND_PREFIXES: set[str] = set()
"""Words that name a kind of data before a colon, and no scheme: `gtsrb:/data/GTSRB` is not an address."""

_ADDRESS = re.compile(r"([a-zA-Z][a-zA-Z0-9+-]+):/+(.*)", re.DOTALL)
_PASSING = {"HTTPClientError", "EndpointConnectionError", "ClientConnectionError", "ServerTimeoutError", "HttpError"}
_PASSING_ERRNO = {errno.EBUSY, errno.EIO, errno.EREMOTEIO, errno.EAGAIN, errno.ETIMEDOUT, errno.ECONNRESET}
_EXISTS = {"PreconditionFailed", "412"}
_CONFLICT = {"ConditionalRequestConflict", "OperationAborted", "409"}

Result = TypeVar("Result")


class RemoteFault(OSError):
    """What a file system at an address refuses, as one sentence."""

    def __init__(self, sentence: str, code: int = errno.EIO) -> None:
        super().__init__(code, sentence)


def parse_location(path: str | os.PathLike[str]) -> str | Path:
    """An address as text, or a local path. A path in which `//` became `/` is still an address; `file://` is local.

    >>> parse_location("s3://bucket/run/"), parse_location(Path("s3://bucket/run"))
    ('s3://bucket/run', 's3://bucket/run')
    >>> parse_location("runs/v3").name, parse_location("file:///data/run").as_posix()
    ('v3', '/data/run')
    """
    text = os.fspath(path)
    parsed = _ADDRESS.fullmatch(text)
    if parsed is None or parsed[1] in KIND_PREFIXES:
        return Path(path)
    scheme, rest = parsed[1].lower(), parsed[2].rstrip("/")
    return Path("/", rest) if scheme in ("file", "local") else f"{scheme}://{rest}"


def is_address(path: Any) -> bool:
    """True for text or a path that names something at an address, and not on this machine's disk.

    >>> is_address("gs://bucket/v3.onnx"), is_address("v3.onnx"), is_address("builtin:signs")
    (True, False, False)
    """
    return isinstance(path, str | os.PathLike) and isinstance(parse_location(path), str)


def is_web(path: Any) -> bool:
    """True for text or a path that names something on the web: a page, or a server.

    >>> is_web("https://example.com/predict"), is_web("s3://bucket/v3.onnx")
    (True, False)
    """
    return is_address(path) and str(parse_location(path)).partition(":")[0] in WEB


def absolute_location(path: str | os.PathLike[str], base: Path | None = None) -> str | Path:
    """An address as it is, or a path as a whole one, starting from `base` (default: the working folder)."""
    location = parse_location(path)
    return location if isinstance(location, str) else ((base or Path()) / location).absolute()


@dataclass(frozen=True)
class RemoteFile:
    """What a listing says of an object: its size, its MD5 where the listing has one, and a stamp of its version."""

    size: int
    md5: str
    stamp: str


class RemoteFolder:
    """A folder at an address: what is in it by name, as `tables/accuracy.csv`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._system, self._root = _open_system(address)

    @property
    def is_private(self) -> bool:
        """True where no other process sees what is there."""
        return self.address.startswith("memory://")

    def path(self, name: str) -> str:
        """The path of an object on its file system; '' is the folder itself."""
        return f"{self._root}/{name}" if name else str(self._root)

    def top_names(self) -> set[str]:
        """The names of what is directly in the folder: one request, however much there is below."""

        def top() -> set[str]:
            self._system.invalidate_cache(self._root)
            entries = self._system.ls(self._root, detail=True)
            files = [entry["name"] for entry in entries if not self._is_root(entry)]
            return {str(name).rstrip("/").rpartition("/")[2] for name in files}

        return self._call("read", top, missing=self._nothing) or set()

    def files(self, below: str = "") -> dict[str, RemoteFile]:
        """Every object in the folder, or below a name in it."""

        def found_files() -> dict[str, Any]:
            self._system.invalidate_cache(self._root)
            return dict(self._system.find(self.path(below), detail=True))

        listing = self._call("read", found_files, missing=self._nothing) or {}
        files = {}
        for entry in listing.values():
            name = str(entry["name"]).removeprefix(str(self._root)).lstrip("/")
            if name and entry.get("type", "file") == "file" and not name.endswith("/"):
                try:
                    files[check_name_inside(name)] = _described(entry)
                except ValueError as error:
                    raise InputError(f"{self.address} cannot be read: {error}") from None
        return files

    def single_file(self) -> RemoteFile | None:
        """What is said of the object at the address itself; None where it is a folder, or nothing."""

        def described() -> Any:
            self._system.invalidate_cache(self._root)
            return self._system.info(self._root)

        entry = self._call("read", described, missing=self._nothing)
        return _described(entry) if entry and entry.get("type") == "file" else None

    def get(self, paths: Mapping[str, Path]) -> None:
        """Fetch objects to local paths, several at a time where the file system can; '' is the address itself."""
        if paths:
            names = [self.path(name) for name in paths]
            self._call("read", lambda: self._system.get(names, [str(path) for path in paths.values()]))

    def read(self, name: str) -> bytes | None:
        """The content of a small object; None where there is none."""
        return self._call("read", lambda: bytes(self._system.cat_file(self.path(name))), missing=self._nothing)

    def write(self, name: str, content: bytes) -> None:
        """Write an object whole, in place of one of the same name."""
        self._call("write to", lambda: self._system.pipe_file(self.path(name), content))

    def put(self, name: str, path: Path) -> None:
        """Write a local file, in place of an object of the same name."""
        self._call("write to", lambda: self._system.put_file(str(path), self.path(name)))

    def create(self, name: str, content: bytes) -> bool:
        """Create an object; False where there is one of that name already, which stays as it is.

        A try whose answer was lost may have created it: then it has this very content, and counts as created.
        """
        try:
            self._call("write to", lambda: self._create(name, content))
        except FileExistsError:
            return self.read(name) == content
        return True

    def _create(self, name: str, content: bytes) -> None:
        from fsspec import AbstractFileSystem

        if type(self._system).pipe_file is AbstractFileSystem.pipe_file:  # it looks first, then writes
            with self._system.open(self.path(name), "xb") as file:
                file.write(content)
        else:
            self._system.pipe_file(self.path(name), content, mode="create")

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, in this order; one that is gone already is no error."""
        for name in names:
            self._call("write to", partial(self._system.rm_file, self.path(name)), missing=lambda _: None)

    def probe(self) -> None:
        """Refuse a file system on which a second exclusive creation does not fail; nothing stays there."""
        name = f".probe-{uuid.uuid4().hex}"
        try:
            first, second = self.create(name, b"first"), self.create(name, b"second")
            kept = self.read(name)
        except RemoteFault as error:
            if not isinstance(error.__cause__, TypeError | ValueError | NotImplementedError):
                raise
            first, second, kept = True, True, None  # it does not know what is asked for
        finally:
            self.remove([name])
        if not first or second or kept != b"first":
            raise InputError(
                f"{self.address} cannot hold a run: its file system does not create objects exclusively (a second "
                "creation did not fail), so that two processes could overwrite each other; choose another folder with "
                "`out=`"
            )

    def _is_root(self, entry: Mapping[str, Any]) -> bool:
        return str(entry["name"]).strip("/") == str(self._root).strip("/")

    def _nothing(self, error: FileNotFoundError) -> None:
        """Nothing is there; a bucket that does not exist is an error all the same."""
        if _code(error) == "NoSuchBucket" or "bucket does not exist" in str(error):
            raise error

    def _call(
        self,
        verb: str,
        call: Callable[[], Result],
        missing: Callable[[FileNotFoundError], None] | None = None,
    ) -> Result | None:
        """Do something there: tried again where the reason may pass, and else a sentence."""
        pause = PAUSE
        for attempt in range(1, TRIES + 1):
            try:
                return call()
            except (RemoteFault, InputError):
                raise
            except FileNotFoundError as error:
                try:
                    if missing is None:
                        raise error
                    missing(error)
                    return None
                except FileNotFoundError:
                    raise self._fault(verb, error) from error
            except Exception as error:
                if isinstance(error, FileExistsError) or _code(error) in _EXISTS:
                    raise FileExistsError(errno.EEXIST, f"{self.address}: there is an object already") from error
                if attempt == TRIES or not _may_pass(error):
                    raise self._fault(verb, error) from error
            time.sleep(pause)
            pause *= 2
        raise AssertionError("the last try returns or raises")

    def _fault(self, verb: str, error: Exception) -> RemoteFault:
        scheme = self.address.partition("://")[0]
        name, why = type(error).__name__, first_line(Exception(" ".join(str(error).split()) or type(error).__name__))
        code = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
        if "Credentials" in name or "DefaultCredentialsError" in name:
            reason = f"there are no credentials for {scheme}:// ({why})"
        elif isinstance(error, PermissionError):
            reason, code = f"permission is denied, check the credentials and the rights they give ({why})", errno.EACCES
        elif isinstance(error, FileNotFoundError):
            reason, code = f"there is nothing at this address, or no such bucket ({why})", errno.ENOENT
        elif _may_pass(error):
            reason = f"it cannot be reached ({why}), tried {TRIES} times"
        else:
            reason = os.strerror(code) if isinstance(error, OSError) and error.errno else f"{name}: {why}"
            reason += f" ({why})" if isinstance(error, OSError) and error.errno and error.strerror != reason else ""
        return RemoteFault(reason, code)


def _open_system(address: str) -> tuple[Any, str]:
    """The file system of an address and the path there; what cannot be opened is one sentence."""
    scheme, _, rest = address.partition("://")
    if scheme in WEB:
        raise InputError(f"{address} is a web address, which cannot be listed or written to: name a file or a bucket")
    if "::" in address or not rest.strip("/"):
        raise InputError(f"{address!r} is no address of a file or folder: write it as s3://bucket/folder")
    extra = EXTRAS.get(scheme, "stores")
    try:
        import fsspec

        fsspec.get_filesystem_class(scheme)
    except ImportError:
        raise MissingExtra(f"{scheme}:// addresses", extra) from None
    except ValueError:
        raise InputError(f"nothing is known of {scheme}:// addresses ({address}): s3://, gs:// and others") from None
    try:
        system, root = fsspec.core.url_to_fs(address)
    except Exception as error:
        raise InputError(f"{address} cannot be opened: {first_line(error)}") from error
    return system, str(root).rstrip("/")


def _described(entry: Mapping[str, Any]) -> RemoteFile:
    """What a listing says of an object, in one form for all file systems."""
    tag = str(entry.get("ETag") or entry.get("etag") or "").strip('"')
    md5 = tag if re.fullmatch("[0-9a-f]{32}", tag) else ""
    if entry.get("md5Hash"):
        md5 = b64decode(entry["md5Hash"]).hex()
    stamped = ("ETag", "etag", "md5Hash", "generation", "LastModified", "last_modified", "mtime", "updated", "created")
    return RemoteFile(int(entry["size"]), md5, " ".join(str(entry[key]) for key in stamped if entry.get(key)))


def _code(error: BaseException) -> str:
    """The code that the answer of an object store bears."""
    response = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, Mapping) else ""


def _may_pass(error: BaseException) -> bool:
    """True for what may be over at the next try: a network that is gone, a server that is busy."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, TimeoutError | ConnectionError) or names & _PASSING or _code(error) in _CONFLICT:
        return True
    return isinstance(error, OSError) and error.errno in _PASSING_ERRNO
