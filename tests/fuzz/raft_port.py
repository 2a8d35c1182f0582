"""`python -m tests.fuzz.raft_port --frames 1000000 --seed 1`: hostile frames at the Raft port of one real node, without sockets.

Half of the frames come before the handshake is over, on either side of it; half from a peer that knows the key and is no longer
sane. After each thousand the group's other members behave: the node must follow a leader, and lead, commit and apply, as if nothing
had been. What fails: any exception but a refusal, a stranger let in, a node that would end, numbers that no group could have counted
to on disk, memory that grows. The seed and the number of the frame say what happened; the same seed does it again.
"""

import argparse
import asyncio
import gc
import logging
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tern_raft.transport import TERM_STEP_MAX
from tern_store import CommitLog, EntryKind
from tern_store.log.entry import encode_entry
from tests.fuzz.mutations import begins_same, bend, deep, entries_near, message_near, packed, twist
from tests.fuzz.victim import PEERS, Unsynced, Victim, Wire, greeting_frame, raft_frame, still_clocks

WORKS_EVERY_FRAMES = 1_000
# What a run may hold more in its last quarter than in its first, by the median: the log's index, and what the allocator keeps.
GROWTH_MAX_BYTES = 12 << 20


@dataclass(slots=True)
class Report:
    """What a run did."""

    frames: int = 0
    worked: int = 0
    # Frames after the handshake that met a leader.
    led: int = 0
    grown_bytes: int = 0
    seconds: float = 0.0
    refusals: dict[str, int] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)


