"""Client of a broker group's rebuild routes: the manifest of the files to copy, and their pieces.

Each request is signed with the cluster key in the name `operator`
(`tern_wire/principals/peer_proof.py`). In a secure mesh the connection also presents the operator's
certificate (`mesh/http.py`). Requests go to the current leader.
"""

import http.client
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tern_cli.failures import CommandFailed
from tern_cli.mesh.http import operator_context
from tern_cli.views.raft_view import BrokerNode, ask_again, leader_of
from tern_http.blocking import BlockingPool
from tern_security.peer_identity import OPERATOR
from tern_store.checksum import crc32
from tern_store.copies.sink import Wanted
from tern_store.errors import CopyRefused
from tern_wire.errors import error_from
from tern_wire.limits import REBUILD_REPLY_MAX_BYTES
from tern_wire.paths import HEADER_CRC32, HEADER_PEER_PROOF, REBUILD_FILES_PATH, REBUILD_MANIFEST_PATH
from tern_wire.principals.peer_proof import PeerRequest, proof_header

# Time for a piece from a cold disk that other requests use too.
REQUEST_TIMEOUT_S = 10.0


class NoAnswer(Exception):
    """The group has no leader, or the leader does not answer; possibly for a moment only."""


class Leader(Protocol):
    """One leader. Several threads may call at a time. Raises NoAnswer, TernError, CopyRefused."""

    name: str
    # The last entry that the leader had applied when it was found.
    applied_index: int

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the files to copy now."""

    def piece(self, wanted: Wanted) -> bytes:
        """Return the bytes of the piece, as they were sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Signer of the requests: the cluster key, a clock, and a source of nonces.
    The clock gives ms since 1970; a nonce has 32 hex digits and is never repeated.
    """

    key: bytes
    now_ms: Callable[[], int]
    nonce: Callable[[], str]


class LeaderClient:
    """Rebuild routes of one leading broker. Owner: one copy."""

    def __init__(self, node: BrokerNode, operator: Operator) -> None:
        self.name, self._operator = node.name, operator
        self.applied_index = int(node.status.get("applied_index", 0))
        self._group_id = str(node.status["group_id"])
        self._url = f"{'https' if node.is_secure else 'http'}://{node.http}"
        self._pool = BlockingPool(operator_context(node.data_dir) if node.is_secure else None)

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the files to copy now."""
        try:
            document = json.loads(self._get(REBUILD_MANIFEST_PATH)[0])
        except ValueError as error:
            raise CopyRefused(0, f"the manifest of {self.name} is no JSON") from error
        if not isinstance(document, dict):
            raise CopyRefused(0, f"the manifest of {self.name} is not an object")
        return document

    def piece(self, wanted: Wanted) -> bytes:
        """Return the bytes of the piece, checked against the checksum of the reply."""
        target = f"{REBUILD_FILES_PATH}/{wanted.name}?position={wanted.position}&size={wanted.size}"
        data, headers = self._get(target)
        if f"{crc32(data):08x}" != headers.get(HEADER_CRC32.lower()):
            raise CopyRefused(wanted.position, f"a piece of {wanted.name} was damaged on its way")
        return data

    def close(self) -> None:
        """Close the connections. No call may be running."""
        self._pool.close()

    def _get(self, target: str) -> tuple[bytes, Mapping[str, str]]:
        status, headers, content = self._exchange(target)
        if status == http.client.OK:
            return content, headers
        try:
            problem = json.loads(content)
            raise error_from(problem["code"], problem)
        except (ValueError, KeyError, TypeError) as error:
            raise NoAnswer(f"{self.name} answered {status}") from error

    def _exchange(self, target: str) -> tuple[int, Mapping[str, str], bytes]:
        request = PeerRequest(
            method="GET",
            target=target,
            node=OPERATOR,
            group_id=self._group_id,
            time_ms=self._operator.now_ms(),
            nonce=self._operator.nonce(),
        )
        connection = self._pool.take(self._url, REQUEST_TIMEOUT_S)
        try:
            connection.request("GET", target, headers={HEADER_PEER_PROOF: proof_header(self._operator.key, request)})
            reply = connection.getresponse()
            content = reply.read(REBUILD_REPLY_MAX_BYTES)
            if reply.read(1):
                raise http.client.HTTPException(f"an answer of more than {REBUILD_REPLY_MAX_BYTES} bytes")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoAnswer(f"{self.name} does not answer: {error or type(error).__name__}") from error
        self._pool.keep(self._url, connection)
        return reply.status, {name.lower(): value for name, value in reply.headers.items()}, content


class LeaderSearch:
    """Search for the current leader among *nodes*. Owner: one copy."""

    def __init__(self, nodes: list[BrokerNode], operator: Operator) -> None:
        self._nodes, self._operator = nodes, operator
        self._last: LeaderClient | None = None

    def __call__(self) -> Leader:
        """Return the leader that serves now.
        NoAnswer: there is none. CommandFailed: its release has no backups.
        """
        leader = leader_of(ask_again(self._nodes))
        if leader is None:
            raise NoAnswer(f"no broker of {self._nodes[0].broker_group} leads now")
        if not leader.status.get("group_id"):
            raise CommandFailed(
                "The broker is too old", f"{leader.name} does not report its group id: upgrade the brokers first."
            )
        self.close()
        self._last = LeaderClient(leader, self._operator)
        return self._last

    def close(self) -> None:
        """Close the connections to the leader found last."""
        if self._last is not None:
            self._last.close()
