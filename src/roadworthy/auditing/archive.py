"""The archive of a bundle: a zip that has the same bytes every time, and is unpacked without trusting it.

index.json    what the bundle holds, with the SHA-256 and the size of every file of the run
index.sig     the signature over the bytes of index.json, where it was signed
run/...       the files of the run, as they lie in its folder

Nothing is compressed (readouts are already), so that the bytes do not depend on the version of a library, no file can
become larger than the archive, and any program that reads zip files can look inside.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from roadworthy.core.errors import InputError, is_the_machine_s
from roadworthy.core.files import TEMPORARY, check_name_inside

INDEX, SIGNATURE, RUN = "index.json", "index.sig", "run/"
FORMAT, VERSION = "roadworthy bundle", 1
MOST_MEMBERS = 1_000_000
"""Files in an archive, at most."""
MOST_INDEX_BYTES = 512 * 2**20
SIGNATURE_BYTES = 64
"""An ed25519 signature has so many."""
BLOCK = 1 << 20
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The time of every file in an archive: the first that a zip can tell."""


@dataclass(frozen=True)
class FileHash:
    """The SHA-256 and the size of one file."""

    sha256: str
    size: int


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to that takes its name only once all of it is on disk; after an error nothing is left."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_archive(
    path: Path, index: bytes, signature: bytes | None, files: Mapping[str, tuple[Path, FileHash]], advance: Any = None
) -> None:
    """Write an archive whole or not at all: the index, its signature if any, and files by their name in the run.

    A file that is no longer what its hash says is an `InputError`. `advance` is told how many bytes were written.
    """
    with (
        whole_file(path) as target,
        zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive,
    ):
        archive.writestr(_entry(INDEX, len(index)), index)
        if signature is not None:
            archive.writestr(_entry(SIGNATURE, len(signature)), signature)
        for name, (source, expected) in sorted(files.items()):
            sha = hashlib.sha256()
            with source.open("rb") as content, archive.open(_entry(RUN + name, expected.size), "w") as member:
                for block in iter(lambda content=content: content.read(BLOCK), b""):  # type: ignore[misc]
                    sha.update(block)
                    member.write(block)
                    if advance is not None:
                        advance(len(block))
            if sha.hexdigest() != expected.sha256:
                raise InputError(f"{source} was changed while the bundle was written: verify the run and try again")


def _whole(size: Any) -> int:
    """A number of bytes from JSON, which knows infinity, fractions and true, too."""
    if type(size) is not int or size < 0:
        raise ValueError(f"{size!r} is no number of bytes")
    return size


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EARLIEST)
    entry.compress_type, entry.create_system = zipfile.ZIP_STORED, 3
    entry.external_attr, entry.file_size = (stat.S_IFREG | 0o644) << 16, size
    return entry


