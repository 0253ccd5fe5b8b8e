"""Readers of networks and monitors: ONNX graphs, torch weights, saved monitors and guards."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from random import Random
from typing import Any

import onnx

from fuzzing.formats import members, spoil_message, spoil_npz, zipped
from fuzzing.mutations import spoil_bytes, spoil_json
from fuzzing.readers import Files, Reader
from roadworthy.core.hashing import sealed
from roadworthy.data import Subset, open_dataset
from roadworthy.models import OnnxModel, load_model
from samples import fill, network

# ONNX


def spoil_onnx(random: Random, valid: Files) -> dict[str, bytes]:
    if random.random() < 0.25:
        return {"o.onnx": spoil_bytes(random, random.choice((valid["model.onnx"], valid["logits.onnx"])))}
    model = network(softmax=random.random() < 0.7)
    if random.random() < 0.3:
        _spoil_graph(random, model)
    spoil_message(random, model)
    return {"o.onnx": model.SerializeToString()}


PLACES = (
    "",
    ".",
    "..",
    "/etc/passwd",
    "../../etc/passwd",
    "model.onnx",
    "a\0b",
    "x" * 5000,
    "signs",
    "/dev/zero",
    "data.npz",
)


def _spoil_graph(random: Random, model: Any) -> None:
    """Change what decides about memory, files and time."""
    graph, number = model.graph, random.choice((-1, 0, 1, 5, 40, 2**20, 2**31, 2**40, -(2**40)))
    weights = random.choice(graph.initializer)
    kind = random.randrange(5)
    if kind == 0:
        weights.data_location = onnx.TensorProto.EXTERNAL
        weights.external_data.add(key="location", value=random.choice(PLACES))
        weights.external_data.add(key=random.choice(("offset", "length")), value=str(number))
    elif kind == 1:
        graph.input[0].type.tensor_type.shape.dim[random.randrange(4)].dim_value = number
    elif kind == 2:
        weights.dims[0] = number
    elif kind == 3:
        graph.node.add(
            op_type="Identity", input=["probabilities"], output=["image"], domain=random.choice(("", "my.ops"))
        )
    else:
        model.opset_import[0].version = number


def valid_networks(folder: Path) -> Files:
    fill(folder)
    return {name: (folder / name).read_bytes() for name in ("model.onnx", "logits.onnx")}


def read_onnx(folder: Path) -> None:
    model = OnnxModel(folder / "o.onnx")
    model.predict(open_dataset(folder / "data.npz").batch(slice(0, 2)))


# torch

ARCH = "import torch\ndef net(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))\n"


def valid_weights(folder: Path) -> Files:
    import torch

    fill(folder)
    (folder / "own.py").write_text(ARCH)
    torch.manual_seed(0)
    state = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3)).state_dict()
    valid = {}
    for name, content, form in (
        ("w.pt", state, True),
        ("old.pt", state, False),
        ("wrapped.pt", {"state_dict": state}, True),
    ):
        buffer = io.BytesIO()
        torch.save(content, buffer, _use_new_zipfile_serialization=form)
        valid[name] = buffer.getvalue()
    return valid


def spoil_weights(random: Random, valid: Files) -> dict[str, bytes]:
    content = valid[random.choice(list(valid))]
    if content[:2] == b"PK" and random.random() < 0.7:
        files = members(content)
        name = random.choice(list(files))
        if random.random() < 0.6:
            name = next(inner for inner in files if inner.endswith("data.pkl"))
        if random.random() < 0.1:
            files[random.choice(("x/constants.pkl", "archive_format", "../../x"))] = files[name]
        files[name] = spoil_bytes(random, files[name])
        content = zipped(files)
    else:
        content = spoil_bytes(random, content)
    return {"spoiled.pt": content}


def read_weights(folder: Path) -> None:
    load_model({"torch": "spoiled.pt", "arch": "own.py:net", "size": 8}, base=folder, trust=True)


# monitors


def valid_monitor(folder: Path) -> Files:
    from roadworthy.monitors.guard import Guard

    fill(folder)
    model, data = load_model({"onnx": str(folder / "model.onnx")}), open_dataset(folder / "data.npz")
    train, validation = Subset(data, [0, 4, 8, 1, 5, 9]), Subset(data, [2, 3, 6, 7, 10, 11])
    Guard.make(model, "mahalanobis", train, validation).save(folder / "guard")
    return {
        f"guard/{path.relative_to(folder / 'guard')}": path.read_bytes()
        for path in (folder / "guard").rglob("*")
        if path.is_file() and path.suffix != ".onnx"
    }


def spoil_monitor(random: Random, valid: Files) -> dict[str, bytes]:
    """Files of a guard spoiled; most often the manifests vouch for them."""
    made = dict(valid)
    for _ in range(random.choice((1, 1, 2))):
        name = random.choice(list(valid))
        made[name] = spoil_npz(random, made[name]) if name.endswith(".npz") else spoil_json(random, made[name])
    if random.random() < 0.85:
        for home in ("guard/monitor", "guard"):
            manifest = f"{home}/manifest.json"
            content = json.loads(valid[manifest])
            content.pop("digest", None)
            content["parts"] = {part: hashlib.sha256(made[f"{home}/{part}"]).hexdigest() for part in content["parts"]}
            made[manifest] = json.dumps(sealed(content)).encode()
    return made


def read_guard(folder: Path) -> None:
    from roadworthy.monitors.guard import load_guard

    guard = load_guard(folder / "guard", folder / "model.onnx")
    guard.check(open_dataset(folder / "data.npz").batch(slice(0, 1)).images[0])


READERS = [
    Reader("onnx", ("models/onnx.py", "models/preprocess.py", "models/head.py"), valid_networks, spoil_onnx, read_onnx),
    Reader("torch weights", ("models/torch_files.py", "models/torch.py"), valid_weights, spoil_weights, read_weights),
    Reader(
        "saved monitor",
        ("monitors/saving.py", "monitors/fitted.py", "monitors/guard.py", "core/manifests.py"),
        valid_monitor,
        spoil_monitor,
        read_guard,
    ),
]
