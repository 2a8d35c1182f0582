"""The end of a load run: open requests are repeated, the group is drained, and totals are compared.

It runs after all users have stopped, over one connection of its own. The calls block; gevent lets
other tasks run meanwhile.
"""

import http.client
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from loadtest.ledger import Ledger
from tern_client.transport.credentials import Credentials
from tern_client.transport.exchange import Request
from tern_wire import paths
from tern_wire.limits import RECEIVE_MESSAGES_MAX

# Longer than the leases that killed users left behind.
PATIENCE_S = 30.0
_PAUSE_S = 0.2


class Client:
    """One kept connection to the proxy.

    It uses the key of TERNMQ_KEY_FILE and the authority of TERNMQ_CA_FILE, if there are any.
    """

    def __init__(self, host: str) -> None:
        address = urlsplit(host)
        self._host, self._credentials = host.rstrip("/"), Credentials((host,))
        self._connection = (
            http.client.HTTPSConnection(
                address.hostname or "", address.port, timeout=40, context=self._credentials.context()
            )
            if address.scheme == "https"
            else http.client.HTTPConnection(address.hostname or "", address.port, timeout=40)
        )

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return status and document; status 0, outcome unknown, for a broken connection."""
        try:
            own = tuple((headers or {"Content-Type": paths.JSON}).items())
            asked = self._credentials.applied(Request(method, path, own, body), self._host)
            self._connection.request(method, path, body, dict(asked.headers))
            reply = self._connection.getresponse()
            text = reply.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return 0, {}
        is_packed = reply.headers.get_content_type() == paths.MSGPACK
        return reply.status, msgspec.msgpack.decode(text) if is_packed else msgspec.json.decode(text or b"{}")

    def must(self, method: str, path: str, body: bytes = b"", *, patience_s: float = PATIENCE_S) -> Any:
        """Repeat a request until it succeeds, at most for *patience_s*; return its document.

        RuntimeError after that time, and at once for other errors than 503, 504 and a broken
        connection.
        """
        deadline_s = time.monotonic() + patience_s
        while True:
            status, document = self.ask(method, path, body)
            if 200 <= status < 300:
                return document
            if status not in {0, 503, 504} or time.monotonic() > deadline_s:
                raise RuntimeError(f"{method} {path}: {document.get('detail') if status else 'no connection'}")
            time.sleep(_PAUSE_S)


def settle_run(client: Client, topic: str, group: str, ledger: Ledger) -> int:
    """Resolve the open requests of *ledger*; return the number of messages in the topic.

    Gives up after 30 s without progress.
    """
    _finish_sends(client, ledger)
    deadline_s = time.monotonic() + PATIENCE_S
    while not ledger.agrees and time.monotonic() < deadline_s:
        before = len(ledger.acked)
        _drain(client, topic, group, ledger)
        if len(ledger.acked) > before:
            deadline_s = time.monotonic() + PATIENCE_S
    queues = client.must("GET", paths.offsets_path(topic))["queues"]
    return sum(int(queue["max_offset"] - queue["min_offset"]) for queue in queues)


def _finish_sends(client: Client, ledger: Ledger) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while ledger.open_sends and time.monotonic() < deadline_s:
        for key, send in list(ledger.open_sends.items()):
            status, document = client.ask("POST", send.path, send.body, send.headers)
            ledger.repeated_sends += 1
            if not read_send(ledger, key, status, document):
                time.sleep(_PAUSE_S)


def read_send(ledger: Ledger, key: str, status: int, document: Any) -> bool:
    """Enter the answer to a send; return False when the send has to be repeated."""
    if status in {0, 503, 504}:
        return False
    if status not in {200, 201, 207}:
        ledger.refuse_send(key, f"a send got {status}: {document}")
        return True
    receipts = document.get("results", [document])
    errors = [result["error"] for result in receipts if "error" in result]
    if any(not error["retryable"] for error in errors):
        ledger.refuse_send(key, f"a message of a batch got {errors[0]}")
    elif errors:
        return False
    else:
        ledger.end_send(key, receipts)
    return True


def _drain(client: Client, topic: str, group: str, ledger: Ledger) -> None:
    """Ack the open messages; if there are none, receive once, which opens its messages."""
    handles = list(ledger.open_acks)[:RECEIVE_MESSAGES_MAX]
    if handles:
        status, document = client.ask(
            "POST", paths.ack_path(topic, group), msgspec.json.encode({"receipt_handles": handles})
        )
        if status in {200, 207}:
            ledger.end_acks(handles, document["results"])
        elif status in {0, 503, 504}:
            time.sleep(_PAUSE_S)
        else:
            ledger.end_acks(handles, [{"error": document}] * len(handles))
        return
    request = {"max_messages": RECEIVE_MESSAGES_MAX, "wait": "1s"}
    status, document = client.ask(
        "POST", paths.receive_path(topic, group), msgspec.json.encode(request), RECEIVE_HEADERS
    )
    if status == 200:
        ledger.receive(document["messages"])
    else:
        time.sleep(_PAUSE_S)


RECEIVE_HEADERS = {"Content-Type": paths.JSON, "Accept": paths.MSGPACK}
