"""What the demo counts while it runs: gaps between confirmations, redeliveries, acks that failed."""

from tern_cli.demo.consuming import ReceiveLog
from tern_cli.demo.producing import SendLog
from tern_client import ReceivedMessage, SendReceipt


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.time_ms = 0.0

    def __call__(self) -> float:
        return self.time_ms


def receipt(number: int, *, replayed: bool = False) -> SendReceipt:
    """A confirmation."""
    return SendReceipt(message_id=f"id-{number}", queue="broker-a:0", offset=number, born_at=0, replayed=replayed)


def received(number: int, handle: str) -> ReceivedMessage:
    """A delivery."""
    return ReceivedMessage(
        message_id=f"id-{number}",
        topic="flights",
        queue="broker-a:0",
        offset=number,
        body=b"",
        content_type="",
        tag="",
        keys=(),
        properties={},
        born_at=0,
        stored_at=0,
        attempt=1,
        receipt_handle=handle,
        invisible_until=0,
    )


def test_the_longest_gap_is_the_longest_time_without_any_confirmation() -> None:
    """Confirmations at 10, 40 and 2,040 ms, from whichever producer: the gap is 2,000 ms, not the sum."""
    clock = Clock()
    log = SendLog(now_ms=clock, milestone=3)
    log.begin()
    for time_ms, number in ((10, 1), (40, 2), (2_040, 3)):
        assert not log.milestone_reached.is_set()
        clock.time_ms = time_ms
        log.note([receipt(number, replayed=number == 3)])
    assert (log.longest_gap_ms, log.confirmed, log.replayed, log.seconds) == (2_000, 3, 1, 2.04)
    assert log.milestone_reached.is_set()


def test_the_wait_for_the_first_confirmation_counts_as_a_gap() -> None:
    """A mesh that needs a second to wake up interrupts sends as well."""
    clock = Clock()
    log = SendLog(now_ms=clock)
    log.begin()
    clock.time_ms = 1_000
    log.note([receipt(1)])
    assert log.longest_gap_ms == 1_000


def test_a_message_is_acked_only_when_the_proxy_said_so() -> None:
    """Two deliveries, one ack too late: that message counts as acked only after its second delivery was acked."""
    log = ReceiveLog(now_ms=Clock())
    first, second = received(1, "h1"), received(2, "h2")
    log.note([first, second])
    log.note_acked([first, second], {"h2"})
    assert (log.acked_ids, log.expired, log.redelivered) == ({"id-1"}, 1, 0)
    again = received(2, "h3")
    log.note([again])
    log.note_acked([again], set())
    assert (log.acked_ids, log.received, log.redelivered) == ({"id-1", "id-2"}, 3, 1)
