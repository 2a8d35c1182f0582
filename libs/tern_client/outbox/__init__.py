"""The transactional outbox and inbox: messages as rows of the application's own database.

    add a message in your own transaction   Outbox (SQLAlchemy), AsyncOutbox, DbApiOutbox (PEP 249)
    send what was committed                 Relay (asyncio), BlockingRelay (threads)
    handle a message once                   Inbox, AsyncInbox

A row is sent when its transaction commits, and never otherwise. Rows of one message group are sent
in order, and each row is one message in effect, whatever dies in between.

SQLAlchemy is the extra `ternmq-client[outbox]`; DbApiOutbox works without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tern_wire.extras import need_extra

if TYPE_CHECKING:
    from tern_client.outbox.blocking_relays import BlockingRelay
    from tern_client.outbox.dbapi import DbApiOutbox
    from tern_client.outbox.inboxes import AsyncInbox, Inbox
    from tern_client.outbox.outboxes import AsyncOutbox, Outbox
    from tern_client.outbox.relays import Relay, RelayCounts
    from tern_client.outbox.rows import Backlog, FailedRow

__all__ = [
    "AsyncInbox",
    "AsyncOutbox",
    "Backlog",
    "BlockingRelay",
    "DbApiOutbox",
    "FailedRow",
    "Inbox",
    "Outbox",
    "Relay",
    "RelayCounts",
]

# Imported at their first use, as in tern_client.
_HOMES = {
    "AsyncInbox": "tern_client.outbox.inboxes",
    "AsyncOutbox": "tern_client.outbox.outboxes",
    "Backlog": "tern_client.outbox.rows",
    "BlockingRelay": "tern_client.outbox.blocking_relays",
    "DbApiOutbox": "tern_client.outbox.dbapi",
    "FailedRow": "tern_client.outbox.rows",
    "Inbox": "tern_client.outbox.inboxes",
    "Outbox": "tern_client.outbox.outboxes",
    "Relay": "tern_client.outbox.relays",
    "RelayCounts": "tern_client.outbox.relays",
}

_OF_SQLALCHEMY = frozenset({"AsyncInbox", "AsyncOutbox", "Inbox", "Outbox"})


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tern_client.outbox' has no attribute {name!r}")
    if name in _OF_SQLALCHEMY:
        need_extra("ternmq-client[outbox]", f"{name} of tern_client.outbox")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
