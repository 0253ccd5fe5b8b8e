"""Takes the picture of a report's first screen anew, with chromium.

python docs/images/make_report.py RUN                      report.png, 1280x900
python docs/images/make_report.py RUN approval.png 800     another picture, of that height
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --virtual-time-budget=20000"
)

if __name__ == "__main__":
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None or len(sys.argv) not in (2, 4):
        sys.exit("give the folder of a run, or also a picture and its height; chromium must be installed")
    name, height = sys.argv[2:] or ("report.png", "900")
    picture, report = HERE / name, Path(sys.argv[1]).resolve() / "report.html"
    with tempfile.TemporaryDirectory() as profile:
        options = (f"--window-size=1280,{height}", f"--user-data-dir={profile}", f"--screenshot={picture}")
        subprocess.run([browser, *FLAGS.split(), *options, report.as_uri()], check=True, capture_output=True)
    Image.open(picture).convert("RGB").save(picture, optimize=True)
