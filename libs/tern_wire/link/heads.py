"""Heads of link requests and replies as types, one struct each: the files beside this one have them by subject.

A head is a MessagePack map whose keys are the struct's field names. Peers of other releases can talk: a field that the struct does not have
is passed over, one that it has and the head lacks is refused unless it has a default, which is what an older peer means by leaving it out. A
field at its default is not written. `Annotated[int, msgspec.Meta(ge=0, le=...)]` says what a number may be; anything else is refused here,
once, so that a handler gets what its types say.

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


# No head leads back to itself, so the garbage collector need not look at any: `gc=False`, which makes and reads them faster.
class LinkReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The head of a reply."""


class Done(LinkReply, frozen=True, kw_only=True):
    """The head of a reply that says no more than that it was done; what else there is to say is in the raw bytes."""


R = TypeVar("R", bound=LinkReply)


class LinkRequest(msgspec.Struct, Generic[R], frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The head of a request, which is answered with an R."""

    code: ClassVar[RequestCode]
    # The R of the class, which types alone do not tell at run time. tests/unit/wire/link/test_heads.py holds both equal.
    reply: ClassVar[type[LinkReply]]


class LinkNotice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The head of a notice, which nobody answers."""

    code: ClassVar[NoticeCode]


Q = TypeVar("Q")
_HEAD_AT = HEAD_SIZE.size
# By kind. Every head of every frame asks for one, so this is a dictionary and no call.
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def head_parts(
    head: LinkRequest[Any] | LinkReply | LinkNotice, raw: Sequence[bytes | bytearray | memoryview] = ()
) -> Parts:
    """The parts of a body: *head*, and *raw* behind it."""
    packed = encode_msgpack(head)
    return [HEAD_SIZE.pack(len(packed)) + packed, *raw]


def read_head(kind: type[Q], body: bytes | memoryview) -> tuple[Q, memoryview]:
    """The head of *body* as a *kind* (a struct, or a union of tagged ones), and the raw bytes; LinkBodyMalformed when it is none."""
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
