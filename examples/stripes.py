"""Images of stripes, to be told apart by their period: a data set is a class whose ``load`` returns arrays."""

import numpy as np

from fedqcl.data.sources import ImageSet, Source
from fedqcl.types import Count


class Stripes(Source):
    def __init__(self, classes: Count = 10, images: Count = 100) -> None:
        self.classes = classes
        self.images = images

    def load(self):
        rng = np.random.default_rng(0)
        return ImageSet.of(*self._draw(rng), *self._draw(rng))

    def _draw(self, rng):
        y = np.repeat(np.arange(self.classes), self.images)
        phase = rng.uniform(0, 2 * np.pi, (len(y), 1, 1))
        wave = np.sin(np.arange(16) * 2 * np.pi / (y + 2)[:, None, None] + phase)
        x = 128 + 60 * wave + rng.normal(0, 20, (len(y), 16, 16))
        return x.clip(0, 255).astype(np.uint8)[..., None], y
