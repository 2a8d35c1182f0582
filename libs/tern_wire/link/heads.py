"""Base types for heads of link requests and replies.

The other files of this folder have one struct each, by subject. A head is a MessagePack map whose
keys are the struct's field names. Peers of different releases are compatible: an unknown field is
skipped; a missing field is refused unless it has a default, which is the meaning of its absence at
an older peer. A field at its default is not written. `Annotated[int, msgspec.Meta(ge=0, le=...)]`
declares the range of a number. All other values are refused here, once, so a handler gets values of
the declared types.

    class Purge(LinkRequest["Purged"], frozen=True, kw_only=True):
        code: ClassVar = RequestCode.PURGE
        reply: ClassVar = Purged

        group: str
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.requests import HEAD_SIZE, NoticeCode, Parts, RequestCode


# Heads form no reference cycles, so the garbage collector need not track them: `gc=False` makes
# them faster to construct and decode.
class LinkReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Head of a reply."""


class Done(LinkReply, frozen=True, kw_only=True):
    """Head of a reply without fields; further results are in the raw bytes."""


R = TypeVar("R", bound=LinkReply)


class LinkRequest(msgspec.Struct, Generic[R], frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Head of a request whose reply is an R."""

    code: ClassVar[RequestCode]
    # The class's R at run time, where type parameters are absent.
    # tests/unit/wire/link/test_heads.py checks that the two are equal.
    reply: ClassVar[type[LinkReply]]


class LinkNotice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Head of a notice, a message without a reply."""

    code: ClassVar[NoticeCode]


Q = TypeVar("Q")
_HEAD_AT = HEAD_SIZE.size
# Decoders by kind. Each head of each frame needs one, so this is a plain dictionary instead of a
# cached call.
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def head_parts(
    head: LinkRequest[Any] | LinkReply | LinkNotice, raw: Sequence[bytes | bytearray | memoryview] = ()
) -> Parts:
    """Return the parts of a body: *head*, followed by *raw*."""
    packed = encode_msgpack(head)
    return [HEAD_SIZE.pack(len(packed)) + packed, *raw]


def read_head(kind: type[Q], body: bytes | memoryview) -> tuple[Q, memoryview]:
    """Decode the head of *body* as *kind* (a struct, or a union of tagged ones); return it and the
    raw bytes.

    Raise LinkBodyMalformed when the head is not of that kind.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    view = memoryview(body)
    size_bytes = len(view)
    if size_bytes < _HEAD_AT:
        raise LinkBodyMalformed(reason="a body without a head")
    end = _HEAD_AT + HEAD_SIZE.unpack_from(view)[0]
    if end > size_bytes:
        raise LinkBodyMalformed(reason="a head that runs past its body")
    try:
        head: Q = decoder.decode(view[_HEAD_AT:end])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LinkBodyMalformed(reason=f"{getattr(kind, '__name__', kind)}: {error}") from error
    return head, view[end:]
