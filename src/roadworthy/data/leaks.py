"""Held-out images that are training images too: a few give a warning, more are an error."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Dataset
from roadworthy.data.base import contents

FEW = 0.01
"""Share of held-out images that may be training images too, with a warning: published sets have a few such."""
LARGEST_RECIPES = 2
"""A drawn set has one content for all images, or two with mirrored copies: the recipe; ids tell its images apart."""


def identities(data: Dataset) -> list[str]:
    """What tells images apart: a hash of the content of each, with its id where one recipe draws a whole set."""
    hashes = contents(data)
    is_drawn = len(hashes) > LARGEST_RECIPES >= len({*hashes})
    return [f"{content} {name}" for content, name in zip(hashes, data.ids, strict=True)] if is_drawn else hashes


def trained_on(data: Dataset, held: Sequence[str], known: Collection[str]) -> Sequence[str]:
    """The ids of held-out images whose hash, in `held` (N,), is among those of training images, `known`."""
    seen = [name for name, content in zip(data.ids, held, strict=True) if content in known]
    if len(seen) == len(held):
        raise InputError(f"all images of {data.name}, which are held out, are training images too: name others")
    if seen:
        what = f"{len(seen)} of {len(held)} held-out images of {data.name} are training images too, such as {seen[0]}"
        tolerate_few(len(seen), len(held), what)
    return seen


def count_known(data: Dataset, known: Collection[str], what: str, whose: str) -> int:
    """How many images are among `known` ones, by their identities: a few give a warning, more are an error.

    `what` names the images and `whose` the known ones, in the sentence that says so.
    """
    hashes = identities(data)
    count = sum(content in known for content in hashes)
    tolerate_few(count, len(hashes), f"{what} shares {count} of {len(hashes)} images with {whose}")
    return count


def tolerate_few(shared: int, images: int, what: str) -> None:
    """Warn of images that are on both sides, or refuse them where they are more than few; `what` says which."""
    sentence = f"{what}: take them out of one side"
    if shared > FEW * images:
        raise InputError(sentence)
    if shared:
        warnings.warn(sentence, stacklevel=4)
