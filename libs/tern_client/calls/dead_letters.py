"""Dead letters of a consumer group: requests as values. Pure."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from tern_client.transport.exchange import Request
from tern_wire import paths
from tern_wire.errors import InvalidField
from tern_wire.link.codec import encode_json
from tern_wire.names import check_group
from tern_wire.paths import TO_ORIGIN


def dead_letters_request(group: str, *, limit: int = 0, cursor: str = "", **conditions: str | int) -> Request:
    """Request a page of dead letters. *conditions*: topic, tag, reason, begin, end; an empty one
    means all.
    """
    fields = {**_named(conditions), "limit": limit, "cursor": cursor}
    query = urlencode({name: value for name, value in fields.items() if value not in {"", 0}})
    path = paths.dead_letters_path(check_group(group))
    return Request("GET", f"{path}?{query}" if query else path, (("Accept", paths.MSGPACK),))


def purge_request(group: str) -> Request:
    """Request to drop all dead letters of *group*."""
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
    """Request a redrive. With *idempotency_key* a repeat is the same task; without, a new task that
    finds nothing left to do.

    InvalidField for a target other than `origin`. The wire has one `to`, which is a time where
    there is one: origin is the default.
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
    """Request to cancel a task."""
    return Request("DELETE", paths.task_path(task))


def _named(conditions: dict[str, str | int]) -> dict[str, str | int]:
    """Rename *begin* and *end* to the wire's from and to; `from` is a keyword of Python."""
    return {{"begin": "from", "end": "to"}.get(name, name): value for name, value in conditions.items()}
