"""Dead letters as the admin API lists them, and their sums by cause and origin."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tern_jobs.reports.moments import moment

_SAMPLE_CHARACTERS = 60


class Origin(msgspec.Struct, frozen=True):
    """Where a dead letter was first."""

    topic: str
    queue: str
    offset: int


class Death(msgspec.Struct, frozen=True):
    """The `dlq` part of a dead letter."""

    offset: str
    origin: Origin
    attempts: int
    cause: str
    dead_at: int
    reason: str = ""


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """One dead letter. *offset* (`broker-a:17`) is its name for a redrive."""

    group: str
    offset: str
    topic: str
    attempts: int
    cause: str
    reason: str
    dead_ms: int
    sample: str


class LetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters count; an empty field takes all."""

    cause: str = ""
    topic: str = ""
    reason: str = ""
    since_ms: int = 0

    def takes(self, letter: Letter) -> bool:
        """Return whether *letter* is one of them."""
        return (
            self.cause in {"", letter.cause}
            and self.topic in {"", letter.topic}
            and self.reason in letter.reason
            and letter.dead_ms >= self.since_ms
        )


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Letters of one group, cause, origin and reason. Times are text in UTC."""

    group: str
    cause: str
    topic: str
    reason: str
    letters: int
    first_dead: str
    last_dead: str
    attempts_max: int
    sample: str


def read_letter(group: str, message: dict[str, Any]) -> Letter:
    """Return one message of a page of dead letters, with the begin of its body as text."""
    death = msgspec.convert(message["dlq"], Death)
    body: bytes = message.get("body", b"")
    text = body[: 4 * _SAMPLE_CHARACTERS].decode("utf-8", "replace")
    sample = "".join(letter if letter.isprintable() else " " for letter in text)[:_SAMPLE_CHARACTERS]
    return Letter(
        group=group,
        offset=death.offset,
        topic=death.origin.topic,
        attempts=death.attempts,
        cause=death.cause,
        reason=death.reason,
        dead_ms=death.dead_at,
        sample=sample,
    )


def causes(letters: Sequence[Letter]) -> list[Cause]:
    """Return a row for each group, cause, origin and reason, the most letters first."""
    groups: dict[tuple[str, str, str, str], list[Letter]] = {}
    for letter in letters:
        groups.setdefault((letter.group, letter.cause, letter.topic, letter.reason), []).append(letter)
    rows = [
        Cause(
            group=group,
            cause=cause,
            topic=topic,
            reason=reason,
            letters=len(found),
            first_dead=moment(min(letter.dead_ms for letter in found)),
            last_dead=moment(max(letter.dead_ms for letter in found)),
            attempts_max=max(letter.attempts for letter in found),
            sample=found[0].sample,
        )
        for (group, cause, topic, reason), found in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.letters, row.group, row.cause, row.topic, row.reason))
