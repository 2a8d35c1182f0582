"""The outbox against the mesh: relays that are cancelled and begin again, the search by key, and the examples of its docstrings."""

import asyncio
import inspect
from collections import defaultdict
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

import tern_client.outbox
from tern_client import BlockingAdmin, BlockingConsumer, BlockingPullConsumer, MemoryOffsets
from tern_client.outbox import Outbox, Relay
from tern_client.outbox.batches import SUSPECT_AFTER_MS
from tests.mesh.sdk.test_examples import check, prepare
from tests.support.client.examples import examples_of
from tests.support.loops import eventually
from tests.support.mesh.mesh import Mesh

ROWS, GROUPS = 500, 20
PROGRAMS = [
    pytest.param(program, f"-{kind.__name__}-outbox", id=kind.__name__)
    for kind in (getattr(tern_client.outbox, name) for name in tern_client.outbox.__all__)
    if inspect.isclass(kind)
    for program in examples_of(kind.__doc__)
]


class Killed(BaseException):
    """The process of a relay ends."""


def test_every_public_class_of_the_outbox_has_an_example() -> None:
    """So that none is missing below."""
    assert len(PROGRAMS) == len(tern_client.outbox.__all__)


def outbox_in(directory: Path) -> Outbox:
    """An outbox in a file of its own."""
    made = Outbox(create_engine(f"sqlite:///{directory / 'shop.db'}"))
    made.create()
    return made


def test_rows_of_many_groups_arrive_once_and_in_order_while_relays_come_and_go(mesh: Mesh, tmp_path: Path) -> None:
    """Two relays; the one that sends is cancelled in the middle, and another begins in its place."""
    mesh.create("outbox-orders", queues=4)
    outbox = outbox_in(tmp_path)
    engine = outbox.database._engine
    both = [mesh.endpoint, f"http://127.0.0.1:{mesh.port_base + 1}"]

    def place(numbers: range) -> None:
        with Session(engine) as session, session.begin():
            for number in numbers:
                outbox.add(session, "outbox-orders", b"%d" % number, message_group=f"customer-{number % GROUPS}")

    async def main() -> None:
        relays = [Relay(outbox, both, batch_rows=20, lease="1s", poll_interval="20ms") for _ in range(3)]
        running = [asyncio.create_task(relay.run()) for relay in relays[:2]]
        place(range(ROWS // 2))
        await eventually(lambda: sum(relay.counts.sent for relay in relays) >= ROWS // 4, "a quarter is sent", 60)
        at_work = max(range(2), key=lambda at: relays[at].counts.sent)
        running[at_work].cancel()
        await asyncio.gather(running[at_work], return_exceptions=True)
        running[at_work] = asyncio.create_task(relays[2].run())
        place(range(ROWS // 2, ROWS))
        await eventually(lambda: not outbox.backlog().waiting, "all are sent", 60)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    asyncio.run(main())
    assert outbox.failed() == []
    found: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    with BlockingPullConsumer(mesh.endpoint, "outbox-orders", offsets=MemoryOffsets()) as consumer:
        for message in consumer.until_idle(1_000):
            number = int(message.body)
            found[f"customer-{number % GROUPS}"].append((message.queue, message.offset, number))
    for at in range(GROUPS):
        rows = sorted(found[f"customer-{at}"])
        assert [number for _, _, number in rows] == list(range(at, ROWS, GROUPS))
        assert len({queue for queue, _, _ in rows}) == 1


def test_a_row_whose_attempt_is_old_is_found_at_the_mesh_and_not_sent_again(mesh: Mesh, tmp_path: Path) -> None:
    """Also one that waits for its delivery time. The relay died behind the answer, and nobody relayed for a long time."""
    mesh.create("outbox-late", queues=2)
    outbox = outbox_in(tmp_path)
    engine = outbox.database._engine
    with Session(engine) as session, session.begin():
        outbox.add(session, "outbox-late", b"now")
        outbox.add(session, "outbox-late", b"later", delay="1h")

    def die(point: str) -> None:
        if point == "sent":
            raise Killed

    with pytest.raises(Killed):
        asyncio.run(Relay(outbox, mesh.endpoint, watch=die).drain())
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE ternmq_outbox SET attempted_at = attempted_at - {SUSPECT_AFTER_MS + 1_000}"))
        # A row that was marked, and never sent.
        outbox.add(connection, "outbox-late", b"never sent")
        connection.execute(text("UPDATE ternmq_outbox SET attempted_at = 1 WHERE attempted_at IS NULL"))
    counts = asyncio.run(Relay(outbox, mesh.endpoint, lease="100ms").drain())
    assert (counts.searched, counts.found, counts.sent) == (3, 2, 1)
    with BlockingConsumer(mesh.endpoint, "outbox-late", "outbox-late") as consumer:
        bodies = []
        for message in consumer.until_idle(1_000):
            bodies.append(message.body)
            consumer.ack(message)
    assert sorted(bodies) == [b"never sent", b"now"]
    with BlockingAdmin(mesh.endpoint) as admin:
        assert len(admin.scheduled("outbox-late").messages) == 1


@pytest.mark.calm
@pytest.mark.parametrize("program, suffix", PROGRAMS)
def test_the_example_of_a_class_prints_what_it_shows(
    mesh: Mesh, program: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of the SDK's other classes; its database is in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    prepare(mesh, suffix)
    check(mesh, program, suffix, tmp_path)
