"""Files taken apart, changed inside and put together again, so that what reads them gets past its first checks."""

from __future__ import annotations

import ast
import io
import lzma
import struct
import zipfile
import zlib
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from fuzzing.mutations import INTEGERS, LARGE, SCALARS, TEXTS, encode, spoil_bytes

# Parquet

CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    """A table as the bytes of a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def spoil_parquet(random: Random, content: bytes) -> bytes:
    """A Parquet file with other types, values, columns, codecs or row groups, or with spoiled pages or metadata."""
    kind = random.randrange(4)
    if kind == 0:
        return spoil_bytes(random, content)
    if kind == 1:  # the metadata at the end has no checksum
        size = int.from_bytes(content[-8:-4], "little")
        end = spoil_bytes(random, content[-8 - size : -8])
        return content[: -8 - size] + end + len(end).to_bytes(4, "little") + b"PAR1"
    table = pq.read_table(io.BytesIO(content))
    for _ in range(random.choice((1, 1, 2, 3))):
        table = _changed_table(random, table)
    options = {
        "compression": random.choice(CODECS),
        "row_group_size": random.choice((1, 2, 5, 1000)),
        "use_dictionary": random.random() < 0.5,
        "write_statistics": random.random() < 0.5,
        "data_page_version": random.choice(("1.0", "2.0")),
    }
    try:
        made = parquet_bytes(table, **options)
    except (pa.ArrowException, ValueError, TypeError):
        return spoil_bytes(random, content)
    return spoil_bytes(random, made) if kind == 3 and random.random() < 0.5 else made


def _changed_table(random: Random, table: pa.Table) -> pa.Table:
    """A table with one thing changed."""
    if not table.num_columns:
        return table
    column = random.randrange(table.num_columns)
    name, values = table.column_names[column], table.column(column)
    kind = random.randrange(8)
    try:
        if kind == 0:
            return table.remove_column(column)
        if kind == 1:
            return table.append_column(random.choice([name, *table.column_names, *TEXTS]), values)
        if kind == 2:
            new_name = random.choice((*TEXTS, *table.column_names))
            return table.rename_columns([new_name if i == column else old for i, old in enumerate(table.column_names)])
        if kind == 3:
            return pa.concat_tables([table, table.slice(0, random.randrange(table.num_rows + 1))])
        if kind == 4:
            return table.slice(0, random.choice((0, 1, max(0, table.num_rows - 1))))
        if kind == 5:
            return table.set_column(column, name, values.cast(random.choice(TYPES), safe=False))
        if kind == 6:
            return table.set_column(column, name, _other_column(random, values.to_pylist()))
        cells = values.to_pylist()
        for _ in range(random.choice((1, 3))):
            if cells:
                cells[random.randrange(len(cells))] = random.choice((None, *SCALARS))
        return table.set_column(column, name, pa.array(cells, values.type, from_pandas=False))
    except (pa.ArrowException, ValueError, TypeError, OverflowError, UnicodeError):
        return table


TYPES = (
    *(pa.string(), pa.binary(), pa.large_string(), pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_()),
    *(pa.date32(), pa.timestamp("ns"), pa.duration("s"), pa.decimal128(38, 2), pa.time64("us"), pa.null()),
    *(pa.list_(pa.float32()), pa.list_(pa.float32(), 3), pa.dictionary(pa.int8(), pa.string())),
)


def _other_column(random: Random, cells: list[Any]) -> pa.Array:
    """A column of another kind and the same length."""
    kind = random.randrange(9)
    if kind == 0:
        return pa.array([[cell] for cell in cells])
    if kind == 1:
        return pa.array([{"a": cell} for cell in cells])
    if kind == 2:
        return pa.array([[[0.5, None], []]] * len(cells))
    if kind == 3:
        return pa.nulls(len(cells))
    if kind == 4:
        return pa.array([b"\xff\x00"] * len(cells), pa.binary())
    if kind == 5:
        return pa.array([[("k", 1.0)]] * len(cells), pa.map_(pa.string(), pa.float64()))
    if kind == 6:
        return pa.array([random.choice((0, 1, -1, 2**62)) for _ in cells])
    if kind == 7:
        return pa.array([random.choice((0.0, 1.0, float("nan"), float("inf"), -1.0, 1e300)) for _ in cells])
    return pa.array([random.choice(TEXTS).encode("utf-8", "replace").decode() for _ in cells])


# protobuf: ONNX

NUMBERS = (
    *(FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT64),
    *(FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_ENUM),
)


def spoil_message(random: Random, message: Message) -> None:
    """Change a few fields of a protobuf message, however deep, in place."""
    for _ in range(random.choice((1, 1, 2, 3))):
        _spoil_field(random, message)


def _spoil_field(random: Random, message: Message) -> None:
    filled = [field for field, _ in message.ListFields()]
    if not filled:
        return
    descriptor = random.choice(filled)
    value = getattr(message, descriptor.name)
    is_message = descriptor.type == FieldDescriptor.TYPE_MESSAGE
    if is_repeated(descriptor):
        _spoil_repeated(random, descriptor, value)
    elif is_message and random.random() < 0.85:
        _spoil_field(random, value)
    elif is_message or random.random() < 0.15:
        message.ClearField(descriptor.name)
    else:
        _assign(message, descriptor, random)


def is_repeated(descriptor: FieldDescriptor) -> bool:
    """True for a field that holds a list."""
    return bool(descriptor.is_repeated)


def _spoil_repeated(random: Random, descriptor: FieldDescriptor, value: Any) -> None:
    index = random.randrange(len(value))
    kind = random.randrange(10)
    is_message = descriptor.type == FieldDescriptor.TYPE_MESSAGE
    if kind == 0:
        del value[index]
    elif kind == 1 and is_message:
        value.add().CopyFrom(value[index])
    elif is_message:
        _spoil_field(random, value[index])
    elif kind == 1:
        value.append(value[index])
    else:
        try:
            value[index] = _scalar(random, descriptor, value[index])
        except (ValueError, TypeError):
            del value[index]


def _assign(message: Message, descriptor: FieldDescriptor, random: Random) -> None:
    try:
        setattr(message, descriptor.name, _scalar(random, descriptor, getattr(message, descriptor.name)))
    except (ValueError, TypeError):
        message.ClearField(descriptor.name)


def _scalar(random: Random, descriptor: FieldDescriptor, old: Any) -> Any:
    """Another value for a field that is no message."""
    if descriptor.type in NUMBERS:
        number = random.choice((old + 1, old - 1, -old, *INTEGERS, *LARGE, -1, -(2**31), -(2**62)))
        return number % 2**31 if descriptor.type == FieldDescriptor.TYPE_INT32 else number
    if descriptor.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return random.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    if descriptor.type == FieldDescriptor.TYPE_BYTES:
        return spoil_bytes(random, old)
    return random.choice((old[:-1], old + old, *TEXTS, *OPERATORS)).encode("utf-8", "replace").decode()


OPERATORS = (
    *("Softmax", "Relu", "Reshape", "Identity", "MatMul", "Gemm", "Nope", "Conv", "Transpose", "Loop", "If", "Expand"),
    *("image", "pixels", "logits", "probabilities", "weights", "ai.onnx.ml", "com.microsoft", "location"),
)


# zip archives: npz and torch files


def members(content: bytes) -> dict[str, bytes]:
    """The files in a zip archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Files as a zip archive with right checksums."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def spoil_npz(random: Random, content: bytes) -> bytes:
    """An npz file with spoiled bytes, or with arrays whose headers, values or names were changed."""
    if random.random() < 0.25:
        return spoil_bytes(random, content)
    try:
        files = members(content)
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, EOFError, zlib.error, lzma.LZMAError):
        return spoil_bytes(random, content)
    for _ in range(random.choice((1, 1, 2))):
        name = random.choice(list(files))
        kind = random.randrange(6)
        if kind == 0:
            files[name] = spoil_bytes(random, files[name])
        elif kind == 1:
            files[name] = spoil_npy_header(random, files[name])
        elif kind == 2:
            files[random.choice(("../../x.npy", "a b", "é.npy", "x.npy", name.upper()))] = files[name]
        elif kind == 3:
            files[random.choice(list(files))] = files[name]
        elif kind == 4:
            files[name] = npy_bytes(_other_array(random, files[name]))
        else:
            del files[name]
            if not files:
                break
    method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2))
    made = zipped(files, method)
    return spoil_bytes(random, made) if random.random() < 0.1 else made


