"""Message ids: 32 upper-case hexadecimal digits, unique over all proxies without coordination.

    0                    20            32
    | prefix 20          | counter 12  |

The prefix is random per process; 2**48 messages fit before the counter overflows.
"""

PREFIX_LENGTH = 20


class MessageIds:
    """Generator of ids.

    *prefix*: 20 upper-case hexadecimal digits that no other process has. Owner: one event loop.
    """

    __slots__ = ("_next", "_prefix")

    def __init__(self, prefix: str) -> None:
        if len(prefix) != PREFIX_LENGTH or any(digit not in "0123456789ABCDEF" for digit in prefix):
            raise ValueError(f"'{prefix}' is not {PREFIX_LENGTH} upper-case hexadecimal digits")
        self._prefix = prefix
        self._next = 0

    def take(self) -> str:
        """Return the next id."""
        number = self._next
        self._next = number + 1
        return f"{self._prefix}{number:012X}"
