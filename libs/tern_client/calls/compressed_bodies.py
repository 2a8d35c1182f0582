"""Compressed bodies: what a producer makes of a large one, and what a consumer gets back. Pure; a
shell does the work, off its event loop when there is much of it.

    send     body >= compress_min_bytes -> compressed, if that is smaller -> MQ-Content-Encoding
    receive  content_encoding -> plain body, or an error that reading `body` raises

Law: what is sent compressed, every reader can read. The limit of a message counts the plain body,
and a body that shrinks so far that a reader takes it for a bomb is sent plain.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

from tern_client.bodies.arguments import check_integer
from tern_client.bodies.decoders import TypedBody
from tern_client.bodies.mismatch import mismatch
from tern_client.calls.models import OutgoingMessage
from tern_client.transport.calling import Outcome, Step, Work
from tern_wire.errors import RecordMalformed, TernError
from tern_wire.extras import need_extra
from tern_wire.records.compression import ENCODINGS, LIBRARIES, Compression, can_return, compress, decompress

CompressionName = Literal["zlib", "zstd", "lz4"]
Message = TypeVar("Message", bound=TypedBody)
# RocketMQ's own bound (compressMsgBodyOverHowmuch).
COMPRESS_MIN_BYTES = 4_096
# Decompression takes the time of the plain body, which is not known before; a body of text shrinks
# to a fifth or a tenth.
_EXPECTED_RATIO = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedMessage(OutgoingMessage):
    """A message whose body is compressed with *content_encoding*, on its way to the proxy."""

    content_encoding: str


@dataclass(frozen=True, slots=True)
class Compressor:
    """The compression of one producer: bodies of *min_bytes* and more."""

    compression: Compression
    min_bytes: int

    def size_bytes(self, messages: Sequence[OutgoingMessage]) -> int:
        """Return the bytes to compress; 0 when all *messages* stay as they are."""
        sizes = [len(message.body) for message in messages]
        return sum(size for size in sizes if size >= self.min_bytes)

    def applied(self, message: OutgoingMessage) -> OutgoingMessage:
        """Return *message* compressed; unchanged when it is small, does not shrink, or would look
        like a bomb.
        """
        size = len(message.body)
        if size < self.min_bytes or type(message) is not OutgoingMessage:
            return message
        stored = compress(message.body, self.compression)
        if len(stored) >= size or not can_return(size, len(stored)):
            return message
        given = {each.name: getattr(message, each.name) for each in fields(message)}
        encoding = self.compression.name.lower()
        return CompressedMessage(**{**given, "body": stored}, content_encoding=encoding)


def compressor_of(name: CompressionName | None, min_bytes: int) -> Compressor | None:
    """Return the compressor that *name* says, None for none. TypeError for another name,
    ExtraMissing without its library.
    """
    check_integer("compress_min_bytes", min_bytes, "an int of bytes")
    if name is None:
        return None
    compression = ENCODINGS.get(name) if isinstance(name, str) else None
    if compression is None:
        raise TypeError(f"compression is {name!r}; allowed are {', '.join(map(repr, ENCODINGS))} or None")
    _need(compression)
    return Compressor(compression, min_bytes)


def compressed(
    compressor: Compressor | None, messages: Sequence[OutgoingMessage]
) -> Generator[Step, Outcome, Sequence[OutgoingMessage]]:
    """Return the step that compresses *messages*, without one when there is nothing to do."""
    size_bytes = compressor.size_bytes(messages) if compressor else 0
    if not compressor or not size_bytes:
        return messages
    made: list[OutgoingMessage] = []
    yield Work(lambda: made.extend(map(compressor.applied, messages)), size_bytes)
    return made


def decompressed(messages: list[Message]) -> Generator[Step, Outcome, list[Message]]:
    """Return the step that decompresses *messages*, without one when none is compressed."""
    size_bytes = sum(len(message.body) for message in messages if message.content_encoding)
    if not size_bytes:
        return messages
    made: list[Message] = []
    yield Work(lambda: made.extend(map(plain, messages)), size_bytes * _EXPECTED_RATIO)
    return made


def plain(message: Message) -> Message:
    """Return *message* with its plain body. A body that cannot be read is left out, and reading it
    raises the reason: one bad message does not keep the others of its receive from their handlers.
    """
    if not message.content_encoding:
        return message
    changed: Any = message
    try:
        read: Message = replace(changed, body=_plain_body(message.body, message.content_encoding, message.message_id))
    except TernError as error:
        read = replace(changed, refused=error)
        object.__delattr__(read, "body")
    return read


def plain_document(message: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a message with its plain body; unchanged, with its `content_encoding`,
    when that cannot be read: who inspects messages must see this one, too.
    """
    encoding, body = message.get("content_encoding"), message.get("body")
    if not encoding or not isinstance(body, bytes):
        return message
    try:
        plain_body = _plain_body(body, encoding, message.get("message_id", ""))
    except TernError:
        return message
    return {name: value for name, value in message.items() if name != "content_encoding"} | {"body": plain_body}


def _plain_body(body: bytes, encoding: str, message_id: str) -> bytes:
    compression = ENCODINGS.get(encoding)
    if compression is None:
        raise mismatch(bytes, f"this release does not know the compression '{encoding[:20]}'", "", message_id)
    _need(compression)
    try:
        return decompress(body, compression)
    except RecordMalformed as error:
        raise mismatch(bytes, str(error.fields["reason"]), "", message_id) from error


def _need(compression: Compression) -> None:
    if libraries := LIBRARIES.get(compression):
        need_extra("ternmq-client[compression]", f"A body in {compression.name.lower()}", *libraries)
