"""Link requests of proxies for principals: write one to a broker group, and list changes.

Documents are described in `tern_wire/principals/documents.py`. A document travels in MessagePack,
its stored form, and is decoded by the receiver.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import PRINCIPALS_PAGE_MAX
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

PRINCIPALS_REVISION_MAX = (1 << 63) - 1


# Writes -------------------------------------------------------------------------------------------
class PrincipalPut(LinkReply, frozen=True, kw_only=True):
    """Reply. *changed*: the document had news.

    *revision*: the count of changes of all principals. *version*: of its settings or its deletion.
    *size* (bytes of all principals) and *crc* (of this one) are for comparing nodes; 0 where
    nothing has changed.
    """

    changed: bool
    revision: int
    version: int
    size: int = 0
    crc: int = 0


class PutPrincipal(LinkRequest[PrincipalPut], frozen=True, kw_only=True):
    """Merge *document*, a map, with the stored state of the principal that it names.

    *base*: the version of the settings that it changes, PrincipalChanged where the stored ones are
    newer; -1 for any version. *is_repair*: a proxy copies the state of other broker groups.
    """

    code: ClassVar = RequestCode.PUT_PRINCIPAL
    reply: ClassVar = PrincipalPut

    document: msgspec.Raw
    base: int = -1
    is_repair: bool = False


# Reads --------------------------------------------------------------------------------------------
class ChangedPrincipal(msgspec.Struct, frozen=True, array_like=True):
    """Principal's *document*, a map in MessagePack, and the *revision* of its last change."""

    revision: int
    document: bytes


class ChangedPrincipals(LinkReply, frozen=True, kw_only=True):
    """Reply: changed principals in the order of their changes. *more*: there are further ones.

    *revision* is the broker group's current one. If it is less than the requested one, the broker
    group was recreated.
    """

    principals: list[ChangedPrincipal]
    revision: int
    more: bool


class ListPrincipals(LinkRequest[ChangedPrincipals], frozen=True, kw_only=True):
    """List at most *limit* principals that changed after the revision *after*; 0 lists all."""

    code: ClassVar = RequestCode.LIST_PRINCIPALS
    reply: ClassVar = ChangedPrincipals

    after: Annotated[int, msgspec.Meta(ge=0, le=PRINCIPALS_REVISION_MAX)]
    limit: Annotated[int, msgspec.Meta(ge=1, le=PRINCIPALS_PAGE_MAX)]
