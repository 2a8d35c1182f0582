"""A broker of one node with what the leader does about dead letters: burying and redriving, on a real store."""

from typing import Any

from tern_broker.reading.dead_letter_reader import DeadLetterReader
from tern_broker.upkeep.dead_letter_mover import DeadLetterMover
from tern_broker.upkeep.redriver import Redriver
from tern_wire.dead_letters import Note, Selection
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import NACK, SETTLED
from tests.support.broker.single_broker import SingleBroker
from tests.support.files.faulty_files import FaultyFiles

HOST = b"\x7f\x00\x00\x01\x00\x00\x00\x01"


class DeadLetterBroker:
    """A broker of one node with what the leader does about dead letters; nothing happens but by `work`."""

    def __init__(self, files: FaultyFiles | None = None) -> None:
        self.files = files or FaultyFiles()
        self.open()

    def open(self) -> None:
        """Start on what the files hold."""
        broker = self.broker = SingleBroker(self.files)
        self.now_s = 0.0
        self.reader = DeadLetterReader(broker.store, lambda: broker.state, host=HOST)
        parts: dict[str, Any] = {"state": lambda: broker.state, "monotonic": lambda: self.now_s}
        self.mover = DeadLetterMover(broker.proposer, self.reader, is_serving=lambda: True, **parts)
        self.redriver = Redriver(broker.proposer, self.reader, **parts)

    def work(self, steps: int = 8, seconds: float = 0.1) -> None:
        """The leader's clock goes round."""
        for _ in range(steps):
            self.now_s += seconds
            self.mover.step(self.now_s)
            self.redriver.step(self.now_s)
            self.broker.run()

    def create(self, *, attempts: int = 1) -> tuple[int, int]:
        """Topic t and group g; their ids."""
        topic_id, group_id = self.broker.create()
        self.broker.ask(
            CommandKind.ALTER_GROUP, encode_msgpack({"mode": "alter", "group": "g", "max_attempts": attempts})
        )
        return topic_id, group_id

    def nack(self, count: int, group: str = "g") -> list[tuple[int, int]]:
        """Receive and nack; (queue, offset) of what was received."""
        found = self.broker.receive(group=group, messages_max=count)
        rows = [(*row[:3], NACK, *row[4:6], -1) for row, _ in found]
        assert not rows or set(self.broker.ack(*rows)) == {SETTLED}
        return [(row[2], row[4]) for row, _ in found]

    def reject(self, reason: str, count: int = 1) -> None:
        """Receive and reject."""
        rows = [[*row[:3], row[4], row[5], reason] for row, _ in self.broker.receive(messages_max=count)]
        assert set(self.broker.ask(CommandKind.DEAD_LETTER, encode_msgpack({"rows": rows}))) == {SETTLED}

    def notes(self, group_id: int) -> list[Note]:
        """What all dead letters of the group say."""
        letters = self.reader.letters(group_id, 0, 10_000)
        assert all(letter.note is not None for letter in letters)
        return [letter.note for letter in letters if letter.note is not None]

    def bodies(self, group_id: int) -> list[bytes]:
        """The originals."""
        letters = self.reader.letters(group_id, 0, 10_000)
        return [self.broker.bodies(letter.original)[0] for letter in letters]

    def start(self, task: str, *, rate: int = 0, dry_run: bool = False, group: str = "g", **selection: Any) -> Any:
        """Begin a redrive; what is known of it then."""
        packed = Selection(**selection).pack()
        facts = {"op": "start", "task": task, "group": group, "rate": rate, "dry_run": dry_run, "selection": packed}
        return self.broker.ask(CommandKind.REDRIVE, encode_msgpack(facts))

    def task(self, task: str) -> dict[str, Any]:
        """How it is going."""
        return self.broker.state.redriving.tasks[task].pack()

    def task_counts(self, task: str) -> tuple[str, int, int, int]:
        """State, redriven, failed, skipped."""
        found = self.task(task)
        return found["state"], found["redriven"], found["failed"], found["skipped"]
