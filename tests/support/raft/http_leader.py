"""A leader whose log is copied over HTTP from a real door, and a node of its group that copies it."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tern_broker.config import BrokerConfig
from tern_broker.node.http_loop import HttpLoop
from tern_broker.node.rebuild_offer import RebuildOffer
from tern_broker.node.rebuilder import rebuild
from tern_service import open_socket
from tern_store import EntryKind, Genesis, RebuildSource, Store
from tern_wire.errors import RebuildNotHere

KEY = bytes(range(32))
GROUP = Genesis(b"g" * 16, ("a", "b", "c"), 16 << 20)
DEADLINE_S = 60.0


def config_of(node: str, directory: Path, http_port: int = 0, ports: dict[str, int] | None = None) -> BrokerConfig:
    """One of three nodes; *ports*: of Raft, by name."""
    ports = {"a": 1001, "b": 1011, "c": 1021} | (ports or {})
    return BrokerConfig(
        node=node,
        peers=tuple(f"{name}=127.0.0.1:{port}" for name, port in ports.items()),
        raft_port=ports[node],
        http_port=http_port,
        data_dir=directory,
        cluster_key_file=directory / "key",
        group_id=GROUP.group_id.hex(),
        segment_size_bytes=GROUP.segment_size_bytes,
    )


class Leader:
    """A store with entries behind a real HTTP door. Owner: one test; its loop answers."""

    def __init__(self, directory: Path) -> None:
        self.store = Store.open(directory / "a", group=GROUP)
        self.source = RebuildSource(self.store)
        self.grow(45)
        self.is_serving = True
        # Called before each read; what it returns, if anything, is sent instead.
        self.on_read: Callable[[str, int, int], bytes | None] = lambda *_: None
        self.reads = 0
        self.sock = open_socket("127.0.0.1", 0, "--http-port")
        self.url = f"http://127.0.0.1:{self.sock.getsockname()[1]}"
        self.config = config_of("a", directory)
        self.http = HttpLoop(
            self.config,
            self.sock,
            status=lambda: {"node": "a", "role": "leader", "serving": self.is_serving, "leader": "a"},
            trim=lambda: {"asked": False, "leader": ""},
            registration=None,
            rebuild=RebuildOffer(key=KEY, manifest=self.manifest, read=self.read),
        )

    def grow(self, entries: int) -> None:
        log = self.store.log
        for _ in range(entries):
            log.append(EntryKind.COMMANDS, log.end_index + 1, 1, [log.end_index.to_bytes(8, "big") * 50_000], 1)
        job = log.take_sync()
        assert job is not None
        job.run()
        log.mark_synced(job)

    def manifest(self) -> dict[str, Any]:
        if not self.is_serving:
            raise RebuildNotHere(node="a", leader="")
        return self.source.manifest(self.store.log.end_index)

    def read(self, name: str, position: int, size: int) -> bytes:
        self.reads += 1
        return self.on_read(name, position, size) or self.source.read(name, position, size)


def with_leader(tmp_path: Path, work: Callable[[Leader], Coroutine[Any, Any, None]]) -> None:
    """Run *work* in a loop that answers for the leader."""

    async def main() -> None:
        leader = Leader(tmp_path)
        leader.http.start()
        try:
            await asyncio.wait_for(work(leader), DEADLINE_S)
        finally:
            await asyncio.to_thread(leader.http.stop)
            leader.store.close()

    asyncio.run(main())


async def copy(
    leader: Leader, directory: Path, *, key: bytes = KEY, stop: asyncio.Event | None = None, **more: Any
) -> bool:
    """As node b, which knows of a leader and of one that is down."""
    return await rebuild(
        config_of("b", directory),
        key=key,
        peers_http=lambda: {"a": leader.url, "c": "http://127.0.0.1:9"},
        directory=directory / "b",
        stop=stop or asyncio.Event(),
        rate_max_bytes_per_s=1 << 40,
        **more,
    )


def require_equal(leader: Leader, directory: Path) -> None:
    """What was copied opens as the leader's log."""
    copied = Store.open(directory / "b", group=GROUP, may_begin=False)
    log = leader.store.log
    assert (copied.log.end_index, copied.log.was_torn) == (log.end_index, False)
    for index in range(1, log.end_index + 1):
        assert copied.log.entry(index).raw == log.entry(index).raw
    copied.close()
