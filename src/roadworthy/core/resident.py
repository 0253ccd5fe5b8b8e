"""The most memory that a process held; run as a program, that of one that answers images with an exported ONNX file.

    python -m roadworthy.core.resident FILE IMAGES.npy

It imports nothing of ours and no more than the program that a file is exported for: numpy and ONNX Runtime.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

STATUS, PEAK = Path("/proc/self/status"), "VmHWM:"
KIB = 1024


def peak_resident() -> int:
    """The highest resident size of this process since it was started, in bytes.

    Linux tells it of the program alone. The number of other systems (`ru_maxrss`) counts the whole process.

    >>> peak_resident() > 1e6
    True
    """
    if STATUS.exists():  # ru_maxrss of Linux also counts what the process held that started this program
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith(PEAK))
        return KIB * int(line.split()[1])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else KIB * most


def main(file: str, images_file: str) -> None:
    """Answer images (N, H, W, C) one at a time, as often as the file wants each, and say how much memory it took."""
    import numpy as np
    import onnxruntime

    images, options = np.load(images_file), onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])
    (wanted,) = session.get_inputs()
    times = wanted.shape[0] if isinstance(wanted.shape[0], int) else 1
    for image in images:
        session.run(None, {wanted.name: np.repeat(image[None], times, axis=0)})
    print(json.dumps({"peak_bytes": peak_resident()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
