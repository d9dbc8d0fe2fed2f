"""Names for a report's files and the parts of its page."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fedqcl.run.folder import numbered


class Names:
    """Makes names from words, each but once.

    Args:
        taken: names that are not to be made.

    Example:
        >>> names = Names()
        >>> names.make("my V"), names.make("my-V")
        ('my-V', 'my-V-2')
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.casefold() for name in taken}

    def make(self, words: str) -> str:
        """The words as the name of a file that no other has, even where capitals do not count."""
        stem = re.sub(r"[^\w.+-]+", "-", words).strip("-") or "unnamed"
        name = next(name for name in numbered(stem) if name.casefold() not in self._taken)
        self._taken.add(name.casefold())
        return name
