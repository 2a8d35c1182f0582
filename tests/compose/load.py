"""Senders that write down what was promised to them, and the comparison of that with what is stored.

A sender repeats a message with its idempotency key until it has a receipt. So the promise is: every numbered message below `acked` of each
sender is stored, once, as it was sent. Whatever was under way when a sender stopped may be stored or not.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tern_wire import paths
from tests.compose.client import TRANSIENT, Client

PAUSE_S = 0.02
# A proxy that waits for a leader that is gone must not be waited for: the other one may know the new leader.
PATIENCE_S = 1.0
PAGE_MESSAGES = 1_000


@dataclass(slots=True)
class Sender:
    """One thread's place in its own sequence. `accepted_at`: when each receipt came (monotonic, s)."""

    name: str
    acked: int = 0
    accepted_at: list[float] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)
    refused: str = ""


class Load:
    """Context: sends while it is open. Owner of its threads."""

    def __init__(self, topic: str, client: Callable[[], Client], *, name: str, senders: int = 4) -> None:
        self.topic, self._client = topic, client
        self.senders = [Sender(name=f"{name}-{number}") for number in range(senders)]
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(sender,), daemon=True) for sender in self.senders]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def accepted_after(self, moment_s: float) -> float | None:
        """When the first receipt after *moment_s* came."""
        later = [at for sender in self.senders for at in sender.accepted_at[-2_000:] if at > moment_s]
        return min(later, default=None)

    def longest_pause_s(self, since_s: float, until_s: float) -> float:
        """The longest time between two receipts of anybody, between the two moments."""
        inner = sorted(at for sender in self.senders for at in sender.accepted_at if since_s < at < until_s)
        moments = [since_s, *inner, until_s]
        return max(later - earlier for earlier, later in pairwise(moments))

    def _send(self, sender: Sender) -> None:
        client = self._client()
        while not self._stop.is_set():
            name = f"{sender.name}-{sender.acked}"
            headers = {paths.HEADER_IDEMPOTENCY_KEY: name, "Content-Type": "text/plain"}
            answer = client.ask("POST", paths.messages_path(self.topic), name.encode(), headers)
            sender.answers[answer.status] += 1
            if answer.status in {200, 201}:
                sender.acked += 1
                sender.accepted_at.append(time.monotonic())
            elif answer.status in TRANSIENT:
                self._stop.wait(PAUSE_S)
            else:
                sender.refused = f"{answer.status} {answer.document}"
                return


def stored_bodies(client: Client, topic: str) -> Counter[str]:
    """Every message of *topic* by its body, read by pull from the first offset of each queue to the last."""
    found: Counter[str] = Counter()
    for queue in client.must("GET", paths.offsets_path(topic))["queues"]:
        offset, end = int(queue["min_offset"]), int(queue["max_offset"])
        while offset < end:
            path = f"{paths.pull_path(topic, queue['queue'])}?offset={offset}&max_messages={PAGE_MESSAGES}"
            page = client.must("GET", path)
            found.update(str(message["body"]) for message in page["messages"])
            assert int(page["next_offset"]) > offset, f"{path} makes no progress"
            offset = int(page["next_offset"])
    return found


def compare(loads: Sequence[Load], found: Counter[str]) -> None:
    """AssertionError unless everything that was promised in *loads* is in *found*, and nothing is there twice."""
    promised = [
        f"{sender.name}-{number}" for load in loads for sender in load.senders for number in range(sender.acked)
    ]
    lost = [name for name in promised if not found[name]]
    twice = [name for name in promised if found[name] > 1]
    refused = [sender.refused for load in loads for sender in load.senders if sender.refused]
    assert not refused, f"a sender was refused for good: {refused}"
    assert not lost, f"{len(lost)} of {len(promised)} acknowledged messages are lost, such as {lost[:3]}"
    assert not twice, f"{len(twice)} of {len(promised)} messages are stored twice, such as {twice[:3]}"
