"""What every Python process of a chaos trial does first: small parts, and a disk that is full where it is to be."""

import os


def prepare() -> None:
    """Do what the environment says."""
    if os.environ.get("CHAOS_CHUNK"):
        from roadworthy import opening
        from roadworthy.engine import plan

        plan.CHUNK_IMAGES = plan.LOOK_IMAGES = opening.LOOK_IMAGES = int(os.environ["CHAOS_CHUNK"])
    if os.environ.get("CHAOS_FULL_AT"):
        from pathlib import Path

        from full_disk import full_disk

        left = iter(range(int(os.environ["CHAOS_FULL_AT"])))
        full = full_disk(Path(os.environ["CHAOS_FULL"]), lambda name: next(left, None) is None)
        full.__enter__()


prepare()
