"""Places in queues, as `startingOffsets` and its siblings name them: words, offsets, times.

A place is a value; `tern_spark.planning` makes offsets of it.
"""

import re
from dataclasses import dataclass
from typing import Any

from tern_spark.options import values
from tern_spark.options.values import OptionError
from tern_wire.times import parse_duration_ms

EARLIEST, LATEST = -2, -1
# topic -> queue -> offset; EARLIEST and LATEST stand for these ends.
Offsets = dict[str, dict[str, int]]
_SHIFT = re.compile(r"-([1-9]\d{0,17})")
_AGO = re.compile(r"-(\d[\d.]*(?:ms|s|m|h|d))")


@dataclass(frozen=True, slots=True)
class Shift:
    """So many *rows* before the end of each queue, or its begin if there are fewer."""

    rows: int


@dataclass(frozen=True, slots=True)
class Ago:
    """The first message of the last *duration_ms* in each queue, at planning; else its end."""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class At:
    """The first message visible at *time_ms* or later in each queue."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """As At, with a time for each queue, or for all queues of a topic: topic -> queue -> ms.

    The queue "" stands for all queues without a time of their own.
    """

    times: dict[str, dict[str, int]]


# A text is `earliest`, `latest` or `group`.
Place = str | Offsets | Shift | Ago | At | AtTimes


def starting(option: str, text: str) -> Place:
    """Return the place of `startingOffsets`."""
    word = text.strip().lower()
    if word in {"earliest", "latest", "group"}:
        return word
    if found := _SHIFT.fullmatch(word):
        return Shift(int(found[1]))
    if found := _AGO.fullmatch(word):
        try:
            return Ago(parse_duration_ms(found[1]))
        except ValueError as error:
            raise OptionError(f"{option}: '{text}' is not a duration such as '-10m'.") from error
    words = "earliest, latest, group, '-100' (rows before the end), '-10m' (a time ago)"
    return _offsets(option, text, words, EARLIEST)


def ending(option: str, text: str) -> Place:
    """Return the place of `endingOffsets`."""
    word = text.strip().lower()
    return word if word == "latest" else _offsets(option, text, "latest", LATEST)


def at(option: str, text: str) -> Place:
    """Return the place of a time, the same for all queues."""
    return At(values.moment(option, text))


def at_times(option: str, text: str) -> Place:
    """Return the place of a document of times."""
    shape = (
        f'{option} is a document such as {{"orders": {{"broker-a:0": 1767225600000}}}} or {{"orders": "2026-01-31"}}'
    )
    times: dict[str, dict[str, int]] = {}
    for topic, found in values.document(option, text, shape).items():
        by_queue = found if isinstance(found, dict) else {"": found}
        if not by_queue:
            raise OptionError(f"{shape}; it has no time for '{topic}'.")
        times[topic] = {queue: _time(option, time, shape) for queue, time in by_queue.items()}
    return AtTimes(times)


def _time(option: str, time: Any, shape: str) -> int:
    if isinstance(time, bool) or not isinstance(time, int | str):
        raise OptionError(f"{shape}; {time!r} is not a time.")
    return values.moment(option, time)


def _offsets(option: str, text: str, words: str, lowest: int) -> Offsets:
    shape = f'{option} is {words} or a document such as {{"orders": {{"broker-a:0": 12}}}}; -1 is latest'
    shape += ", -2 earliest" if lowest == EARLIEST else ""
    found = values.document(option, text, shape)
    for topic, queues in found.items():
        if not isinstance(queues, dict):
            raise OptionError(f"{shape}. '{topic}' has no offsets by queue.")
        for queue, offset in queues.items():
            if type(offset) is not int or offset < lowest:
                raise OptionError(f"{option}: {offset!r} for {queue} of '{topic}' is not an offset. {shape}.")
    return found


def topics_of(place: Place) -> tuple[str, ...]:
    """Return the topics that a document names; none for other places."""
    if isinstance(place, AtTimes):
        return tuple(place.times)
    return tuple(place) if isinstance(place, dict) else ()
