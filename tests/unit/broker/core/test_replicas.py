"""A node that has lived and one that was loaded from a saved state decide alike."""

from tern_broker.core import StateMachine, saving
from tern_wire.link.commands import CommandKind, entry_parts
from tern_wire.link.rows import ACK, EXTEND, SETTLE_ROW
from tests.support.broker.single_broker import SingleBroker
from tests.support.files.faulty_files import FaultyFiles


def reloaded(state: StateMachine) -> StateMachine:
    """Saved and loaded."""
    return saving.load(b"".join(saving.encode(saving.take(state))))


def facts(state: StateMachine) -> object:
    """All that is saved."""
    return saving.take(state).facts


def test_leases_that_end_together_come_back_in_one_order_on_every_node() -> None:
    """Extended and settled ones: the live node's deadlines are older than the true ones, the loaded node's are not."""
    broker = SingleBroker(FaultyFiles())
    broker.create(queues=1)
    broker.send("t", *((0, b"%d" % number) for number in range(12)))
    leases = [broker.receive(messages_max=3) for _ in range(4)]
    for number, (lease, invisible_ms) in enumerate(zip(leases, (400_000, 100_000, 300_000, 70_000), strict=True)):
        rows = [row for row, _ in lease]
        for row in rows[number % 2 :]:
            broker.ack((*row[:3], EXTEND, *row[4:6], invisible_ms))
    first = leases[2][0][0]
    broker.ack((*first[:3], ACK, *first[4:]))
    loaded = reloaded(broker.state)
    assert facts(loaded) == facts(broker.state)
    entry = memoryview(b"".join(entry_parts(broker.state.now_ms + 10_000_000, [])))
    for state in (broker.state, loaded):
        state.apply(entry, 0, 98)
    assert facts(loaded) == facts(broker.state)
    row = leases[0][0][0]
    settle = SETTLE_ROW.pack(*row[:3], ACK, *row[4:])
    entry = memoryview(b"".join(entry_parts(broker.state.now_ms, [(CommandKind.SETTLE, [settle])])))
    assert loaded.apply(entry, 0, 99).verdicts == broker.state.apply(entry, 0, 99).verdicts


def test_a_group_at_rest_writes_nothing_for_leases_that_are_settled() -> None:
    """Their deadlines come, and nobody has to be told."""
    broker = SingleBroker(FaultyFiles())
    broker.create(queues=1)
    broker.send("t", *((0, b"%d" % number) for number in range(4)))
    first, second = broker.receive(messages_max=2), broker.receive(messages_max=2)
    broker.ack(*(row for row, _ in first))
    broker.ack(*((*row[:3], EXTEND, *row[4:6], 200_000) for row, _ in second))
    end = broker.store.log.end_index
    for wanted, seconds in ((0, 100), (1, 200)):
        broker.mono_ms += seconds * 1000
        broker.proposer.tick()
        broker.run()
        assert broker.store.log.end_index == end + wanted
    assert broker.state.counters.expired == 2
