"""Handlers for consumer groups: declared, altered, described, listed, deleted.

Every broker group has every group.
"""

import msgspec

from tern_proxy.core.documents.groups import GroupDeleted, GroupDescription, GroupPage, GroupSettings
from tern_proxy.core.groups import group_change, group_declared, group_description, group_state, start_of
from tern_proxy.core.listing import Page, read_page
from tern_proxy.routes.call import Answer, Call
from tern_proxy.routes.confirmation import confirm
from tern_proxy.routes.fan_out import ask_all
from tern_proxy.routes.lists import take_visible
from tern_proxy.routes.topics.topics import mode_of_put, names_settings
from tern_wire.errors import GroupNotFound, QuotaExceeded
from tern_wire.link.groups import ChangeGroup, DeleteGroup, DescribeGroup, GroupChanged, KnownGroup, ListGroups
from tern_wire.names import check_group
from tern_wire.principals.principals import ALTER as ALTER_IT
from tern_wire.principals.principals import DESCRIBE, GROUP, TOPIC
from tern_wire.settings.group_settings import read_group_change
from tern_wire.settings.topic_settings import ALTER, CREATE, DECLARE

Answers = list[tuple[str, GroupChanged]]


async def put_group(call: Call, group: str) -> Answer:
    """Declare a consumer group: afterwards it exists, with the given settings. 201 when it is new.

    `start` is its initial position in a queue without a committed offset: `earliest` (default),
    `latest`, or a time; it is fixed at the first receive. `fifo` can only be changed before that.
    With `If-None-Match: *` an existing group is unchanged (412).
    """
    return await _change(call, group, mode_of_put(call))


async def patch_group(call: Call, group: str) -> Answer:
    """Change the given settings of an existing group."""
    return await _change(call, group, ALTER)


async def _change(call: Call, group: str, mode: str) -> Answer:
    check_group(group)
    settings = await call.read(GroupSettings)
    if mode == DECLARE and names_settings(settings):
        call.admission.require(ALTER_IT, GROUP, group)
    packed = read_group_change(group_change(group, mode, settings, start_of(settings))).packed()
    change = msgspec.convert(packed, ChangeGroup)
    answers = await _alter(call, change) if mode == ALTER else await _declare(call, change)
    created = any(found.created for _, found in answers)
    return Answer(group_declared(answers[0][1], created=created), 201 if created else 200)


async def _alter(call: Call, change: ChangeGroup) -> Answers:
    return await ask_all(call.proxy, msgspec.structs.replace(change, mode=ALTER), absent=GroupNotFound)


async def _declare(call: Call, change: ChangeGroup) -> Answers:
    mode = change.mode
    try:
        with call.proxy.creations.one(call.owner) as creation:
            answers = await ask_all(call.proxy, change, is_repeatable=mode != CREATE)
            creation.is_new = any(found.created for _, found in answers)
    except QuotaExceeded as exceeded:
        if mode == CREATE:
            raise
        # Creations are over quota, but an existing group may be declared.
        try:
            return await _alter(call, change)
        except GroupNotFound:
            raise exceeded from None
    return answers


async def get_group(call: Call, group: str) -> GroupDescription:
    """Return settings, and for each topic that the group has begun: committed offsets, lag, leased
    and available messages.

    With `topic` only that one; without, topics with at most 20,000 queues together (`truncated`).
    """
    topic = call.topic(call.query["topic"]) if call.query.get("topic") else ""
    asked = DescribeGroup(group=check_group(group), topic=topic)
    if topic:
        call.admission.require(DESCRIBE, TOPIC, topic)
    described = group_description(await ask_all(call.proxy, asked, absent=GroupNotFound))
    described.topics = [row for row in described.topics if call.admission.sees(TOPIC, row.topic)]
    return described


async def list_groups(call: Call) -> GroupPage:
    """List groups in order of their names, page by page: `next_cursor` is empty on the last one.

    `q` is a part of the name, case-insensitive.
    """
    page = read_page(call.query, {"name": str})

    async def ask(part: Page) -> tuple[dict[str, KnownGroup], bool]:
        asked = ListGroups(
            namespace=call.namespace,
            q=part.pattern,
            after=part.after[1] if part.after is not None else "",
            limit=part.limit,
            descending=part.descending,
        )
        answers = await ask_all(call.proxy, asked)
        rows = {found.group: found for _, told in reversed(answers) for found in told.groups}
        return rows, any(told.more for _, told in answers)

    found, cursor = await take_visible(page, ask, call.admission, GROUP)
    return GroupPage(groups=[group_state(group) for _, group in found], next_cursor=cursor)


async def delete_group(call: Call, group: str) -> GroupDeleted:
    """Delete a consumer group with its offsets, leases and dead letters. The name becomes free."""
    confirm(call, "group", check_group(group), "its offsets, leases and dead letters")
    asked = DescribeGroup(group=group, topic="")
    for name, found in await ask_all(call.proxy, asked, absent=GroupNotFound):
        # By its id: a repeat must not delete a group that was created under the name since.
        deletion = DeleteGroup(group=group, group_id=found.group_id)
        await call.proxy.group(name).link.ask(deletion, is_repeatable=True)
    return GroupDeleted(group=group, deleted=True)