def npy_bytes(array: np.ndarray) -> bytes:
    """An array as the bytes of an npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def _other_array(random: Random, content: bytes) -> np.ndarray:
    """An array of another type or shape."""
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError):  # one that is spoiled already may claim any size
        array = np.zeros(3)
    kind = random.randrange(7)
    if kind == 0:
        return array[:0] if array.ndim else array
    if kind == 1:
        return array[None]
    if kind == 2:
        return array.astype(object)
    if kind == 3:
        return np.full(array.shape, random.choice((np.nan, np.inf, -1.0, 1e300)))
    if kind == 4:
        return array.ravel()[: random.randrange(1, 9)]
    if kind == 5:
        return np.full(array.shape[:1], encode(random.choice(TEXTS)).decode("utf-8", "replace"))
    if array.dtype.kind in "iufb":
        return array.astype(random.choice(("S3", "U2", "c16", "M8[s]", "i1", "f2", ">u4", "?")), casting="unsafe")
    try:
        return array.astype("S")
    except ValueError:  # texts beyond ASCII
        return np.full(array.shape, b"\xff\xfe")


DTYPES = (
    "|u1",
    "<i8",
    ">f4",
    "<f2",
    "|O",
    "<U3",
    "<U999999999",
    "|S0",
    "|V8",
    "<M8[ns]",
    "|b1",
    "[('a', '<i4')]",
    "<c16",
)


def spoil_npy_header(random: Random, content: bytes) -> bytes:
    """An npy file whose header says something else than what follows."""
    if content[:6] != b"\x93NUMPY" or len(content) < 10:
        return content
    size = int.from_bytes(content[8:10], "little")
    try:
        header = ast.literal_eval(content[10 : 10 + size].decode("latin1"))
    except (ValueError, SyntaxError):
        return content
    kind = random.randrange(5)
    if kind <= 1:
        shape = list(header["shape"]) or [1]
        shape[random.randrange(len(shape))] = random.choice((*INTEGERS, *LARGE, -1, -5, 1.5, "x", True))
        header["shape"] = tuple(shape)
    elif kind == 2:
        header["descr"] = random.choice(DTYPES)
    elif kind == 3:
        header["fortran_order"] = random.choice((True, False, 3, "x"))
    else:
        header[random.choice(("shape", "descr", "extra"))] = random.choice(SCALARS)
    text = encode(repr(header)).replace(b"nan", b"1").replace(b"inf", b"1")[:60_000]
    text = b"".join((text, b" " * (-(len(text) + 11) % 64), b"\n"))
    return content[:8] + len(text).to_bytes(2, "little") + text + content[10 + size :]


# images


def png_bytes(header: bytes, rows: bytes, extra: list[tuple[bytes, bytes]]) -> bytes:
    """A PNG file of any header, pixels and chunks whose checksums are right."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4) + kind + content + zlib.crc32(kind + content).to_bytes(4)

    parts = [(b"IHDR", header), *extra, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, content) for kind, content in parts)


