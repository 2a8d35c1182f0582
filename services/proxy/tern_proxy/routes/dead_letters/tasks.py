"""Handlers for redrives: dead letters delivered again by a task.

A task is part of the replicated state of each broker group that takes part, under one name that
this proxy generates (or derives from the Idempotency-Key), and the leaders execute it. So nothing
is lost with a proxy, and any proxy serves any task.
"""

import asyncio
import re
import secrets
from hashlib import blake2b

from tern_proxy.access.authorization import OPEN
from tern_proxy.core.dead_letters import redrive_selections, redrive_task
from tern_proxy.core.documents import dead_letters as documents
from tern_proxy.core.documents.dead_letters import RedriveRequest
from tern_proxy.core.sending.parameters import time_of
from tern_proxy.routes.call import Answer, Call
from tern_proxy.routes.fan_out import ask_all, broker_group_names
from tern_wire.errors import GroupNotFound, InvalidField, TaskNotFound
from tern_wire.link.dead_letters.redrive import CancelRedrive, GetRedrive, RedriveSelection, RedriveTask, StartRedrive
from tern_wire.names import check_group, is_of
from tern_wire.paths import HEADER_IDEMPOTENCY_KEY, task_path
from tern_wire.principals.principals import DESCRIBE, GROUP, SEEK, TOPIC

# Name and answer of each broker group that takes part in a task.
Parts = list[tuple[str, RedriveTask]]
_TASK = re.compile(documents.TASK_PATTERN)
KEY_LENGTH_MAX = 255


async def post_redrive(call: Call, group: str) -> Answer:
    """Deliver dead letters to this group again, from their own queues, as if they had never been
    received. 202 and a task.

    Each dead letter is redriven once, whatever is repeated. A repeated Idempotency-Key returns the
    same task.
    """
    check_group(group)
    asked = await call.read(RedriveRequest)
    if asked.topic:
        asked.topic = call.topic(asked.topic)
        call.admission.require(DESCRIBE, TOPIC, asked.topic)
    key = call.header(HEADER_IDEMPOTENCY_KEY)
    if len(key) > KEY_LENGTH_MAX:
        raise InvalidField(
            reason=f"A key has at most {KEY_LENGTH_MAX} characters", pointer=f"header/{HEADER_IDEMPOTENCY_KEY}"
        )
    seed = f"{group}\x00{key}".encode("utf-8", "surrogateescape")
    task = blake2b(seed, digest_size=12).hexdigest() if key else secrets.token_hex(12)
    selections = redrive_selections(asked, await broker_group_names(call.proxy), time_of)
    links = {name: call.proxy.group(name).link for name in selections}
    answers = await asyncio.gather(
        *(
            links[name].ask(
                StartRedrive(
                    task=task,
                    group=group,
                    selection=RedriveSelection(**selection.pack()),
                    rate=rate,
                    dry_run=asked.dry_run,
                ),
                is_repeatable=True,
            )
            for name, (selection, rate) in selections.items()
        ),
        return_exceptions=True,
    )
    for answer in answers:
        if isinstance(answer, BaseException) and not (isinstance(answer, GroupNotFound) and len(answers) > 1):
            raise answer
    parts = [(name, answer[0]) for name, answer in zip(selections, answers, strict=True) if isinstance(answer, tuple)]
    if not parts:
        raise GroupNotFound(group=group)
    return Answer(redrive_task(parts), 202, {"Location": task_path(task)})


async def get_task(call: Call, task: str) -> documents.RedriveTask:
    """Return the progress of a task, in all broker groups together."""
    parts = await _get(call, task)
    _require(call, task, parts, DESCRIBE)
    return redrive_task(parts)


async def delete_task(call: Call, task: str) -> documents.RedriveTask:
    """Cancel a task: redriven messages stay redriven. A task that has ended is unchanged."""
    parts = await _get(call, task)
    if call.admission is not OPEN:
        _require(call, task, parts, SEEK)
    return redrive_task(await ask_all(call.proxy, CancelRedrive(task=task), absent=TaskNotFound))


def _require(call: Call, task: str, parts: Parts, action: str) -> None:
    """Raise Forbidden, or TaskNotFound for a hidden one, unless the caller may do *action* on the
    group of the task.
    """
    try:
        call.admission.require(action, GROUP, parts[0][1].group)
    except GroupNotFound as error:
        raise TaskNotFound(task=task) from error


async def _get(call: Call, task: str) -> Parts:
    if _TASK.fullmatch(task) is None:
        raise TaskNotFound(task=task[:80])
    parts = await ask_all(call.proxy, GetRedrive(task=task), absent=TaskNotFound)
    if not is_of(call.namespace, parts[0][1].group):
        # A task of another namespace is treated as missing.
        raise TaskNotFound(task=task)
    return parts
