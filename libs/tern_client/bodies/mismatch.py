"""The error of a body that is not what its reader expects, with a text of bounded length."""

import re
from typing import ClassVar, get_args

from tern_wire.errors import TernError

# Together below the 1 KiB of a dead letter's reason.
_MODULE = re.compile(r"\b(?:\w+\.)+(?=\w)")
_TYPE_LENGTH_MAX, _PATH_LENGTH_MAX, _REASON_LENGTH_MAX = 80, 120, 240


class BodyMismatch(TernError):
    """The body of a message does not fit the type that its reader asked for. A repeat cannot help:
    make the message a dead letter. Raised by `decode`, never on the wire.

    `fields` has `type`, `path` (`$.items[0].id`; empty when the whole body is wrong), `reason` and
    `message_id`. The text has at most 700 characters.

    Example:

        from dataclasses import dataclass

        from tern_client import BlockingConsumer, BlockingProducer, BodyMismatch


        @dataclass
        class Order:
            id: int


        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", {"id": "seventeen"})
        with BlockingConsumer("http://127.0.0.1:8080", "orders", "billing") as consumer:
            for message in consumer.until_idle():
                try:
                    print(message.decode(Order))
                except BodyMismatch as error:
                    print(error.code, error.fields["path"])  # -> body-mismatch $.id
                    consumer.dead_letter(str(error), message)
    """

    code: ClassVar[str] = "body-mismatch"
    status: ClassVar[int] = 422
    title: ClassVar[str] = "A body does not fit its type"
    fix: ClassVar[str] = "The body of {message} is not {type}: {reason}{at}. Correct its producer, or the type."


def mismatch(annotation: object, reason: str, path: str = "", message_id: str = "") -> BodyMismatch:
    """Return the error of a body that is not of type *annotation*; long texts are cut."""
    path = _cut(path, _PATH_LENGTH_MAX)
    return BodyMismatch(
        type=type_name(annotation),
        path=path,
        reason=_cut(reason, _REASON_LENGTH_MAX),
        message_id=message_id,
        message=f"message {_cut(message_id, 80)}" if message_id else "the message",
        at=f" (at {path})" if path else "",
    )


def type_name(annotation: object) -> str:
    """Return *annotation* as a reader of an error knows it: `Order`, `list[Order]`."""
    if isinstance(annotation, type) and not get_args(annotation):
        return _cut(annotation.__name__, _TYPE_LENGTH_MAX)
    return _cut(_MODULE.sub("", str(annotation)), _TYPE_LENGTH_MAX)


def _cut(text: str, length_max: int) -> str:
    shown = "".join(sign if sign.isprintable() else " " for sign in text[: length_max + 1])
    return shown if len(shown) <= length_max else f"{shown[: length_max - 3]}..."
