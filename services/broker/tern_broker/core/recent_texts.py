"""The most recent texts, each once, by number: checkers and answers, or reasons, to which many rows
of the state refer.

Law: bounded, and the same on every node. Once the limit is reached, each new text evicts the oldest
one; the evicted number then stands for "".
"""

from typing import Any

from tern_broker.core.windows import rows_of, windows_of
from tern_wire.limits import CHECK_TEXTS_MAX


class RecentTexts:
    """Owner: the state machine."""

    def __init__(self, kept_max: int = CHECK_TEXTS_MAX) -> None:
        self._kept_max = kept_max
        # Oldest first.
        self._numbers: dict[str, int] = {}
        self._texts: dict[int, str] = {}
        self._next = 1

    def number(self, text: str) -> int:
        """Return the number that stands for *text* from now on; 0 for ""."""
        if not text:
            return 0
        number = self._numbers.get(text)
        if number is None:
            number, self._next = self._next, self._next + 1
            self._numbers[text], self._texts[number] = number, text
            if len(self._texts) > self._kept_max:
                oldest = next(iter(self._texts))
                del self._numbers[self._texts.pop(oldest)]
        return number

    def text(self, number: int) -> str:
        """Return the text of *number*; "" if it was evicted."""
        return self._texts.get(number, "")

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return [self._next, list(self._numbers)]

    def windows(self) -> int:
        """Return the number of windows, at least one."""
        return windows_of(self._numbers)

    def window(self, number: int) -> Any:
        """Return window *number*, of MessagePack's types."""
        return [self._next, rows_of(self._numbers, number)]

    def unpack(self, packed: Any) -> None:
        """Restore the state from *packed*. Numbers are consecutive, so they follow from their
        count.
        """
        self._next, texts = packed
        numbers = range(self._next - len(texts), self._next)
        self._numbers = dict(zip(texts, numbers, strict=True))
        self._texts = dict(zip(numbers, texts, strict=True))
