"""Calls about dead letters: list, purge, redrive, and the task of a redrive."""

from collections.abc import Sequence
from typing import Any

from tern_client.asynchronous.client import AsyncClient
from tern_client.calls.compressed_bodies import plain_document
from tern_client.calls.dead_letters import cancel_request, dead_letters_request, purge_request, redrive_request
from tern_client.calls.documents import get_request, read_document
from tern_wire import paths


class DeadLetterCalls(AsyncClient):
    """Calls of Admin about dead letters."""

    __slots__ = ()

    async def dead_letters(
        self,
        group: str,
        *,
        topic: str = "",
        tag: str = "",
        reason: str = "",
        begin: str | int = "",
        end: str | int = "",
        limit: int = 0,
        cursor: str = "",
    ) -> dict[str, Any]:
        """Return a page of dead letters of *group*: `messages` with bodies as bytes, and
        `next_cursor` while there may be more.

        Each message has `dlq` with its origin, attempts, cause, reason and dead_at. *topic*, *tag*
        and *reason* narrow the list, and so do *begin* and *end*, times as milliseconds since 1970
        or RFC 3339.
        """
        request = dead_letters_request(
            group, topic=topic, tag=tag, reason=reason, begin=begin, end=end, limit=limit, cursor=cursor
        )
        found = read_document(await self._call(request))
        return found | {"messages": [plain_document(message) for message in found["messages"]]}

    async def purge_dead_letters(self, group: str) -> int:
        """Drop all dead letters of *group* for good; return their number."""
        return int(read_document(await self._call(purge_request(group)))["purged"])

    async def redrive(
        self,
        group: str,
        *,
        offsets: Sequence[str] = (),
        everything: bool = False,
        topic: str = "",
        tag: str = "",
        reason: str = "",
        begin: str | int = "",
        end: str | int = "",
        to: str = "",
        rate: int = 0,
        dry_run: bool = False,
        idempotency_key: str = "",
    ) -> dict[str, Any]:
        """Deliver dead letters to *group* again; return the task, whose progress `task` returns.

        - Those at *offsets* (`broker-a:17`), those that fit the conditions (see `dead_letters`), or
          *everything*. *end* is the time before which they became dead letters.
        - *to*: `origin`, their own queues, which is the default. Without *offsets* and conditions,
          naming it means *everything*.
        - *rate*: messages a second, 0 for no limit. *dry_run*: count, and deliver nothing.
        - *idempotency_key*: a repeat with it returns the same task.
        """
        request = redrive_request(
            group,
            offsets=offsets,
            everything=everything,
            to=to,
            rate=rate,
            dry_run=dry_run,
            idempotency_key=idempotency_key,
            topic=topic,
            tag=tag,
            reason=reason,
            begin=begin,
            end=end,
        )
        return read_document(await self._call(request))

    async def task(self, task: str) -> dict[str, Any]:
        """Return the progress of a task; TaskNotFound."""
        return read_document(await self._call(get_request(paths.task_path(task))))

    async def cancel_task(self, task: str) -> dict[str, Any]:
        """End a task where it is; TaskNotFound."""
        return read_document(await self._call(cancel_request(task)))
