"""`python -m loadtest.bench.raft.node NODE DIRECTORY PORT PORT PORT`: a member of a Raft group.

It has a real log, with nothing to apply: the parts of a broker below its state machine, assembled
in the same way. Links, log, votes, disk thread, space ahead of the log.
"""

import asyncio
import os
import random
import sys
from pathlib import Path
from typing import NoReturn

import uvloop

from loadtest.bench.raft.load import obey, say
from tern_broker.upkeep.allocator import Allocator
from tern_raft import EXIT_BROKEN, EXIT_FSYNC_FAILED, PeerLinks, ProcessRuntime, RaftConfig, RaftNode
from tern_store import CommitLog, StoredEntry
from tern_wire.link.commands import STATE_MACHINE_VERSION

GROUP_ID = bytes(16)
KEY = bytes(range(32))
SEGMENT_SIZE_BYTES = 256 << 20
# As in the broker: the disk thread needs the interpreter for a moment after each sync.
SWITCH_INTERVAL_S = 0.0005


class _Member:
    """One node and the payloads that wait for their entries. Owner: the loop."""

    def __init__(self, number: int, folder: Path, ports: list[int]) -> None:
        names = [f"node-{at}" for at in range(len(ports))]
        config = RaftConfig(
            node=names[number],
            members={name: ("127.0.0.1", port) for name, port in zip(names, ports, strict=True)},
            group_id=GROUP_ID,
            directory=folder / names[number],
            bootstrap=True,
            segment_size_bytes=SEGMENT_SIZE_BYTES,
            version=STATE_MACHINE_VERSION,
        )
        rng = random.Random(number)
        runtime = ProcessRuntime()
        self.links = PeerLinks(
            config.node, config.members, key=KEY, group_id=GROUP_ID.hex(), listen="127.0.0.1", rng=rng
        )
        votes = RaftNode.open_votes(config, incarnation=os.urandom(16))
        log = CommitLog.open(config.directory, group=config.genesis())
        disk = runtime.open_disk(_disk_failed)
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._allocator, self._monotonic = Allocator(log, disk), runtime.monotonic
        self._said_leads = False
        self.node = RaftNode(
            config,
            runtime=runtime,
            links=self.links,
            log_=log,
            votes=votes,
            disk=disk,
            applied=1,
            apply=self._apply,
            on_role=lambda: None,
            on_behind=lambda: _broken(RuntimeError("this node is behind the leader's log")),
            on_fatal=_broken,
            on_clock=self._clock,
        )

    async def submit(self, payload: bytes) -> None:
        """Replicate one entry."""
        entry = self.node.propose([payload], STATE_MACHINE_VERSION)
        done = self._waiting[entry.index] = asyncio.get_running_loop().create_future()
        await done

    def _apply(self, entry: StoredEntry) -> None:
        done = self._waiting.pop(entry.index, None)
        if done is not None:
            done.set_result(None)

    def _clock(self) -> None:
        self._allocator.step(self._monotonic())
        if self.node.is_serving and not self._said_leads:
            self._said_leads = True
            say({"leads": True})


def _disk_failed(error: OSError) -> NoReturn:
    print(error, file=sys.stderr, flush=True)
    os._exit(EXIT_FSYNC_FAILED)


def _broken(error: Exception) -> NoReturn:
    print(repr(error), file=sys.stderr, flush=True)
    os._exit(EXIT_BROKEN)


async def main() -> None:
    """Take part in the group until the parent closes our standard input."""
    member = _Member(int(sys.argv[1]), Path(sys.argv[2]), [int(port) for port in sys.argv[3:]])
    await member.links.start(member.node.transport)
    member.node.begin()
    await obey(lambda: member.node.is_serving, member.submit)


if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    uvloop.run(main())
