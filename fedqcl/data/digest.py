"""A digest of images and their labels, by which others are told from them."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fedqcl.data.sources import Images

# Images hashed at once: part of the digest.
BLOCK = 1024


def digest(*parts: Images) -> str:
    """A digest of all images and labels in their order; the same on every machine.

    Args:
        parts: images with their labels, such as those to train and those to test on.
    """
    whole = hashlib.blake2b(digest_size=16)
    with ThreadPoolExecutor() as pool:  # hashing lets go of Python's lock
        for part in parts:
            blocks = [part.x[i : i + BLOCK] for i in range(0, len(part), BLOCK)]
            whole.update(f"{part.x.shape}".encode())
            whole.update(b"".join(pool.map(_hash, blocks)))
            whole.update(_hash(part.y.astype("<i8")))
    return whole.hexdigest()


def _hash(array: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array).data).digest()
