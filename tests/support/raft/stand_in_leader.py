"""A broker that leads and offers its log, and its name server, behind one real socket; what it answers instead, a test says."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tern_store import RebuildSource, Store
from tern_store.checksum import crc32
from tern_wire.errors import PeerProofRefused
from tern_wire.paths import BROKER_PATH, HEADER_CRC32, HEADER_PEER_PROOF, REBUILD_FILES_PATH, REBUILD_MANIFEST_PATH
from tern_wire.principals.peer_proof import PeerProofs
from tests.support.client.scripted_proxy import Asked, Reply, blocking_proxy, refused, said
from tests.support.files.node_directory import GROUP, LIMITS, filled

KEY = bytes(range(32))
NODE = "broker-a-0"


class StandInLeader:
    """A directory with some of everything, served. Owner: one test; its answers are made on another thread."""

    def __init__(self, directory: Path) -> None:
        filled(directory)
        self.directory = directory
        self.store = Store.open(directory, group=GROUP, limits=LIMITS, may_begin=False)
        self._source = RebuildSource(self.store)
        self._proofs = PeerProofs(KEY, GROUP.group_id.hex(), frozenset({NODE, "operator"}))
        # How far the log is applied: it "grows" when a test says so.
        self.applied_index = self.store.log.end_index
        # Asked before each piece is sent: its number, then its bytes; what it returns, if anything, is answered instead.
        self.instead: Callable[[int, bytes], Reply | None] = lambda number, data: None
        self.pieces = 0
        self.serving = True
        # So many manifests end before what is applied.
        self.synced_late = 0
        self.url = ""

    def answer(self, asked: Asked) -> Reply:
        """What the name server, or the broker, says."""
        address = urlsplit(asked.path)
        if address.path == BROKER_PATH:
            return said(self.status())
        if not address.path.startswith((REBUILD_MANIFEST_PATH, REBUILD_FILES_PATH)):
            node = {"link": "127.0.0.1:1", "http": self.url.removeprefix("http://")}
            return said({"broker_groups": {"broker-a": {"leader": NODE, "term": 1, "nodes": {NODE: node}}}})
        header = asked.headers.get(HEADER_PEER_PROOF.lower(), "")
        try:
            self._proofs.require(header, "GET", asked.path, time.time_ns() // 1_000_000)
        except PeerProofRefused as error:
            return refused(error)
        if address.path == REBUILD_MANIFEST_PATH:
            late = min(self.synced_late, 1)
            self.synced_late -= late
            return said(self._source.manifest(self.applied_index - late))
        return self._piece(address.path.rpartition("/")[2], parse_qs(address.query))

    def status(self) -> dict[str, Any]:
        """As GET /v1/broker."""
        facts = {"node": NODE, "cluster": "tern", "broker_group": "broker-a", "group_id": GROUP.group_id.hex()}
        return facts | {
            "role": "leader",
            "serving": self.serving,
            "term": 1,
            "peers": [],
            "applied_index": self.applied_index,
        }

    def _piece(self, name: str, query: dict[str, list[str]]) -> Reply:
        self.pieces += 1
        data = self._source.read(name, int(query["position"][0]), int(query["size"][0]))
        headers = {"Content-Type": "application/octet-stream", HEADER_CRC32: f"{crc32(data):08x}"}
        return self.instead(self.pieces, data) or Reply(body=data, headers=headers)


@contextmanager
def standing_in(directory: Path) -> Iterator[StandInLeader]:
    """One that listens."""
    leader = StandInLeader(directory)
    with blocking_proxy(leader.answer) as proxy:
        leader.url = proxy.url
        yield leader
    leader.store.close()
