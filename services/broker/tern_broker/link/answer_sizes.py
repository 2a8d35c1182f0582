"""Estimated sizes of answers to receives. The size is unknown before messages are leased, so the
group's previous answer is the estimate.
"""

from collections import OrderedDict

from tern_broker.link.requests import ANSWER_SIZE_GUESS_BYTES
from tern_wire.link.requests import Parts

# Number of pairs of group and topic that are kept; an evicted pair starts again with the default
# guess.
KEPT_MAX = 4_096


class AnswerSizes:
    """Sizes in bytes, by group and topic id. Owner: the core loop."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[int, int], int] = OrderedDict()

    def of(self, reader: tuple[int, int], size_max_bytes: int) -> int:
        """Return the bytes to reserve for the next answer to *reader*, which allows
        *size_max_bytes*.
        """
        return min(size_max_bytes, self._last.get(reader, ANSWER_SIZE_GUESS_BYTES))

    def found(self, reader: tuple[int, int], answer: Parts) -> None:
        """Record *answer* as the reader's last one."""
        self._last[reader] = sum(map(len, answer))
        self._last.move_to_end(reader)
        if len(self._last) > KEPT_MAX:
            self._last.popitem(last=False)
