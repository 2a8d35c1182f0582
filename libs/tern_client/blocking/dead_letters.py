# Made from libs/tern_client/asynchronous/dead_letters.py by `make blocking`: change that file, not this one.
"""Calls about dead letters: list, purge, redrive, and the task of a redrive."""

from collections.abc import Sequence
from typing import Any

from tern_client.blocking.client import BlockingClient
from tern_client.calls.dead_letters import cancel_request, dead_letters_request, purge_request, redrive_request
from tern_client.calls.documents import get_request, read_document
from tern_wire import paths


class BlockingDeadLetterCalls(BlockingClient):
    """What BlockingAdmin can do with dead letters."""

    def dead_letters(
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
        """`messages` with `dlq` (origin, attempts, cause, reason, dead_at), bodies as bytes; `next_cursor` while there may be more."""
        request = dead_letters_request(
            group, topic=topic, tag=tag, reason=reason, begin=begin, end=end, limit=limit, cursor=cursor
        )
        return read_document(self._call(request))

    def purge_dead_letters(self, group: str) -> int:
        """Drop all dead letters of *group*, for good; how many there were."""
        return int(read_document(self._call(purge_request(group)))["purged"])

    def redrive(
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
        """Deliver dead letters to *group* again: those at *offsets* (`broker-a:17`), or that fit the conditions, or *everything*.

        The task that does it; ask `task` how it is going. *rate*: messages a second, 0 for as fast as it goes. *to*: `origin`, their own
        queues, which is also the default; where nothing else chooses, naming it means *everything*. *end* is the time before which they died.
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
        return read_document(self._call(request))

    def task(self, task: str) -> dict[str, Any]:
        """How a task is going; TaskNotFound."""
        return read_document(self._call(get_request(paths.task_path(task))))

    def cancel_task(self, task: str) -> dict[str, Any]:
        """End a task where it is; TaskNotFound."""
        return read_document(self._call(cancel_request(task)))
