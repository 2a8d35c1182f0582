"""What must not happen ends the process instead of going on half done."""

import asyncio
import random
import socket
from pathlib import Path

from tern_raft import PeerLinks, ProcessRuntime, RaftConfig, RaftNode
from tern_store import CommitLog, StoredEntry


def test_an_exception_in_apply_ends_the_process_before_the_entry_could_be_applied_again(tmp_path: Path) -> None:
    """Stock pysyncobj swallows it and applies the same entry at every tick (finding L1)."""
    fatal: list[Exception] = []
    seen: list[int] = []

    def apply(entry: StoredEntry) -> None:
        seen.append(entry.index)
        raise ValueError("a bug in apply")

    async def run() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        config = RaftConfig(
            node="a-0",
            members={"a-0": ("127.0.0.1", port)},
            group_id=b"g" * 16,
            directory=tmp_path,
            bootstrap=True,
            segment_size_bytes=1 << 20,
        )
        votes = RaftNode.open_votes(config, incarnation=bytes(16))
        log = CommitLog.open(tmp_path, group=config.genesis())
        stopped = asyncio.Event()

        def on_fatal(error: Exception) -> None:
            fatal.append(error)
            node._stopped = True  # the process would be gone
            stopped.set()

        runtime = ProcessRuntime()
        disk = runtime.open_disk(lambda error: runtime.end(1))
        links = PeerLinks(
            "a-0", config.members, key=bytes(32), group_id="ab" * 16, listen="127.0.0.1", rng=random.Random(1)
        )
        node = RaftNode(
            config,
            runtime=runtime,
            links=links,
            log_=log,
            votes=votes,
            disk=disk,
            applied=1,
            apply=apply,
            on_role=lambda: None,
            on_behind=lambda: None,
            on_fatal=on_fatal,
        )
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await links.start(node.transport)
        node.begin()
        async with asyncio.timeout(30):
            await stopped.wait()
        node.finish()
        await links.stop()
        disk.stop()
        log.close()

    asyncio.run(run())
    assert [str(error) for error in fatal] == ["a bug in apply"]
    assert seen == [2], "the no-op of the first term, once"
