"""One client of the deployment: HTTPS with the cluster's authority and a key, at whichever proxy answers. Blocking, standard library only,
so that what is accepted here was accepted on the wire and not by our own SDK.
"""

import http.client
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

JSON = {"Content-Type": "application/json"}
# Not an answer to a request that may be said again: it was not taken, or nobody knows.
TRANSIENT = frozenset({0, 408, 429, 500, 502, 503, 504})


class Answer(NamedTuple):
    """Status (0: none came) and the JSON document."""

    status: int
    document: Any


class Client:
    """Owner: one thread. *key* is the text of a bearer key; "" for nobody."""

    def __init__(self, ports: Sequence[int], authority: str, key: str, *, timeout_s: float = 15.0) -> None:
        self._context = ssl.create_default_context(cadata=authority)
        self._ports, self._turn, self._timeout_s = tuple(ports), 0, timeout_s
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._connection: http.client.HTTPSConnection | None = None

    def ask(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        """One attempt at the proxy that answered last; after a failure the next attempt goes to the other one."""
        if self._connection is None:
            port = self._ports[self._turn % len(self._ports)]
            self._connection = http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=self._timeout_s, context=self._context
            )
        sent = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        try:
            self._connection.request(method, path, sent, {**JSON, **self._headers, **(headers or {})})
            reply = self._connection.getresponse()
            text = reply.read()
        except (OSError, http.client.HTTPException):
            self._elsewhere()
            return Answer(0, {})
        if reply.status in TRANSIENT:
            self._elsewhere()
        return Answer(reply.status, json.loads(text) if text else {})

    def must(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        *,
        within_s: float = 30.0,
    ) -> Any:
        """The document of a request that succeeds in time; AssertionError with the last answer."""
        deadline_s = time.monotonic() + within_s
        while True:
            answer = self.ask(method, path, body, headers)
            if 200 <= answer.status < 300:
                return answer.document
            assert answer.status in TRANSIENT and time.monotonic() < deadline_s, (
                f"{method} {path}: {answer.status} {answer.document}"
            )
            time.sleep(0.1)

    def _elsewhere(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._turn = None, self._turn + 1
