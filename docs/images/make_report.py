"""Takes the picture of a report's first screen anew, with chromium: `python docs/images/make_report.py RUN`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

PICTURE = Path(__file__).parent / "report.png"
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --virtual-time-budget=20000 --window-size=1280,900"
)

if __name__ == "__main__":
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None or len(sys.argv) != 2:
        sys.exit("give the folder of a run; chromium must be installed")
    report = Path(sys.argv[1]).resolve() / "report.html"
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, *FLAGS.split(), f"--user-data-dir={profile}", f"--screenshot={PICTURE}", report.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
    Image.open(PICTURE).convert("RGB").save(PICTURE, optimize=True)
