"""The losses of GANs for outliers, as pure functions of what the networks answer.

D is the discriminator's value (N,) before any sigmoid s, P the surrogate's probabilities (N, K), U the uniform ones.

                 the discriminator minimises            Lee: the generator minimises   Sricharan: inverted
    original     -log s(D(real)) - log(1 - s(D(fake)))    -log s(D(fake))                -log(1 - s(D(fake)))
    Wasserstein  D(fake) - D(real), weights clipped       -D(fake)                       D(fake)

each as a mean over the images.

The surrogate minimises the cross-entropy of real images; where it is trained jointly, KL(U || P) of generated ones too.

To the generator's loss comes, times `beta`, what the surrogate says of the generated images: Lee minimises KL(U || P),
so that it is unsure; Sricharan maximises KL(P || U) = log K - H(P), so that it is certain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy.models.torch_tensors import import_torch

if TYPE_CHECKING:
    import torch


def discriminator_loss(loss: str, real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    """How badly real and generated images are told apart, from the discriminator's values (N,) of either.

    >>> torch = import_torch()
    >>> round(float(discriminator_loss("original", torch.tensor([0.0]), torch.tensor([0.0]))), 4)  # 2 log 2
    1.3863
    >>> float(discriminator_loss("wasserstein", torch.tensor([3.0]), torch.tensor([1.0])))
    -2.0
    """
    return likeness_loss(loss, real) + unlikeness_loss(loss, fake)


def likeness_loss(loss: str, fake: torch.Tensor) -> torch.Tensor:
    """How little generated images look real: what an ordinary generator minimises.

    >>> torch = import_torch()
    >>> float(likeness_loss("wasserstein", torch.tensor([3.0, 1.0])))
    -2.0
    """
    return unlikeness_loss(loss, -fake)


def unlikeness_loss(loss: str, fake: torch.Tensor) -> torch.Tensor:
    """How much generated images look real: the same game with the generator on the discriminator's side.

    >>> torch = import_torch()
    >>> float(unlikeness_loss("wasserstein", torch.tensor([3.0, 1.0])))
    2.0
    """
    values: Any = fake if loss == "wasserstein" else import_torch().nn.functional.softplus(fake)
    return values.mean()  # type: ignore[no-any-return]


def uniform_divergence(logits: torch.Tensor) -> torch.Tensor:
    """Mean KL(U || P) = -log K - mean_k log p_k of logits (N, K): 0 where every class is equally likely, unbounded.

    >>> round(float(uniform_divergence(import_torch().tensor([[0.9, 0.1]]).log())), 4)  # -log 2 - (log .9 + log .1) / 2
    0.5108
    """
    torch = import_torch()
    log_p = torch.log_softmax(logits, 1)
    return -log_p.mean(1).mean() - torch.tensor(float(logits.shape[1])).log()  # type: ignore[no-any-return]


def entropy(logits: torch.Tensor) -> torch.Tensor:
    """Mean H(P) = log K - KL(P || U) of logits (N, K): 0 where one class is certain, log K where none is.

    >>> round(float(entropy(import_torch().tensor([[0.9, 0.1]]).log())), 4)
    0.3251
    """
    log_p = import_torch().log_softmax(logits, 1)
    return -(log_p.exp() * log_p).sum(1).mean()  # type: ignore[no-any-return]


def surrogate_loss(
    logits: torch.Tensor, labels: torch.Tensor, generated: torch.Tensor | None = None, beta: float = 1.0
) -> torch.Tensor:
    """What the surrogate minimises, from its logits (N, K) of real images of classes (N,): their mean cross-entropy.

    Where it is trained jointly with the GAN, as the confident classifier of Lee et al., `generated` are its logits
    (M, K) of generated images, and beta KL(U || P) of these is added: it learns to be unsure of them.

    >>> torch = import_torch()
    >>> real, generated = torch.tensor([[0.8, 0.2]]).log(), torch.tensor([[0.9, 0.1]]).log()
    >>> round(float(surrogate_loss(real, torch.tensor([0]), generated, beta=2.0)), 4)  # -log .8 + 2 (0.5108)
    1.2448
    """
    own: torch.Tensor = import_torch().nn.functional.cross_entropy(logits, labels)
    return own if generated is None else own + beta * uniform_divergence(generated)


def generator_loss(aim: str, loss: str, fake: torch.Tensor, logits: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
    """What the generator minimises, from the discriminator's values (N,) and the surrogate's logits (N, K).

    `lee`        likeness_loss + beta KL(U || P): images that look real, of which the surrogate is unsure
    `sricharan`  unlikeness_loss - beta KL(P || U), plus a constant: images that do not, of which it is certain
    """
    if aim == "lee":
        return likeness_loss(loss, fake) + beta * uniform_divergence(logits)
    return unlikeness_loss(loss, fake) + beta * entropy(logits)
