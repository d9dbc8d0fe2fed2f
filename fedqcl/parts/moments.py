"""Moments of the classes' features: the sums that clients report, and the Gaussians that a server makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from fedqcl.parts.shard import Shard

# Samples in a forward pass.
CHUNK = 500
# Added to each variance, as a share of the mean square: the sums are exact to about 2^-40 of the largest.
ROUNDING = 1e-9

Covariance = Literal["full", "diagonal"]


class FeatureNet(Protocol):
    """What is asked of a net: features and a linear layer on them, as every net of the package has them."""

    head: nn.Linear

    def features(self, x: Tensor) -> Tensor:
        """Images to features, ``[n, D]``."""
        ...


def class_sums(x: Tensor, y: Tensor, num_classes: int, products: Covariance | None = None) -> dict[str, Tensor]:
    """Sums over the samples of each class; those of several sets of samples add up to those of the sets joined.

    Args:
        x: features, ``[n, D]``; ``n`` may be 0.
        y: classes from 0, ``[n]`` int64.
        num_classes: ``C``.
        products: which products of features to sum as well: all pairs, only squares, or none.

    Returns:
        float64: ``count`` ``[C]``, ``sum`` ``[C, D]`` and, if asked for, ``products`` ``[C, D, D]`` or ``[C, D]``.
    """
    x = x.double()  # which autocast leaves alone
    of_class = (torch.arange(num_classes, device=y.device)[:, None] == y).double()
    sums = {"count": of_class.sum(1), "sum": of_class @ x}
    if products == "diagonal":
        sums["products"] = of_class @ x.square()
    if products == "full":
        sums["products"] = torch.stack([own.T @ own for own in (x[y == c] for c in range(num_classes))])
    return sums


@torch.no_grad()
def feature_sums(
    net: FeatureNet, shard: Shard, columns: range, products: Covariance | None = None
) -> dict[str, Tensor]:
    """:func:`class_sums` of the features of a shard's images as they are, in the mode that the net is in.

    Args:
        net: gives the features.
        shard: may be empty.
        columns: the class columns to report on, without a gap; all of the shard's must be among them.
        products: as there.
    """
    weight = net.head.weight
    index = torch.from_numpy(shard.index).to(weight.device)
    sums = class_sums(weight[:0], index[:0], len(columns), products)
    for chunk in index.split(CHUNK) if len(index) else ():
        x, y, _ = shard.samples(chunk)
        for name, value in class_sums(net.features(x), y - columns.start, len(columns), products).items():
            sums[name] += value
    return sums


class Gaussians(nn.Module):
    """A Gaussian of the features of each class.

    Args:
        num_classes: ``K``.
        width: ``D``, the number of features.
        covariance: between all features, or each feature's own variance only.

    Attributes:
        known: ``[K]`` bool buffer, the classes of which two samples or more were seen.
        mean: ``[K, D]`` float32 buffer.
        factor: ``[K, D, D]`` float32 buffer, the covariances' Cholesky factors; or ``[K, D]``, standard deviations.
    """

    known: Tensor
    mean: Tensor
    factor: Tensor

    def __init__(self, num_classes: int, width: int, covariance: Covariance = "full") -> None:
        super().__init__()
        shape = (width, width) if covariance == "full" else (width,)
        self.register_buffer("known", torch.zeros(num_classes, dtype=torch.bool))
        self.register_buffer("mean", torch.zeros(num_classes, width))
        self.register_buffer("factor", torch.zeros(num_classes, *shape))

    @torch.no_grad()
    def fit(self, columns: range, sums: Mapping[str, Tensor], shrinkage: float) -> None:
        """Take over classes from the sums over all their samples.

        With ``n`` samples of mean ``mu`` the covariance is ``(sum x x^T - n mu mu^T) / (n - 1)``: that of the samples
        pooled, whoever has them (CCVR, equation 4). To it ``shrinkage * tr / D`` is added on the diagonal.

        Args:
            columns: the classes, without a gap.
            sums: as :func:`class_sums` has them, ``C`` the number of ``columns``.
            shrinkage: above 0, so that a class with fewer samples than features has a covariance of full rank.
        """
        full = self.factor.dim() == 3
        n = sums["count"][:, None, None] if full else sums["count"][:, None]
        mean = sums["sum"] / sums["count"].clamp_min(1)[:, None]
        outer = mean[:, :, None] * mean[:, None, :] if full else mean.square()
        covariance = (sums["products"] - n * outer) / (n - 1).clamp_min(1)
        squares = sums["products"] / n.clamp_min(1)
        variance, square = (v.diagonal(dim1=1, dim2=2) if full else v for v in (covariance, squares))
        ridge = shrinkage * variance.mean(1) + ROUNDING * square.mean(1)
        variance += ridge[:, None].clamp_min(1e-30)
        classes = slice(columns.start, columns.stop)
        self.known[classes] = sums["count"] >= 2
        self.mean[classes] = mean
        self.factor[classes] = torch.linalg.cholesky(covariance) if full else variance.clamp_min(0).sqrt()

    def draw(self, c: int, count: int, generator: torch.Generator) -> Tensor:
        """Features of class ``c``, made up: ``[count, D]`` float32.

        Args:
            c: a known class.
            count: how many.
            generator: on the buffers' device.
        """
        mean, factor = self.mean[c], self.factor[c]
        normal = torch.randn(count, len(mean), generator=generator, device=mean.device)
        return mean + (normal @ factor.T if factor.dim() == 2 else normal * factor)