CHUNKS = (b"PLTE", b"tRNS", b"gAMA", b"iCCP", b"zTXt", b"iTXt", b"tEXt", b"eXIf", b"acTL", b"fcTL", b"pHYs", b"IDAT")


def make_png(random: Random) -> bytes:
    """A PNG file with right checksums and chunks that need not fit."""
    width = random.choice((0, 1, 2, 8, 300, 2**31 - 1, 2**32 - 1))
    height = random.choice((0, 1, 2, 8, 300, 2**31 - 1))
    rest = [random.choice((1, 2, 4, 8, 16, 7)), random.choice((0, 2, 3, 4, 6, 5)), *random.choices((0, 0, 1), k=3)]
    extra = [(random.choice(CHUNKS), _chunk_content(random)) for _ in range(random.choice((0, 1, 2, 3)))]
    rows = random.choice((random.randbytes(200), bytes(3000), b""))
    return png_bytes(width.to_bytes(4) + height.to_bytes(4) + bytes(rest), rows, extra)


def _chunk_content(random: Random) -> bytes:
    return random.choice(
        (b"", random.randbytes(random.randrange(40)), bytes(768), b"key\0" + zlib.compress(bytes(10**6)))
    )


def spoil_tiff(random: Random, content: bytes) -> bytes:
    """A TIFF file whose tags hold other numbers."""
    order = "<" if content[:2] == b"II" else ">"
    start = struct.unpack(f"{order}I", content[4:8])[0]
    count = struct.unpack(f"{order}H", content[start : start + 2])[0]
    made = bytearray(content)
    for _ in range(random.choice((1, 2))):
        entry = start + 2 + 12 * random.randrange(count)
        part = random.choice(((0, "H"), (2, "H"), (4, "I"), (8, "I")))
        width = struct.calcsize(part[1])
        number = random.choice(INTEGERS + LARGE) % 256**width
        made[entry + part[0] : entry + part[0] + width] = struct.pack(order + part[1], number)
    return bytes(made)
