"""What a relay sends next, and what follows from the answers. Pure.

    waiting rows, in order -> [one of each message group, if a failure holds its group]
                           -> as many as the bounds allow -> by topic -> requests

Law: of one message group, a row is sent only when all rows before it in the batch are stored or
refused for good. So the requests of a topic follow each other, and stop at the first that may be
repeated.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tern_client.calls.batching import split
from tern_client.outbox.rows import ClaimedRow, Head
from tern_client.transport.retrying import RetryPolicy, asked_delay_ms
from tern_wire.errors import TernError, TopicNotFound
from tern_wire.limits import IDEMPOTENCY_WINDOW_MS

# From this age of its first attempt on, a row is looked for before it is sent again. Half of the
# time for which the server remembers keys: clocks differ, and a request takes time.
SUSPECT_AFTER_MS = IDEMPOTENCY_WINDOW_MS // 2
# The most rows that are looked for at a time.
SUSPECTS_MAX = 64
_WAITS_FOR_PEOPLE = frozenset({401, 403, 429})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLimits:
    """The bounds of one batch. `hold`: a failed row holds its message group."""

    rows_max: int
    size_max_bytes: int
    hold: bool = False


def chosen(heads: Sequence[Head], limits: ClaimLimits) -> list[Head]:
    """Return those of *heads* that are read whole: at least one, if there is one.

    Under `hold` one row of each message group is chosen: its successors must not be sent before it
    is known that it was not refused.
    """
    found: list[Head] = []
    groups: set[tuple[str, str]] = set()
    size_bytes = 0
    for head in heads[: limits.rows_max]:
        if limits.hold and head.message_group:
            if (head.topic, head.message_group) in groups:
                continue
            groups.add((head.topic, head.message_group))
        size_bytes += head.size_bytes
        if found and size_bytes > limits.size_max_bytes:
            break
        found.append(head)
    return found


def suspects(heads: Iterable[Head], now_ms: int) -> list[Head]:
    """Return the rows that may have been sent so long ago that the server has forgotten the key."""
    found = [each for each in heads if each.attempted_at is not None and now_ms - each.attempted_at > SUSPECT_AFTER_MS]
    return found[:SUSPECTS_MAX]


def by_topic(rows: Iterable[ClaimedRow]) -> dict[str, list[ClaimedRow]]:
    """Return *rows* by topic, each topic's in order."""
    found: dict[str, list[ClaimedRow]] = {}
    for row in rows:
        found.setdefault(row.head.topic, []).append(row)
    return found


def requests_of(topic: str, rows: Sequence[ClaimedRow]) -> list[Sequence[ClaimedRow]]:
    """Return *rows* of one topic as requests in order. All rows of a message group in one request
    are stored, or none is.
    """
    return [rows[part.start : part.stop] for part in split(topic, [row.message for row in rows])]


def is_refusal(error: TernError) -> bool:
    """Whether *error* is about the message, and a repeat gives it again.

    A missing right, a quota, a closed topic and a server's own failure are about everything that is
    sent: the rows wait until people have put that right.
    """
    if type(error) is TernError:
        # A code of another release, or the page of a gateway, which says nothing about a message.
        status = int(error.fields.get("status", 500)) if "code" in error.fields else 500
        return 400 <= status < 500 and not error.fields.get("retryable") and status not in _WAITS_FOR_PEOPLE
    return 400 <= error.status < 500 and not error.retryable and error.status not in _WAITS_FOR_PEOPLE


def is_about_all(errors: Mapping[int, TernError], count: int) -> bool:
    """Whether a request of *count* messages was refused as a whole, so that one of them may be the
    reason for all. A topic that is not there is a reason of all.
    """
    is_one_error = len(errors) == count and len({id(error) for error in errors.values()}) == 1
    return count > 1 and is_one_error and not isinstance(errors[0], TopicNotFound)


@dataclass(frozen=True, slots=True)
class _Pause:
    failures: int
    until_ms: float
    error: TernError


class TopicPauses:
    """Topics whose sends fail for now, and until when each is left alone. Owner: one relay."""

    __slots__ = ("_paused", "_policy")

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._paused: dict[str, _Pause] = {}

    def failed(self, topic: str, error: TernError, now_ms: float, chance: float) -> bool:
        """Note a failure: the pauses double, and half of each is random. Return whether it is the
        first one since a success.
        """
        known = self._paused.get(topic)
        failures = known.failures if known else 0
        delay_ms = min(self._policy.first_delay_ms * 2 ** min(failures, 16), self._policy.max_delay_ms)
        delay_ms = max(round(delay_ms * (0.5 + chance / 2)), round(asked_delay_ms(error)))
        self._paused[topic] = _Pause(failures + 1, now_ms + delay_ms, error)
        return known is None

    def succeeded(self, topic: str) -> bool:
        """Forget the failures of *topic*; return whether there were any."""
        return self._paused.pop(topic, None) is not None

    def paused(self, now_ms: float) -> list[str]:
        """Return the topics that are left alone now."""
        return [topic for topic, pause in self._paused.items() if pause.until_ms > now_ms]

    def next_ms(self, now_ms: float) -> float | None:
        """Return the time until the first pause ends; None without one."""
        return min(
            (pause.until_ms - now_ms for pause in self._paused.values() if pause.until_ms > now_ms), default=None
        )

    def last_error(self) -> TernError | None:
        """Return an error for which a topic is left alone."""
        return next((pause.error for pause in self._paused.values()), None)
