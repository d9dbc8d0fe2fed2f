"""Dealing a task's samples out to the clients."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedqcl.errors import InputError

ATTEMPTS = 100


def deal(
    y: np.ndarray,
    num_clients: int,
    alpha: float | Literal["iid"],
    rng: np.random.Generator,
    min_samples: int = 0,
) -> list[np.ndarray]:
    """Deal samples to clients, class by class, in proportions drawn from a symmetric Dirichlet.

    Every sample goes to exactly one client. The smaller ``alpha``, the more a class gathers on few clients.

    Args:
        y: class of each sample, ``[n]`` integers.
        num_clients: ``N``.
        alpha: concentration, above 0; ``iid`` shares every class out equally.
        rng: decides proportions and which samples go where.
        min_samples: draw again, at most 100 times, until every client has that many.

    Returns:
        For each client the positions of its samples in ``y``, sorted int64.

    Raises:
        InputError: ``min_samples`` was not reached.

    Example:
        >>> shards = deal(np.array([0, 0, 0, 0, 1, 1]), num_clients=2, alpha="iid", rng=np.random.default_rng(0))
        >>> [len(shard) for shard in shards], sorted(np.concatenate(shards).tolist())
        ([3, 3], [0, 1, 2, 3, 4, 5])
    """
    for _ in range(ATTEMPTS):
        shards = _deal_once(y, num_clients, alpha, rng)
        if min(map(len, shards)) >= min_samples:
            return shards
        if len(y) < num_clients * min_samples:
            break
    raise InputError(
        f"data.min_samples: {min_samples} samples a client and task cannot be had from {len(y)} samples, "
        f"{num_clients} clients (data.num_clients) and alpha {alpha} (data.alpha): lower one or raise alpha"
    )


def _deal_once(
    y: np.ndarray, num_clients: int, alpha: float | Literal["iid"], rng: np.random.Generator
) -> list[np.ndarray]:
    pieces = [[np.zeros(0, np.int64)] for _ in range(num_clients)]  # a task may have no test images to deal
    for c in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == c))
        cuts = np.rint(np.cumsum(_proportions(num_clients, alpha, rng))[:-1] * len(members)).astype(np.int64)
        # A random order of clients, or equal shares would give every class's odd samples to the same ones.
        for client, piece in zip(rng.permutation(num_clients), np.split(members, cuts), strict=True):
            pieces[client].append(piece)
    return [np.sort(np.concatenate(p)) for p in pieces]


def _proportions(num_clients: int, alpha: float | Literal["iid"], rng: np.random.Generator) -> np.ndarray:
    if alpha == "iid" or np.isinf(alpha):
        return np.full(num_clients, 1 / num_clients)
    p = rng.dirichlet(np.full(num_clients, alpha))
    if np.isfinite(p).all():
        return p
    # The limit of a vanishing alpha, where the draw underflows: one client takes the class.
    one = np.zeros(num_clients)
    one[rng.integers(num_clients)] = 1
    return one


def equalise(shards: list[np.ndarray], num_samples: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Make all shards the same size, ``n // N``, as the authors' code does.

    A shard with more loses a random part. One with less gets random samples of the whole task, whoever has them
    already, itself included: so some samples are in several places, and some in none.

    Args:
        shards: positions of each client's samples.
        num_samples: ``n``, samples of the task.
        rng: decides which samples go and come.

    Raises:
        InputError: fewer samples than clients.
    """
    size = num_samples // len(shards)
    if size == 0 and num_samples > 0:
        raise InputError(
            f"data.equalise: {len(shards)} clients cannot get equal parts of {num_samples} images of a task, which "
            "they train on or, by trainer.evaluation: clients, are tested on; lower data.num_clients, or set it to "
            "false"
        )

    def resized(shard: np.ndarray) -> np.ndarray:
        if len(shard) >= size:
            return rng.choice(shard, size, replace=False)
        return np.concatenate([shard, rng.choice(num_samples, size - len(shard), replace=False)])

    return [np.sort(resized(shard)) for shard in shards]


def heterogeneity(y: np.ndarray, shards: list[np.ndarray]) -> float:
    """How far clients' class mixtures lie from the whole task's.

    The mean over samples of the total variation distance between the class frequencies of the sample's client and
    those of all clients together: 0 when all are alike, towards 1 when each client has classes of its own.

    Args:
        y: class of each sample, ``[n]`` integers.
        shards: positions of each client's samples.

    Example:
        >>> heterogeneity(np.array([0, 0, 1, 1]), [np.array([0, 2]), np.array([1, 3])])
        0.0
        >>> heterogeneity(np.array([0, 0, 1, 1]), [np.array([0, 1]), np.array([2, 3])])
        0.5
    """
    _, y = np.unique(y, return_inverse=True)
    whole = np.bincount(y) / len(y)
    distance = [
        len(s) * 0.5 * np.abs(np.bincount(y[s], minlength=len(whole)) / len(s) - whole).sum() for s in shards if len(s)
    ]
    return float(sum(distance) / len(y))


def describe(y: list[np.ndarray], shards: list[list[np.ndarray]]) -> str:
    """One line that says how uneven a split came out.

    Args:
        y: class of each sample, one array a task.
        shards: for each task the clients' shards, as :func:`deal` gives them.
    """
    sizes = np.array([len(s) for task in shards for s in task])
    classes = [len(np.unique(y[t][s])) for t, task in enumerate(shards) for s in task if len(s)]
    distance = np.average([heterogeneity(*pair) for pair in zip(y, shards, strict=True)], weights=[len(v) for v in y])
    empty = f", {int((sizes == 0).sum())} empty" if (sizes == 0).any() else ""
    return (
        f"shards of {sizes.min()} / {int(np.median(sizes))} / {sizes.max()} samples (min / median / max{empty}), "
        f"{np.mean(classes):.1f} classes in a shard, heterogeneity {distance:.2f} (0 alike, 1 disjoint)"
    )
