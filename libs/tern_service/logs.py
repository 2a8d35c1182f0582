"""Logs on stderr, one line per event: JSON for machines, short coloured text at a terminal.

Law: a log line stays one line (control characters are escaped) and bounded in length, so that a
client cannot forge or flood a log through the values that it sends.
"""

import logging
import sys
import time
from typing import Any

import orjson

# Limit of one text of an event (message, field or traceback): a deep traceback fits.
TEXT_LENGTH_MAX = 8_192
# Limit of fields beside the message: an event is not a data store.
FIELDS_MAX = 32

# Attributes of every LogRecord; others come from `extra=`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
_COLOURS = {"DEBUG": "\033[2m", "INFO": "\033[36m", "WARNING": "\033[33m", "ERROR": "\033[31m", "CRITICAL": "\033[35m"}
# C0, DEL, C1 and the two line separators, which a terminal or a line-based reader acts on.
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_ESCAPES |= {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def setup_logs(service: str, *, level: str = "INFO", json: bool | None = None) -> None:
    """Send all logs of this process to stderr. *json* None: JSON unless stderr is a terminal.
    *level* is DEBUG, INFO, WARNING or ERROR. Replaces earlier handlers.
    """
    as_json = not sys.stderr.isatty() if json is None else json
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines(service) if as_json else _Text(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Its life-cycle messages repeat ours.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    # A line a request, several a second; the caller logs the result.
    logging.getLogger("httpx").setLevel(logging.WARNING)


def _cut(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    # orjson refuses lone surrogates, and no reader needs them.
    text = text[:TEXT_LENGTH_MAX].encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= TEXT_LENGTH_MAX else text[:TEXT_LENGTH_MAX]


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    extra = [(name, value) for name, value in vars(record).items() if name not in _OWN]
    return {
        _cut(name)[:64]: value if isinstance(value, (bool, int, float)) or value is None else _cut(value)
        for name, value in extra[:FIELDS_MAX]
    }


def _trace(record: logging.LogRecord) -> str:
    """The traceback's end if it is too long: the cause stands last."""
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return _cut(logging.Formatter().formatException(record.exc_info)[-TEXT_LENGTH_MAX:])


class _JsonLines(logging.Formatter):
    """`{"time": ..., "level": ..., "service": ..., "logger": ..., "event": ..., <fields>}`."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        event: dict[str, Any] = {
            **_fields(record),
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "service": self._service,
            "logger": record.name,
            "event": _cut(record.getMessage()),
        }
        trace = _trace(record)
        if trace:
            event["traceback"] = trace
        head = ("time", "level", "service", "logger", "event")
        ordered = {name: event.pop(name) for name in head} | event
        # orjson escapes C0; the rest is escaped here.
        return orjson.dumps(ordered, option=orjson.OPT_PASSTHROUGH_DATETIME, default=str).decode().translate(_JSON_REST)


_JSON_REST = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}


class _Text(logging.Formatter):
    """`12:00:03.120 INFO  namesrv  broker registered  node=broker-a-0`, coloured by level."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        colour = _COLOURS.get(record.levelname, "")
        fields = "".join(f"  {name}={value}" for name, value in _fields(record).items())
        text = f"{_cut(record.getMessage())}{fields}"
        trace = _trace(record)
        if trace:
            text += f"  {trace}"
        level = f"{colour}{record.levelname:<7}\033[0m"
        return f"{at}.{int(record.msecs):03d} {level} {self._service}  {text.translate(_ESCAPES)}"
