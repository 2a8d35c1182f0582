"""How large the answer to a receive will be: nobody knows before messages are leased, so it is taken for as large as the group's last one."""

from collections import OrderedDict

from tern_broker.link.requests import ANSWER_SIZE_GUESS_BYTES
from tern_wire.link.requests import Parts

# Of pairs of group and topic; one that is forgotten is guessed again, once.
KEPT_MAX = 4_096


class AnswerSizes:
    """In bytes, by group and topic id. Owner: the core loop."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[int, int], int] = OrderedDict()

    def of(self, reader: tuple[int, int], size_max_bytes: int) -> int:
        """What the next answer to *reader* should reserve; it may have *size_max_bytes*."""
        return min(size_max_bytes, self._last.get(reader, ANSWER_SIZE_GUESS_BYTES))

    def found(self, reader: tuple[int, int], answer: Parts) -> None:
        """*answer* is what it got."""
        self._last[reader] = sum(map(len, answer))
        self._last.move_to_end(reader)
        if len(self._last) > KEPT_MAX:
            self._last.popitem(last=False)
