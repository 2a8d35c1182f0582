"""Handlers for browsing and purging the dead letters of a group."""

from tern_proxy.core.dead_letters import read_letters, read_place, selection_of
from tern_proxy.core.documents.dead_letters import DeadLetter, DeadLetters, Purged
from tern_proxy.core.reading.delivery import put_size
from tern_proxy.core.sending.parameters import number_of, time_of
from tern_proxy.routes.call import Call
from tern_proxy.routes.confirmation import confirm
from tern_proxy.routes.fan_out import ask_all, broker_group_names
from tern_proxy.routes.messages.bodies import put_body_of
from tern_wire.errors import GroupNotFound
from tern_wire.limits import DEAD_LETTERS_PAGE_MAX, RECEIVE_SIZE_DEFAULT_BYTES
from tern_wire.link.dead_letters import letters as link
from tern_wire.names import check_group
from tern_wire.principals.principals import GROUP, SUB

LIMIT_DEFAULT = 32
# Requests for one page: a broker reads a bounded number of dead letters for each.
_ASKED_MAX = 8


async def get_letters(call: Call, group: str) -> DeadLetters:
    """List the group's dead letters, oldest first within a broker group: each message with its
    origin and its cause of death.

    Nothing is consumed. A page may hold fewer than `limit`, even none, and still have a
    `next_cursor`.
    """
    check_group(group)
    query = call.query
    put_body = put_body_of(query, call.form)
    if query.get("topic"):
        query["topic"] = call.topic(query["topic"])
    if not call.admission.may(SUB, GROUP, group):
        put_body = put_size
    limit = number_of(query.get("limit", LIMIT_DEFAULT), "limit", 1, DEAD_LETTERS_PAGE_MAX)
    selection = selection_of(query, time_of)
    broker_groups = await broker_group_names(call.proxy)
    first, offset = read_place(query["cursor"], "query/cursor") if "cursor" in query else (broker_groups[0], 0)
    left = [name for name in broker_groups if name >= first]
    if not left or left[0] != first:
        offset = 0  # that broker group is gone: continue with the next
    messages: list[DeadLetter] = []
    unknown = 0
    for _ in range(_ASKED_MAX + len(left)):
        if not left or len(messages) >= limit:
            break
        asked = link.ListDeadLetters(
            group=group,
            offset=offset,
            count=limit - len(messages),
            max_bytes=RECEIVE_SIZE_DEFAULT_BYTES,
            topic=selection.topic,
            tag=selection.tag,
            reason=selection.reason,
            from_ms=selection.from_ms,
            to_ms=selection.to_ms,
        )
        try:
            found, raw = await call.proxy.group(left[0]).link.ask(asked, is_repeatable=True)
        except GroupNotFound:
            unknown += 1
            if unknown == len(broker_groups):
                raise
            found, raw = link.DeadLetters(letters=[], next=-1, count=0), memoryview(b"")
        messages += read_letters(found.letters, bytes(raw), left[0], put_body)
        offset = max(0, found.next)
        if found.next < 0:
            left.pop(0)
    page = DeadLetters(group=group, messages=messages)
    if left:
        page.next_cursor = f"{left[0]}:{offset}"
    return page


async def delete_letters(call: Call, group: str) -> Purged:
    """Drop all dead letters of the group permanently. `confirm` must repeat the group's name."""
    check_group(group)
    confirm(call, "the dead letters of group", group, "the only place where they can be found")
    parts = await ask_all(call.proxy, link.PurgeDeadLetters(group=group), absent=GroupNotFound)
    return Purged(group=group, purged=sum(part.purged for _, part in parts))