class Archive:
    """An archive that somebody sent: what it holds, checked before any of it is used.

    Whatever is wrong with the archive itself is an `InputError`; where it is whole but its files are not those of its
    index, `problems` says so.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                self._entries = {entry.filename: entry for entry in archive.infolist()}
                self._check(archive.infolist(), path.stat().st_size)
                self.index_bytes = self._read(archive, INDEX, MOST_INDEX_BYTES)
                self.signature = self._read(archive, SIGNATURE, SIGNATURE_BYTES) if SIGNATURE in self._entries else None
        except FileNotFoundError:
            raise InputError(f"{path} does not exist: name a bundle that `roadworthy bundle` wrote") from None
        except _UNREADABLE as error:
            raise self._unreadable(error) from None
        self.index = self._parsed()
        self.files = self._listed()

    def _unreadable(self, error: BaseException) -> InputError:
        if is_the_machine_s(error):
            return InputError(f"{self.path} cannot be unpacked: {getattr(error, 'strerror', None) or error}")
        if isinstance(error, OSError) and error.errno in (errno.EISDIR, errno.EACCES):
            return InputError(f"{self.path} cannot be read: {error.strerror}; name a bundle")
        return InputError(f"{self.path} is no bundle, or it is damaged ({error}): ask for it again")

    def _check(self, entries: list[zipfile.ZipInfo], size: int) -> None:
        """Refuse what no bundle has: names that lead outside, links, folders, compressed or encrypted files."""
        if len(entries) > MOST_MEMBERS:
            raise InputError(f"{self.path} holds {len(entries):,} files, more than any bundle: it is not unpacked")
        if len(self._entries) < len(entries):
            raise InputError(f"{self.path} holds two files of the same name: it is not unpacked")
        if sum(entry.file_size for entry in entries) > size:
            raise InputError(f"{self.path} would become larger than it is: it is not unpacked")
        for entry in entries:
            name, kind = entry.filename, stat.S_IFMT(entry.external_attr >> 16)
            what = ""
            if _leads_outside(name):
                what = "a name that leads outside"
            elif kind not in (0, stat.S_IFREG) or entry.is_dir():
                what = "something that is not a file"
            elif entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                what = "a compressed file, which no bundle has"
            elif entry.flag_bits & 0x1:
                what = "an encrypted file, which no bundle has"
            if what:
                raise InputError(f"{self.path} holds {what}, {name[:200]!r}: it is not unpacked")
        if INDEX not in self._entries:
            raise InputError(f"{self.path} is no bundle: it has no {INDEX}")

    def _read(self, archive: zipfile.ZipFile, name: str, most: int) -> bytes:
        if self._entries[name].file_size > most:
            raise InputError(f"{name} of {self.path} is larger than any bundle's: it is not unpacked")
        return archive.read(name)

    def _parsed(self) -> dict[str, Any]:
        try:
            index = json.loads(self.index_bytes)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{INDEX} of {self.path} cannot be read: {error}") from None
        if not isinstance(index, dict) or index.get("format") != FORMAT:
            raise InputError(f"{self.path} is no bundle: its {INDEX} is not one of {FORMAT}s")
        if index.get("version") != VERSION:
            raise InputError(
                f"{self.path} is a bundle of version {index.get('version')!r}; this version of Roadworthy reads "
                f"version {VERSION}"
            )
        return index

    def _listed(self) -> dict[str, FileHash]:
        """The files of the run by their name in its folder, as the index says."""
        listed = self.index.get("files")
        try:
            return {
                check_name_inside(name): FileHash(str(entry["sha256"]), _whole(entry["size"]))
                for name, entry in listed.items()  # type: ignore[union-attr]
            }
        except (AttributeError, LookupError, TypeError, ValueError):
            raise InputError(f"{INDEX} of {self.path} does not say which files there are: ask for it again") from None

    def unpack(self, folder: Path, advance: Callable[[int], None] = lambda amount: None) -> list[str]:
        """Write the files of the run into an empty folder; what is not as the index says, a sentence each."""
        known = {*(RUN + name for name in self.files), INDEX, SIGNATURE}
        problems = [f"{name} is in the bundle, but not in its index" for name in sorted({*self._entries} - known)]
        problems += [f"{name} is missing from the bundle" for name in self.files if RUN + name not in self._entries]
        try:
            with zipfile.ZipFile(self.path) as archive:
                for name, expected in self.files.items():
                    if RUN + name in self._entries and not self._unpacked(archive, name, expected, folder, advance):
                        problems.append(f"{name} was changed: it is not what the index says")
        except _UNREADABLE as error:
            raise self._unreadable(error) from None
        return problems

    def _unpacked(
        self, archive: zipfile.ZipFile, name: str, expected: FileHash, folder: Path, advance: Callable[[int], None]
    ) -> bool:
        target, sha, size = folder / name, hashlib.sha256(), 0
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with archive.open(RUN + name) as member, target.open("xb") as file:
                for block in iter(lambda: member.read(BLOCK), b""):
                    sha.update(block)
                    size += len(block)
                    file.write(block)
                    advance(len(block))
        except zipfile.BadZipFile as error:
            if "CRC" not in str(error):
                raise
            return False
        return (sha.hexdigest(), size) == (expected.sha256, expected.size)


_UNREADABLE = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    struct.error,
    OSError,
    EOFError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)
"""What the library raises where an archive is damaged."""


def _leads_outside(name: str) -> bool:
    """Whether a name could be written elsewhere than below the folder, on any system."""
    try:
        check_name_inside(name)
    except ValueError:
        return True
    return "\\" in name or ":" in name.partition("/")[0] or not name.isprintable() or len(name.encode()) > 1000