class Fuzz:
    """One run against one victim."""

    def __init__(self, victim: Victim, rng: random.Random) -> None:
        self._victim, self._rng = victim, rng
        self.report = Report()
        # Bytes of good handshakes that are over.
        self._recorded: list[list[bytes]] = []

    # Before the handshake is over --------------------------------------------------------------------------------
    async def greet(self) -> None:
        """A handshake in which one frame is not as it should be, or is another's."""
        victim, rng = self._victim, self._rng
        if rng.random() < 0.3:
            await self._answer_dialler()
            return
        wire = victim.accept()
        is_stranger = rng.random() < 0.3
        stranger = rng.choice(
            ({"name": "n-9"}, {"name": "n-0"}, {"role": "proxy"}, {"group_id": "other"}, {"key": bytes(32)})
        )
        greeting = victim.client(**({"name": rng.choice(PEERS)} | (stranger if is_stranger else {})))
        hello = greeting_frame(greeting.opening().code, greeting.opening().body)
        if rng.random() < 0.15 and self._recorded:
            await self._replay(wire, hello)
            return
        is_bent_first = rng.random() < (0.3 if is_stranger else 0.6)
        sent = bend(hello, rng) if is_bent_first else hello
        self._feed(wire, sent)
        await asyncio.sleep(0)
        answers = wire.said()
        if wire.link.closed or not answers:
            self._must_be_out(wire, False)
            return
        if is_bent_first and not begins_same(sent, hello):
            # The server has heard another HELLO than ours: its challenge cannot be answered with what we know.
            self._feed(wire, greeting_frame(0x7F03, rng.randbytes(32)))
            self._must_be_out(wire, False)
            return
        try:
            proof = greeting.receive(answers[0])
        except Exception:
            proof = None  # another key: it cannot know
        good = (
            greeting_frame(proof.code, proof.body) if proof is not None else greeting_frame(0x7F03, rng.randbytes(32))
        )
        bent = good if is_stranger else bend(good, rng)
        self._feed(wire, bent)
        await asyncio.sleep(0)
        assert not is_stranger or wire.link.closed or sent != hello, f"{stranger} has no business here, and stays"
        self._must_be_out(wire, is_stranger or (proof is not None and begins_same(bent, good)))
        if proof is not None and len(self._recorded) < 50:
            self._recorded.append([hello, good])

    async def _replay(self, wire: Wire, hello: bytes) -> None:
        """A recorded session again, whole or with a HELLO of today."""
        old_hello, old_proof = self._rng.choice(self._recorded)
        self._feed(wire, self._rng.choice((old_hello, hello)))
        await asyncio.sleep(0)
        self._feed(wire, old_proof)
        self.report.kinds["replayed"] += 1
        self._must_be_out(wire, False)

    async def _answer_dialler(self) -> None:
        """This node has dialled, and who answers is not what it should be."""
        victim, rng = self._victim, self._rng
        wire, answerer = victim.dial(), victim.answerer()
        await asyncio.sleep(0)
        challenge = answerer.receive(wire.said()[0])
        good = greeting_frame(challenge.code, challenge.body)
        bent = bend(good, rng)
        self._feed(wire, bent)
        await asyncio.sleep(0)
        if not begins_same(bent, good):
            self._feed(wire, greeting_frame(0x7F04, b""))
            self._must_be_out(wire, False)
        wire.close()
        await asyncio.sleep(0)

    def _must_be_out(self, wire: Wire, may_be_in: bool) -> None:
        assert may_be_in or not wire.link.ready, "a stranger was let in"
        wire.close()

    # After it ----------------------------------------------------------------------------------------------------
    async def speak(self) -> None:
        """A member whose key is good and whose mind is not says something."""
        victim, rng = self._victim, self._rng
        name = rng.choice(PEERS)
        wire = await victim.join(name)
        node, log = victim.node, victim.log
        is_calm = self.report.worked % 2 == 1
        message = message_near(node.term, log.end_index, log.end_term, rng, is_calm=is_calm)
        kind = message["type"]
        raw = b""
        if kind == "append_entries" and rng.random() < 0.6:
            if rng.random() < 0.7:
                message |= {"term": node.term, "prevLogIdx": log.end_index, "prevLogTerm": log.end_term}
            raw = b"".join(entry.raw for entry in entries_near(log, message["term"], rng))
        chance = rng.random()
        if chance < 0.35:
            data = raft_frame(packed(message, raw))
        elif chance < 0.6:
            data = raft_frame(packed(twist(message, rng), raw))
        elif chance < 0.7:
            data = raft_frame(packed(message, bend(raw, rng) if raw else rng.randbytes(20)))
        elif chance < 0.95:
            data = bend(raft_frame(packed(message, raw)), rng)
        else:
            data = raft_frame(deep(rng) if rng.random() < 0.5 else rng.randbytes(rng.randrange(1, 300)))
        self.report.kinds[kind] += 1
        self._feed(wire, data)
        if wire.link.closed or node.is_leader or rng.random() < 0.05:
            # A leader that is asked to sends a lot again; nobody reads it, but it must not wait in memory.
            await asyncio.sleep(0)
            for other in victim.wires.values():
                other.said()
        if rng.random() < (0.1 if is_calm else 0.02):
            # A leader that goes on leading must have had the time to send what it was asked for.
            victim.runtime.turn(0.11 if is_calm else rng.random())
        self.report.led += node.is_leader
        assert node.applied_index <= node.commit_index <= log.end_index, "more is committed than there is"

    def _feed(self, wire: Wire, data: bytes) -> None:
        """All at once, or in two pieces: how bytes are cut must not matter."""
        self.report.frames += 1
        cut = self._rng.randrange(len(data) + 1) if self._rng.random() < 0.3 else 0
        for piece in (data[:cut], data[cut:]):
            if piece:
                self._victim.feed(wire, piece)

    # In between --------------------------------------------------------------------------------------------------
    async def must_work(self) -> None:
        """The others behave: the node follows, then leads."""
        for name in PEERS:
            await self._victim.leave(name)
        for name in PEERS:
            await self._victim.join(name)
        await self._must_follow()
        await self._must_lead()
        for name in PEERS:
            await self._victim.leave(name)
        self.report.worked += 1

    async def _must_follow(self) -> None:
        """A leader of a new term appends an entry; the node acknowledges it."""
        victim, log = self._victim, self._victim.log
        term = victim.node.term + 1
        entry = encode_entry(
            EntryKind.COMMANDS,
            log.end_index + 1,
            term,
            [b"honest"],
            1,
            position=log.end_position,
            previous_crc=log.mark(log.end_index).crc,
        )
        append = {"type": "append_entries", "term": term, "commit_index": victim.node.commit_index, "seq": 1}
        where = {"prevLogIdx": log.end_index, "prevLogTerm": log.end_term}
        victim.say("n-1", append | where | {"entries": [(entry, entry.index, entry.term)]})
        victim.runtime.turn()
        acks = await victim.heard("n-1", "next_node_idx")
        assert any(ack["success"] and ack["next_node_idx"] == entry.index + 1 for ack in acks), (acks, entry.index)

    async def _must_lead(self) -> None:
        """The leader is gone, both others would vote for the node; it leads, and what it proposes is applied."""
        victim, node = self._victim, self._victim.node
        await victim.leave("n-1")
        await victim.join("n-1")
        for _ in range(200):
            victim.runtime.turn(0.05)
            for name in PEERS:
                await asyncio.sleep(0)
                for message in await self._asked(name):
                    victim.say(name, message)
            if node.is_serving:
                break
        assert node.is_serving, (node.term, node.standing, victim.log.end_index)
        entry = node.propose([b"mine"], 1)
        for _ in range(200):
            victim.runtime.turn(0.01)
            for name in PEERS:
                for message in await self._asked(name):
                    victim.say(name, message)
            if node.applied_index >= entry.index:
                break
        assert node.applied_index >= entry.index, "what both others have is committed"

    async def _asked(self, name: str) -> list[dict[str, object]]:
        """What an honest peer answers to all that the node has sent it."""
        answers: list[dict[str, object]] = []
        await asyncio.sleep(0)
        for frame in self._victim.wires[name].said():
            message = self._victim.decode(frame)
            term = message.get("term", 0)
            if message["type"] == "pre_vote":
                answers.append({"type": "pre_vote_granted", "term": term})
            elif message["type"] == "request_vote":
                answers.append({"type": "response_vote", "term": term})
            elif message["type"] == "append_entries":
                end = message["prevLogIdx"] + len(message["entries"])
                ack = {"next_node_idx": end + 1, "reset": False, "success": True, "seq": message["seq"], "disk": 0}
                answers.append({"type": "next_node_idx", "term": term, **ack})
        return answers


