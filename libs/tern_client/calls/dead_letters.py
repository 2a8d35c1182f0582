"""Dead letters of a group: requests and answers, and the calls that both Admins have. The requests are pure."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from tern_client.calls.documents import get_request, read_document
from tern_client.client import AsyncClient, BlockingClient
from tern_client.transport.exchange import Request
from tern_wire import paths
from tern_wire.errors import InvalidField
from tern_wire.link.codec import encode_json
from tern_wire.names import check_group
from tern_wire.paths import TO_ORIGIN


def dead_letters_request(group: str, *, limit: int = 0, cursor: str = "", **conditions: str | int) -> Request:
    """A page of dead letters. *conditions*: topic, tag, reason, begin, end; empty ones mean all."""
    fields = {**_named(conditions), "limit": limit, "cursor": cursor}
    query = urlencode({name: value for name, value in fields.items() if value not in {"", 0}})
    path = paths.dead_letters_path(check_group(group))
    return Request("GET", f"{path}?{query}" if query else path, (("Accept", paths.MSGPACK),))


def purge_request(group: str) -> Request:
    """Drop all dead letters of *group*."""
    return Request("DELETE", f"{paths.dead_letters_path(check_group(group))}?{urlencode({'confirm': group})}")


def redrive_request(
    group: str,
    *,
    offsets: Sequence[str] = (),
    everything: bool = False,
    to: str = "",
    rate: int = 0,
    dry_run: bool = False,
    idempotency_key: str = "",
    **conditions: str | int,
) -> Request:
    """Begin a redrive. With *idempotency_key*, a repeat is the same task; without, one of its own that finds nothing left to do.

    InvalidField for a target other than `origin`. The wire has one `to`: a time where there is one, since origin is the default.
    """
    if to not in {"", TO_ORIGIN}:
        raise InvalidField(reason=f"Dead letters go back to '{TO_ORIGIN}', not to '{to[:80]}'", pointer="/to")
    document: dict[str, Any] = {"rate": rate, "dry_run": dry_run}
    if offsets:
        document["offsets"] = list(offsets)
    if everything:
        document["all"] = True
    if to:
        document["to"] = to
    document |= {name: value for name, value in _named(conditions).items() if value not in {"", 0}}
    headers = [("Content-Type", paths.JSON)]
    if idempotency_key:
        headers.append((paths.HEADER_IDEMPOTENCY_KEY, idempotency_key))
    return Request("POST", paths.redrive_path(check_group(group)), tuple(headers), encode_json(document))


def cancel_request(task: str) -> Request:
    """Cancel a task."""
    return Request("DELETE", paths.task_path(task))


def _named(conditions: dict[str, str | int]) -> dict[str, str | int]:
    """*begin* and *end* are from and to on the wire, which Python keeps for itself."""
    return {{"begin": "from", "end": "to"}.get(name, name): value for name, value in conditions.items()}


class DeadLetterCalls(AsyncClient):
    """What the async Admin can do with dead letters."""

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
        """`messages` with `dlq` (origin, attempts, cause, reason, dead_at), bodies as bytes; `next_cursor` while there may be more."""
        request = dead_letters_request(
            group, topic=topic, tag=tag, reason=reason, begin=begin, end=end, limit=limit, cursor=cursor
        )
        return read_document(await self._call(request))

    async def purge_dead_letters(self, group: str) -> int:
        """Drop all dead letters of *group*, for good; how many there were."""
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
        return read_document(await self._call(request))

    async def task(self, task: str) -> dict[str, Any]:
        """How a task is going; TaskNotFound."""
        return read_document(await self._call(get_request(paths.task_path(task))))

    async def cancel_task(self, task: str) -> dict[str, Any]:
        """End a task where it is; TaskNotFound."""
        return read_document(await self._call(cancel_request(task)))


class BlockingDeadLetterCalls(BlockingClient):
    """As DeadLetterCalls, for threads."""

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
        """As DeadLetterCalls.redrive."""
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
