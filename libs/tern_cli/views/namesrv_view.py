"""Requests of the command line to all name servers. Name servers never talk to each other.

Reads go to all of them at once, and differences are shown. Writes go to every one, as RocketMQ's
tools do; servers that did not accept a write are named. Proxies are not involved.
"""

import http.client
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from tern_cli.failures import CommandFailed
from tern_cli.mesh.http import connect
from tern_wire.paths import write_permission_path

# A stopped process accepts connections and never answers; a live one may wait for its disk.
_TIMEOUT_S = 3.0
_ASKED_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Answer of one name server; status 0 and no document when there was none."""

    url: str
    status: int = 0
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Return whether the request succeeded."""
        return 200 <= self.status < 300

    @property
    def reason(self) -> str:
        """Return the reason of the failure, as a sentence."""
        if not self.status:
            return f"{self.url} does not answer."
        return f"{self.url} refuses: {self.document.get('detail') or f'status {self.status}'}"


def ask_all(
    urls: Sequence[str], method: str, path: str, document: dict[str, Any] | None = None, *, data_dir: str = ""
) -> list[Said]:
    """Send one request to each of *urls* at once and return the answers in their order.
    *data_dir*: directory of the operator's certificate, for https.
    """
    with ThreadPoolExecutor(max_workers=_ASKED_AT_ONCE) as threads:
        return list(threads.map(lambda url: _ask(url, method, path, document, data_dir), urls))


def answered(said: Sequence[Said]) -> list[Said]:
    """Return the successful answers of *said*. CommandFailed with all reasons when there is none.
    The exit code is 2 when every server rejected the request as invalid.
    """
    if good := [one for one in said if one.is_good]:
        return good
    told = [one for one in said if one.status]
    if not told:
        asked = ", ".join(one.url for one in said)
        raise CommandFailed("No name server can be reached", f"{asked} did not answer. Is the mesh up? See --namesrv.")
    detail = str(told[0].document.get("detail") or f"status {told[0].status}")
    exit_code = 2 if all(one.status == 400 for one in told) else 1
    raise CommandFailed(str(told[0].document.get("title", "The name servers refuse")), detail, exit_code=exit_code)


def taken_by_all(said: Sequence[Said]) -> list[Said]:
    """Return *said* if every name server accepted the write.
    CommandFailed names the servers that did not: their state now differs from the others'.
    """
    good = answered(said)
    if len(good) == len(said):
        return good
    raise CommandFailed(
        "Not every name server has it",
        f"{len(good)} of {len(said)} accepted it, and name servers do not synchronize. Repair the others and repeat the command.",
        lines=[one.reason for one in said if not one.is_good],
    )


def permit(urls: Sequence[str], broker_group: str, *, writable: bool, data_dir: str = "") -> tuple[list[Said], int]:
    """Withdraw or restore a broker group's write permission at all of *urls*.
    Returns the answers, and the number of topics that the group hosts. CommandFailed when a server
    did not accept the change.
    """
    path = write_permission_path(quote(broker_group, safe=""))
    taken = taken_by_all(ask_all(urls, "POST", path, {"writable": writable}, data_dir=data_dir))
    return taken, max(int(one.document["topics"]) for one in taken)


def _ask(url: str, method: str, path: str, document: dict[str, Any] | None, data_dir: str) -> Said:
    body = None if document is None else json.dumps(document)
    address = urlsplit(url)
    connection = connect(url, timeout_s=_TIMEOUT_S, data_dir=data_dir)
    try:
        where = address.path.rstrip("/") + path
        connection.request(method, where, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        told = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError):
        return Said(url=url)
    finally:
        connection.close()
    return Said(url=url, status=answer.status, document=told if isinstance(told, dict) else {})
