"""Producers that write numbered messages while everything else is going on, and know what is acked."""

import random
import threading
from types import TracebackType

from tern_client import BlockingProducer, OutgoingMessage

_BATCH, _GROUPS, _BODY_SIZE_BYTES = 1_000, 64, 300


def message(number: int) -> OutgoingMessage:
    """Message *number*: the same whenever it is made. Half of them have a message group."""
    chance = random.Random(number)
    group = f"customer-{number % _GROUPS}" if number % 2 else ""
    return OutgoingMessage(
        body=b"%d " % number + chance.randbytes(_BODY_SIZE_BYTES),
        tag=("paid", "sent", "back")[number % 3],
        keys=(f"order-{number}",),
        properties={"price": str(number % 1_000)} if number % 5 else {},
        message_group=group,
        idempotency_key=f"order-{number}",
    )


class Producers(threading.Thread):
    """Sends messages *first* to *last* (exclusive) in batches, until each is acked. `acked`: how many are.

    *error* is what ended it before.
    """

    def __init__(self, endpoints: list[str], topic: str, first: int, last: int, *, key_file: str, ca_file: str) -> None:
        super().__init__(name="producers", daemon=True)
        self._endpoints, self._topic, self._first, self._last = endpoints, topic, first, last
        self._key_file, self._ca_file = key_file, ca_file
        self.acked = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Send."""
        try:
            with BlockingProducer(self._endpoints, key_file=self._key_file, ca_file=self._ca_file) as producer:
                for first in range(self._first, self._last, _BATCH):
                    wanted = [message(number) for number in range(first, min(first + _BATCH, self._last))]
                    while wanted:
                        outcome = producer.send_batch(self._topic, wanted, return_errors=True)
                        self.acked += len(wanted) - len(outcome.errors)
                        wanted = [wanted[index] for index in sorted(outcome.errors)]
        except BaseException as error:
            self.error = error

    def ended(self) -> int:
        """The number of acked messages at the end."""
        self.join()
        if self.error is not None:
            raise self.error
        return self.acked

    def __enter__(self) -> "Producers":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.join()
