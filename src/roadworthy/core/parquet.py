"""Parquet files of strangers: read in blocks, never more than the memory holds, and broken ones in one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roadworthy.core.checked import checked
from roadworthy.core.errors import first_line
from roadworthy.core.validation import require_file, require_memory

if TYPE_CHECKING:  # the process of an isolated model imports this module, and never makes a frame
    import pandas as pd

BLOCK_ROWS = 65_536
BLOCK_BYTES = 2**28
"""What a block of rows may take, as far as the file's own metadata tells."""
THREADED_BYTES = 2**22
"""A file that unpacks to less is read sooner by one thread than by several that are waited for."""
IMAGE_ROWS = 64
"""Rows with images that are read at once."""
VALUE_BYTES = 8
"""At least so much is held for a value, however well a file packs it."""


class UnreadableParquet(ValueError):
    """A file that is not Parquet, is damaged, or holds what cannot be used; the message is the reason."""


@contextmanager
def arrow_errors() -> Iterator[None]:
    """Whatever Arrow raises on a broken or lying file, as `UnreadableParquet` with its reason."""
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, TypeError, KeyError, MemoryError, OverflowError) as error:
        raise UnreadableParquet(first_line(error)) from error


def _source(content: bytes | Path) -> pa.BufferReader | Path:
    return pa.BufferReader(content) if isinstance(content, bytes) else content


def parquet_schema(path: Path, sha: str | None = None) -> pa.Schema:
    """The columns of a file with their types. `sha`: its SHA-256, where it must have one (see `checked`)."""
    require_file(path, "Parquet file")
    with checked(path, sha) as content, arrow_errors():
        return pq.read_schema(_source(content))


def parquet_rows(path: Path, sha: str | None = None) -> int:
    """How many rows a file has."""
    require_file(path, "Parquet file")
    with checked(path, sha) as content, arrow_errors():
        return int(pq.read_metadata(_source(content)).num_rows)


def parquet_blocks(
    path: Path, columns: Sequence[str] | None = None, encoded: bool = False, sha: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, block by block; an `InputError` where the file unpacks to more than the memory holds.

    What the metadata says is checked before anything is unpacked, and what was unpacked after every block, since
    metadata may lie. With `encoded`, texts stay dictionaries: each text once, and its number in every row. `sha` is its
    SHA-256, where it must have one.
    """
    require_file(path, "Parquet file")
    with checked(path, sha) as content:
        with arrow_errors():
            schema = pq.read_schema(_source(content))
        yield from _blocks(path, content, schema, columns, encoded)


def _blocks(
    path: Path, content: bytes | Path, schema: pa.Schema, columns: Sequence[str] | None, encoded: bool
) -> Iterator[pa.RecordBatch]:
    texts = [field.name for field in schema if _is_text(field.type)]
    with arrow_errors(), pq.ParquetFile(_source(content), read_dictionary=texts) as stored:
        unpacked = _declared_bytes(stored.metadata)
        require_memory(unpacked, str(path))
        rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES * BLOCK_ROWS // max(unpacked, BLOCK_BYTES)))
        held = 0
        chosen, threaded = None if columns is None else list(columns), unpacked >= THREADED_BYTES
        for block in stored.iter_batches(rows, columns=chosen, use_threads=threaded):
            block.validate(full=True)  # texts that are no UTF-8 would fail where they are used
            held += block.nbytes
            require_memory(held + (0 if encoded else sum(map(_unpacked_bytes, block.columns))), str(path))
            if block.num_rows:
                if encoded:
                    yield block
                    continue
                plain = [_plain(column) if name in texts else column for name, column in _named(block)]
                yield pa.RecordBatch.from_arrays(plain, block.schema.names)


def parquet_images(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of a file, few rows at a time: for columns whose cells are large, such as images.

    A block is refused that takes more than the memory holds; what was read before is not counted.
    """
    require_file(path, "Parquet file")
    with arrow_errors(), pq.ParquetFile(path) as stored:
        for block in stored.iter_batches(IMAGE_ROWS, columns=list(columns)):
            block.validate(full=True)
            require_memory(block.nbytes, str(path))
            if block.num_rows:
                yield block


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _named(block: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    return zip(block.schema.names, block.columns, strict=True)


def _unpacked_bytes(column: pa.Array) -> int:
    """What a column of texts takes that is stored as different texts and their numbers; 0 for other columns.

    A file holds a long text once, however many rows have it.
    """
    if not pa.types.is_dictionary(column.type) or not _is_text(column.type.value_type):
        return 0
    return int(pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0)


def _declared_bytes(metadata: pq.FileMetaData) -> int:
    """How many bytes a file says that it unpacks to, at least `VALUE_BYTES` per value.

    The metadata of columns is not asked: Arrow ends the process where that is broken.
    """
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    declared = sum(max(int(group.total_byte_size), 0) for group in groups)
    return max(declared, VALUE_BYTES * max(int(metadata.num_rows), 0) * max(int(metadata.num_columns), 1))


def parquet_table(
    path: Path, columns: Sequence[str] | None = None, encoded: bool = False, sha: str | None = None
) -> pa.Table:
    """A whole file, or those of some columns that it has; with `encoded`, texts as dictionaries, which take less.

    `sha` is its SHA-256, where it must have one.
    """
    require_file(path, "Parquet file")
    with checked(path, sha) as content:
        with arrow_errors():
            schema = pq.read_schema(_source(content))
        chosen = [name for name in columns if name in schema.names] if columns is not None else None
        blocks = [*_blocks(path, content, schema, chosen, encoded)]
    with arrow_errors():
        if blocks:
            return pa.Table.from_batches(blocks)
        return (schema if chosen is None else pa.schema([schema.field(name) for name in chosen])).empty_table()


def parquet_frame(path: Path, sha: str | None = None) -> pd.DataFrame:
    """A whole file as a data frame; what it says of an index is not followed."""
    table = parquet_table(path, sha=sha)
    with arrow_errors():
        frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame
