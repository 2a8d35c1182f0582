"""Parsers of the text of one option. Each takes the option's name, for its error, and the text."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import orjson

from tern_wire.errors import TernError
from tern_wire.filters import compile_filter
from tern_wire.limits_reads import READ_LEASE_MAX_MS, READ_LEASE_MIN_MS
from tern_wire.names import check_group, check_namespace, check_topic, parse_queue
from tern_wire.times import parse_duration_ms, parse_time_ms

Parser = Callable[[str, str], Any]
# A tag expression: tags without blanks and operators, joined by `||`. All else is SQL92.
_TAGS = re.compile(r"\s*[^\s=<>()'|]+(?:\s*\|\|\s*[^\s=<>()'|]+)*\s*")


class OptionError(ValueError):
    """An option is unknown, missing or out of range; the text has its name and the legal values."""


def whole(lowest: int, highest: int) -> Parser:
    """Return a parser of whole numbers from *lowest* to *highest*."""
    return partial(_whole, lowest, highest)


def _whole(lowest: int, highest: int, option: str, text: str) -> int:
    digits = text.strip()
    if not digits.isascii() or not digits.isdecimal() or not lowest <= int(digits) <= highest:
        raise OptionError(f"{option} is '{text}'; use a whole number from {lowest} to {highest}.")
    return int(digits)


def word(*words: str) -> Parser:
    """Return a parser of one of *words*, in any case."""
    return partial(_word, words)


def _word(words: tuple[str, ...], option: str, text: str) -> str:
    found = text.strip().lower()
    if found not in words:
        raise OptionError(f"{option} is '{text[:80]}'; use {', '.join(words[:-1])} or {words[-1]}.")
    return found


def truth(option: str, text: str) -> bool:
    """Return whether *text* is `true`; OptionError unless it is `true` or `false`."""
    return bool(_word(("true", "false"), option, text) == "true")


def plain(_option: str, text: str) -> str:
    """Return *text*: the name of a file."""
    return text


def duration(option: str, text: str) -> int:
    """Return the milliseconds of `15m`, `1.5s` or `500`."""
    try:
        return parse_duration_ms(text.strip())
    except ValueError as error:
        raise OptionError(f"{option} is '{text[:80]}'; use a duration such as '15m' or '500ms'.") from error


def lease(option: str, text: str) -> int:
    """Return the milliseconds of a read lease; 0 for none."""
    found = 0 if text.strip() == "0" else duration(option, text)
    if found and not READ_LEASE_MIN_MS <= found <= READ_LEASE_MAX_MS:
        raise OptionError(f"{option} is '{text[:80]}'; use a duration from '1s' to '24h', or 0 for none.")
    return found


def moment(option: str, text: str | int) -> int:
    """Return the milliseconds since 1970 of such a number or of an ISO 8601 time."""
    try:
        return parse_time_ms(text if isinstance(text, int) else text.strip())
    except (ValueError, AttributeError) as error:
        raise OptionError(
            f"{option}: '{str(text)[:80]}' is not a time; use ms since 1970 or '2026-01-31T12:00:00Z'."
        ) from error


def endpoints(option: str, text: str) -> tuple[str, ...]:
    """Return the proxies' URLs, without a trailing slash."""
    found = tuple(part.strip().rstrip("/") for part in text.split(",") if part.strip())
    if not found:
        raise OptionError(f"{option} is required: the proxies' URLs, such as 'http://127.0.0.1:8080'.")
    for url in found:
        try:
            parts = urlsplit(url)
            is_http = parts.scheme in {"http", "https"}
            legal = is_http and parts.hostname and not (parts.path or parts.query) and parts.port != 0
        except ValueError:  # a port that is no number
            legal = False
        if not legal:
            raise OptionError(f"{option}: '{url}' is not a proxy's URL. Write it as 'http://host:port'.")
    return found


def topics(option: str, text: str) -> tuple[str, ...]:
    """Return the topics of a list separated by commas, each once."""
    found = tuple(dict.fromkeys(topic(option, part.strip()) for part in text.split(",") if part.strip()))
    if not found:
        raise OptionError(f"{option} is required: one topic, or several separated by commas.")
    return found


def topic(option: str, name: str) -> str:
    """Return *name* if it is a topic's."""
    return _named(option, name, check_topic)


def group(option: str, text: str) -> str:
    """Return the name of a consumer group."""
    return _named(option, text.strip(), check_group)


def namespace(option: str, text: str) -> str:
    """Return the name of a namespace."""
    return _named(option, text.strip(), partial(check_namespace, pointer=option))


def queue(option: str, name: str, of_topic: str) -> str:
    """Return *name* if it is written as a queue is: `broker-a:3`."""
    return _named(option, name, lambda text: str(parse_queue(text, of_topic)))


def _named(option: str, name: str, check: Callable[[str], str]) -> str:
    try:
        return check(name)
    except TernError as error:
        raise OptionError(f"{option}: '{name[:80]}' is not a legal name. {error}") from error


def pattern(option: str, text: str) -> str:
    """Return a regular expression, which matches whole names of topics."""
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"{option}: '{text[:80]}' is not a regular expression: {error}.") from error
    if not text.strip():
        raise OptionError(f"{option} is empty; use a regular expression that matches whole names of topics.")
    return text


def assignment(option: str, text: str) -> dict[str, tuple[str, ...]]:
    """Return topic to queues of `{"orders": ["broker-a:0"]}`."""
    shape = f'{option} is a document such as {{"orders": ["broker-a:0", "broker-a:1"]}}'
    found = document(option, text, shape)
    for name, queues in found.items():
        if not isinstance(queues, list) or not queues or not all(isinstance(each, str) for each in queues):
            raise OptionError(f"{shape}; it has no list of queues for '{name}'.")
    return {
        topic(option, name): tuple(dict.fromkeys(queue(option, each, name) for each in queues))
        for name, queues in found.items()
    }


def document(option: str, text: str, shape: str) -> dict[str, Any]:
    """Return the JSON object in *text*, with at least one member; OptionError with *shape*."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise OptionError(f"{shape}. It is '{text[:80]}'.") from error
    if not isinstance(found, dict) or not found:
        raise OptionError(f"{shape}. It is '{text[:80]}'.")
    return found


def selection(option: str, text: str) -> tuple[tuple[str, str], ...]:
    """Return the query of a pull for a tag expression (`paid || sent`) or an SQL92 condition."""
    is_tags = _TAGS.fullmatch(text) is not None
    try:
        wanted = compile_filter(text if is_tags else None, None if is_tags else text)
    except TernError as error:
        raise OptionError(f"{option}: '{text[:80]}' is no filter. {error}") from error
    if wanted.is_all:
        return ()
    return (("tags" if is_tags else "sql", text.strip()),)