async def _run(directory: Path, frames: int, seed: int) -> Report:
    rng = random.Random(seed)
    random.seed(seed)
    victim = Victim(directory, rng)
    began_s = time.monotonic()
    with still_clocks(victim.runtime):
        fuzz = Fuzz(victim, rng)
        report = fuzz.report
        await fuzz.must_work()
        resident: list[int] = []
        works_at = WORKS_EVERY_FRAMES
        while report.frames < frames:
            await (fuzz.greet() if rng.random() < 0.5 else fuzz.speak())
            if report.frames >= works_at:
                works_at += WORKS_EVERY_FRAMES
                await fuzz.must_work()
                resident.append(_resident_bytes())
        await fuzz.must_work()
        # The median: a frame that claims 8 MiB and never comes is held until its link is closed, and once in a while the
        # allocator gives a few MiB back and takes them again, so neither the highest nor the lowest says anything.
        quarter = max(1, len(resident) // 4)
        report.grown_bytes = int(statistics.median(resident[-quarter:]) - statistics.median(resident[:quarter]))
        assert victim.node.term <= report.frames * TERM_STEP_MAX, "a term that nobody could have counted to"
        victim.close()
        again = CommitLog.open(directory, group=victim.log_group, files=Unsynced())
        assert again.end_index == victim.log.end_index, "the log that was written is not the log that is read"
        again.close()
    report.refusals, report.seconds = victim.links.refusals(), time.monotonic() - began_s
    return report


def run(frames: int, seed: int) -> Report:
    """Throw *frames* frames; AssertionError, or whatever broke, when the node did not bear it."""
    log = logging.getLogger("tern_raft"), logging.getLogger("tern_remoting")
    levels = [logger.level for logger in log]
    for logger in log:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            report = asyncio.run(_run(Path(folder), frames, seed))
    except BaseException as failure:
        failure.add_note(f"again: python -m tests.fuzz.raft_port --frames {frames} --seed {seed}")
        raise
    finally:
        for logger, level in zip(log, levels, strict=True):
            logger.setLevel(level)
    if frames >= 100_000:
        assert report.grown_bytes < GROWTH_MAX_BYTES, (
            f"{report.grown_bytes:,} bytes more than in the first quarter; seed {seed}"
        )
    return report


def _resident_bytes() -> int:
    gc.collect()
    with Path("/proc/self/status").open() as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon:")) * 1024


def main() -> int:
    """Print what was refused and how the node bore it."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.raft_port", description=__doc__)
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report = run(options.frames, options.seed)
    print(
        f"{report.frames:,} frames of seed {options.seed} in {report.seconds:.1f} s; the node worked {report.worked} times in between"
    )
    print(f"{report.led:,} met a leader")
    print(f"memory grew by {report.grown_bytes / 1e6:.1f} MB; refused: {report.refusals}")
    print(f"sent: {dict(report.kinds)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
