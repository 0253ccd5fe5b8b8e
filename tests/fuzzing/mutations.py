"""Spoiled bytes, lines and nested values; everything is drawn from the `Random` that is given."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

INTEGERS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 64, 127, 128, 255, 256, 1000, 4096, 32767, 32768, 65535, 65536)
LARGE = (2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS: tuple[str, ...] = (
    *("", " ", ".", "..", "/", "../../etc/passwd", "/etc/passwd", "/dev/zero", "/dev/null", "/proc/self/mem", "~x/y"),
    *(
        "a\0b",
        "x" * 5000,
        "a\nb",
        "\x1b[2J\x1b[31mred",
        "\u202eabc",
        "e\u0301",
        "\u00e9",
        "\ufeff",
        "\udcff",
        "\U0001f6a6",
    ),
    *(
        "<script>alert(1)</script>",
        "'\"><img src=x onerror=alert(1)>",
        "=1+1",
        "-",
        "--",
        "nan",
        "inf",
        "-inf",
        "1e999",
    ),
    *(
        "0x10",
        "1_000",
        "9" * 400,
        "null",
        "true",
        "[]",
        "{}",
        "None",
        "%s%n",
        "{0}",
        "${HOME}",
        "$(id)",
        "http://127.0.0.1:9/x",
    ),
    *("data.npz", "model.onnx", "manifest.csv", "signs", "predictions.csv", "classes.txt", "criteria.yaml"),
    *("grey", "fog", "8x8", "0x0", "16384x16384", "auto", "logits", "accuracy", "builtin:signs", "onnx", "none", "id"),
)
SCALARS: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 5, 2**31, 2**63, 2**70, -(2**63), 10**400, -0.0, 0.5, 1e308, -1e308, 5e-324),
    *(float("nan"), float("inf"), float("-inf"), True, False, None, [], {}, [[]], {"": {}}),
    *TEXTS,
)

Spoil = Callable[[Random, bytes], bytes]


def spoil_bytes(random: Random, content: bytes, others: Sequence[bytes] = (), start: int = 0) -> bytes:
    """A file with a few edits from byte `start` on: bits, numbers, blocks deleted, repeated, moved, cut or spliced."""
    made = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        if len(made) <= start:
            break
        where = random.randrange(start, len(made))
        stop = min(len(made), where + random.choice((1, 1, 2, 4, 8, 16, 64, 256)))
        kind = random.randrange(10)
        if kind == 0:
            made[where] ^= 1 << random.randrange(8)
        elif kind == 1:
            made[where] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        elif kind in (2, 3):
            width = random.choice((1, 2, 4, 8))
            number = random.choice(INTEGERS + LARGE) % 256**width
            made[where : where + width] = number.to_bytes(width, random.choice(("little", "big")))
        elif kind == 4:
            del made[where:stop]
        elif kind == 5:
            made[where:where] = made[where:stop] * random.choice((1, 2, 50))
        elif kind == 6:
            made[where:where] = random.randbytes(random.choice((1, 2, 4, 16)))
        elif kind == 7:
            other = random.choice([*others, content])
            begin = random.randrange(len(other)) if other else 0
            made[where:stop] = other[begin : begin + random.choice((1, 8, 64, len(other)))]
        elif kind == 8:
            block = bytes(made[where:stop])
            del made[where:stop]
            to = random.randrange(start, len(made) + 1) if len(made) > start else start
            made[to:to] = block
        else:
            del made[where:]
    return bytes(made)


def spoil_lines(random: Random, content: bytes, separator: bytes = b",") -> bytes:
    """A text table with lines or cells dropped, repeated, swapped or replaced; now and then with bytes spoiled."""
    lines = content.split(b"\n")
    for _ in range(random.choice((1, 1, 2, 3))):
        row = random.randrange(len(lines))
        cells = lines[row].split(separator)
        column = random.randrange(len(cells))
        kind = random.randrange(8)
        if kind == 0:
            lines[row : row + 1] = []
        elif kind == 1:
            lines[row:row] = [lines[row]] * random.choice((1, 3))
        elif kind == 2:
            other = random.randrange(len(lines))
            lines[row], lines[other] = lines[other], lines[row]
        elif kind == 3:
            cells[column : column + 1] = []
        elif kind == 4:
            cells[column:column] = [cells[column]]
        elif kind == 5:
            cells[column] = b'"' + cells[column]
        else:
            cells[column] = encode(str(random.choice(SCALARS)))
        if kind >= 3 and lines:
            lines[row] = separator.join(cells)
        lines = lines or [b""]
    made = b"\n".join(lines)
    return spoil_bytes(random, made) if random.random() < 0.25 else made


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every part of a nested value."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(inner, (*path, key))


def at(value: Any, path: Sequence[Any]) -> Any:
    """What stands at the end of a way."""
    for step in path:
        value = value[step]
    return value


def spoil_value(random: Random, value: Any, keys: Sequence[Any] = ()) -> Any:
    """A nested value with parts replaced, dropped, repeated, renamed, exchanged or wrapped."""
    made = copy.deepcopy(value)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        ways = list(paths(made))
        way = random.choice(ways)
        if not way:
            if random.random() < 0.1:
                return random.choice(SCALARS)
            continue
        parent, step = at(made, way[:-1]), way[-1]
        old = parent[step]
        kind = random.randrange(9)
        if kind == 0:
            del parent[step]
        elif kind == 1 and isinstance(parent, dict):
            new_name = random.choice([*keys, *TEXTS])
            parent[new_name] = parent.pop(step)
        elif kind == 1:
            parent[step:step] = [copy.deepcopy(old)] * random.choice((1, 2, 20))
        elif kind == 2 and isinstance(old, dict):
            old[random.choice([*keys, *TEXTS, 3])] = random.choice(SCALARS)
        elif kind == 2 and isinstance(old, list):
            old.append(random.choice(SCALARS))
        elif kind == 3:
            parent[step] = copy.deepcopy(at(made, random.choice(ways)))
        elif kind == 4:
            parent[step] = random.choice(([old], {"a": old}, [old, old], str(old)[:2000]))
        elif kind == 5 and isinstance(old, int | float) and not isinstance(old, bool):
            parent[step] = random.choice(
                (-old, old + 1, old * 1000, random.choice(INTEGERS + LARGE), old / 3 if abs(old) < 1e300 else 0.5)
            )
        elif kind == 5 and isinstance(old, str):
            parent[step] = random.choice((old[:-1], old + old, old.upper(), old + "\0", " " + old, old[::-1]))
        else:
            parent[step] = random.choice(SCALARS)
    return made


def encode(text: str) -> bytes:
    """A text as bytes, even one that is not valid Unicode."""
    return text.encode("utf-8", "surrogatepass")


def as_json(value: Any) -> bytes:
    """A nested value as JSON, whatever it holds."""
    return encode(json.dumps(value, ensure_ascii=False, default=str))


def spoil_json(random: Random, content: bytes) -> bytes:
    """A JSON file with values spoiled, and sometimes its bytes."""
    if random.random() < 0.25:
        return spoil_bytes(random, content)
    try:
        made = as_json(spoil_value(random, json.loads(content)))
    except (ValueError, RecursionError):
        return spoil_bytes(random, content)
    return spoil_bytes(random, made) if random.random() < 0.05 else made
