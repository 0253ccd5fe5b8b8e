"""How a golden run of schema 2 is stored: run once, without what is large or belongs to the process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import roadworthy as rw

HERE = Path(__file__).parent
MODEL = Path(rw.__file__).parent / "demo_classifier.onnx"


def store(study: dict[str, Any], name: str, **options: Any) -> None:
    """Run a study and keep it in the folder of that name, in place of the one that is there."""
    home = HERE / name
    shutil.rmtree(home, ignore_errors=True)
    run = rw.run_study(study, out=home, **options)
    for left_out in ("report.html", ".lock"):
        (run.path / left_out).unlink(missing_ok=True)
    run.folder.write_record(run.record)
