"""A node without a log that it may use, in virtual time: tern_broker/node/rebuilder.py's conversation with the leader, over the simulated network.

The real RebuildSink writes, the real RebuildSource (behind `rebuild_offer`) answers. A request is lost with its way or its process, and
the copy goes on where it was, as the rebuilder's does. Owner: one process of one machine.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tern_store import CopyRefused, Genesis, RebuildSink
from tern_store.checksum import crc32
from tern_store.copies.sink import Wanted
from tern_store.files import is_lack
from tern_wire.errors import TernError
from tests.sim.machines.machine import DIRECTORY, Machine
from tests.sim.machines.process import Process

if TYPE_CHECKING:
    from tests.sim.machines.broker_node import BrokerNode, NodeConfig
    from tests.sim.machines.world import World

REQUEST_TIMEOUT_S = 2.0
PAUSE_FIRST_S, PAUSE_MAX_S = 0.25, 5.0
# So small that a copy takes many requests; as small is what may be left to Raft.
CHUNK_SIZE_BYTES = 24 << 10
GROWTH_LEFT_MAX_BYTES = 32 << 10
MANIFESTS_MAX = 8


class _NoAnswer(Exception):
    """The request or its answer is gone."""


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked of node *name*; the answer is what *ask* returns there."""

    name: str
    ask: Callable[["BrokerNode"], Any]


# Yields questions and pauses (seconds), is sent answers; ends when the copy is in place.
Steps = Generator[_Question | float, Any, None]


class Standby:
    """One copy. *done* is called in the process when the log is in place."""

    def __init__(
        self, world: "World", machine: Machine, process: Process, config: "NodeConfig", done: Callable[[], None]
    ) -> None:
        self._world, self._machine, self._process, self._done = world, machine, process, done
        group = Genesis(bytes.fromhex(config.group_id), tuple(config.members()), config.segment_size_bytes)
        self._sink = RebuildSink(
            DIRECTORY,
            group,
            machine.files,
            chunk_size_bytes=CHUNK_SIZE_BYTES,
            entry_size_max_bytes=config.limits.entry_size_max_bytes,
        )
        self._steps = self._run()
        self._number = 0

    def begin(self) -> None:
        """Start copying; the caller is an event of the process."""
        self._go_on(None)

    # What is done ------------------------------------------------------------------------------------------------
    def _run(self) -> Steps:
        pause_s = PAUSE_FIRST_S
        while True:
            before = self._sink.copied_bytes
            try:
                yield from self._copy_all()
            except (_NoAnswer, TernError, CopyRefused) as error:
                reason = f"{type(error).__name__} {error}"
            except OSError as error:
                if not is_lack(error):
                    raise
                reason = f"it lacks: {error}"
            else:
                self._sink.close()
                return
            self._world.say(f"{self._machine.name} cannot copy now: {reason}")
            if self._sink.copied_bytes > before:
                pause_s = PAUSE_FIRST_S
            yield pause_s
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    def _copy_all(self) -> Steps:
        sink = self._sink
        leader = yield from self._find_leader()
        for number in range(MANIFESTS_MAX):
            document = yield _Question(leader, lambda node: node.offer.manifest())
            sink.begin(document)
            is_last = number > 0 and sink.total_bytes - sink.copied_bytes <= GROWTH_LEFT_MAX_BYTES
            yield from self._copy(leader)
            if is_last:
                break
        sink.finish()

    def _copy(self, leader: str) -> Steps:
        while (piece := self._sink.wanted()) is not None:
            data, crc = yield _Question(leader, partial(_read, piece=piece))
            if crc32(data) != crc:
                raise CopyRefused(piece.position, f"a piece of {piece.name} was damaged on its way")
            self._sink.write(piece.name, piece.position, data)

    def _find_leader(self) -> Generator[_Question | float, Any, str]:
        for name in self._world.names:
            if name != self._machine.name:
                try:
                    is_serving = yield _Question(name, lambda node: node.engine.raft.is_serving)
                except _NoAnswer:
                    continue
                if is_serving:
                    return name
        raise _NoAnswer("nobody serves")

    # How it goes on ----------------------------------------------------------------------------------------------
    def _go_on(self, answer: Any) -> None:
        steps = self._steps
        try:
            wanted = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
        except StopIteration:
            self._done()
            return
        except OSError as error:
            self._world.say(f"{self._machine.name}: the disk does not keep the copy: {error}")
            self._process.end(self._world.exit_fsync_failed)
        if isinstance(wanted, float):
            self._process.call_later(wanted, self._go_on, None)
        else:
            self._ask(wanted)

    def _ask(self, question: _Question) -> None:
        world, me = self._world, self._machine.name
        self._number += 1
        number = self._number

        def told(answer: Any) -> None:
            if number == self._number:
                self._number += 1
                self._process.run(self._go_on, answer)

        def come_back(answer: Any) -> None:
            if not world.network.is_cut(question.name, me):
                told(answer)

        def work(node: "BrokerNode") -> None:
            try:
                answer = question.ask(node)
            except (TernError, ValueError, FileNotFoundError) as error:
                answer = _NoAnswer(f"{type(error).__name__} {error}")
            world.scheduler.after(world.network.latency_s(), come_back, answer)

        def arrive() -> None:
            node = world.nodes.get(question.name)
            if node is not None and not world.network.is_cut(me, question.name):
                node.process.run(work, node)

        world.scheduler.after(REQUEST_TIMEOUT_S, told, _NoAnswer("no answer in time"))
        world.scheduler.after(world.network.latency_s(), arrive)


def _read(node: "BrokerNode", piece: Wanted) -> tuple[bytes, int]:
    data = node.offer.read(piece.name, piece.position, piece.size)
    return data, crc32(data)
