"""Well-known data sets by name, read from their usual files on disk: a file per family."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from roadworthy.data.base import OpenedDataset
from roadworthy.data.named.cifar import open_cifar10, open_cifar10_c, open_cifar100, open_cifar100_c
from roadworthy.data.named.mnist import open_emnist, open_fashion_mnist, open_kmnist, open_mnist
from roadworthy.data.named.stl10 import open_stl10
from roadworthy.data.named.svhn import open_svhn
from roadworthy.data.named.tiny_imagenet import open_tiny_imagenet, open_tiny_imagenet_c
from roadworthy.data.named.traffic_signs import open_btsc, open_gtsrb

NAMED: Mapping[str, Callable[..., OpenedDataset]] = {
    "gtsrb": open_gtsrb,
    "btsc": open_btsc,
    "cifar10": open_cifar10,
    "cifar100": open_cifar100,
    "cifar10_c": open_cifar10_c,
    "cifar100_c": open_cifar100_c,
    "svhn": open_svhn,
    "tiny_imagenet": open_tiny_imagenet,
    "tiny_imagenet_c": open_tiny_imagenet_c,
    "mnist": open_mnist,
    "fashion_mnist": open_fashion_mnist,
    "kmnist": open_kmnist,
    "emnist": open_emnist,
    "stl10": open_stl10,
}
"""Loaders by the name of the set in a study: `{gtsrb: DIR, split: test}`."""
