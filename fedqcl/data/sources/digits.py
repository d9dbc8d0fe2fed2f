"""The 8x8 handwritten digits that come with scikit-learn."""

from __future__ import annotations

import numpy as np

from fedqcl.data.sources.base import ImageSet, Source, stratified_split
from fedqcl.types import Share


class Digits(Source):
    """1,797 handwritten digits, 8x8 grey, ten classes; nothing to download.

    The images are the test part of the UCI ML Repository's "Optical Recognition of Handwritten Digits"
    (``sklearn.datasets.load_digits``). Their grey levels 0..16 are stretched to 0..255.

    Args:
        test_fraction: share of every class that is kept for testing; the split is the same in every run.
    """

    def __init__(self, test_fraction: Share = 0.2) -> None:
        self.test_fraction = test_fraction

    def load(self) -> ImageSet:
        """Read the images: ``[n, 8, 8, 1]`` uint8, labels 0..9."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        x = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
        y = digits.target.astype(np.int64)
        train, test = stratified_split(y, self.test_fraction)
        return ImageSet.of(x[train], y[train], x[test], y[test])
