"""Principals, as proxies tell broker groups of them and hear what has changed.

A document is described in `tern_wire/principals/documents.py`. It travels in MessagePack, as it is kept, and whoever takes it reads it there.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import PRINCIPALS_PAGE_MAX
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

PRINCIPALS_REVISION_MAX = (1 << 63) - 1


# Told --------------------------------------------------------------------------------------------------------------
class PrincipalPut(LinkReply, frozen=True, kw_only=True):
    """*changed*: the document said something new. *revision*: how often any principal has changed; *version*: that of its settings, or of its deletion.

    *size* (bytes of all principals) and *crc* (of this one) are for whoever compares nodes; 0 where nothing has changed.
    """

    changed: bool
    revision: int
    version: int
    size: int = 0
    crc: int = 0


class PutPrincipal(LinkRequest[PrincipalPut], frozen=True, kw_only=True):
    """Join *document*, a map, with what is known of the principal that it names.

    *base*: the version of the settings that it changes, PrincipalChanged where they are younger; -1: whatever there is. *is_repair*: a proxy tells what
    other broker groups know.
    """

    code: ClassVar = RequestCode.PUT_PRINCIPAL
    reply: ClassVar = PrincipalPut

    document: msgspec.Raw
    base: int = -1
    is_repair: bool = False


# Heard -------------------------------------------------------------------------------------------------------------
class ChangedPrincipal(msgspec.Struct, frozen=True, array_like=True):
    """A principal's *document*, a map in MessagePack, and the *revision* in which it changed last."""

    revision: int
    document: bytes


class ChangedPrincipals(LinkReply, frozen=True, kw_only=True):
    """Those that have changed, in that order. *revision*: of the broker group now; less than what was asked for: it was made anew.

    *more*: there are others behind them.
    """

    principals: list[ChangedPrincipal]
    revision: int
    more: bool


class ListPrincipals(LinkRequest[ChangedPrincipals], frozen=True, kw_only=True):
    """At most *limit* principals that have changed after the revision *after*; 0: all of them."""

    code: ClassVar = RequestCode.LIST_PRINCIPALS
    reply: ClassVar = ChangedPrincipals

    after: Annotated[int, msgspec.Meta(ge=0, le=PRINCIPALS_REVISION_MAX)]
    limit: Annotated[int, msgspec.Meta(ge=1, le=PRINCIPALS_PAGE_MAX)]
