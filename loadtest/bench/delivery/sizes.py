"""Sizes of each bench of delivery: a full run, a part of it, and a quick test that it works."""

from dataclasses import dataclass, replace

from loadtest.bench.delivery.timers import BATCH_MESSAGES as DELAYED_BATCH_MESSAGES

# Messages of one batch to the blocked message group.
STUCK_BATCH_MESSAGES = 200
# The rate of batches on a fast machine, messages a second.
_SEND_RATE = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Counts of messages unless a name says otherwise.

    Two compared loads alternate in turns.
    """

    scale: float = 1.0
    # The window of a closed loop, and the warm-up before it.
    seconds: float = 8.0
    warm_up_s: float = 1.0
    # One turn of two compared loads, and the number of turns of each.
    turn_s: float = 2.0
    turn_warm_up_s: float = 0.5
    rounds: int = 5
    # More than a window receives at 50,000/s.
    receive_messages: int = 500_000
    fifo_messages: int = 100_000
    message_groups: int = 1_000
    delayed_messages: int = 60_000
    delayed_ahead_ms: int = 30_000
    tag_messages: int = 1_000_000
    sql_messages: int = 200_000
    topics: int = 10_000
    backlog_messages: int = 1_000_000
    # Messages behind the blocked message, a multiple of STUCK_BATCH_MESSAGES, and messages of the
    # others that each turn receives.
    blocked_messages: int = 100_000
    others_messages: int = 20_000
    # Parked receives, and messages that are then sent one after the other.
    parked_polls: int = 5_000
    parked_messages: int = 300

    @property
    def disk_size_bytes(self) -> int:
        """The disk space for the largest figure's mesh, with room to spare.

        Three copies, and two segments of 1 GiB ahead at each node.
        """
        sent = round(2 * (self.rounds + 1) * (self.turn_s + self.turn_warm_up_s) * _SEND_RATE)
        return 3 * (max(sent, self.backlog_messages, self.receive_messages) * 1_400 + (2 << 30))

    def scaled(self, scale: float) -> "Sizes":
        """Return a part of these sizes, 0 < *scale* <= 1, each large enough for its figure."""

        def part(count: int, least: int, multiple: int = 1) -> int:
            return max(least, round(count * scale / multiple) * multiple)

        return replace(
            self,
            scale=scale,
            seconds=max(0.5, self.seconds * scale),
            warm_up_s=max(0.2, self.warm_up_s * scale),
            turn_s=max(0.3, self.turn_s * scale),
            turn_warm_up_s=max(0.1, self.turn_warm_up_s * scale),
            rounds=max(1, round(self.rounds * scale)),
            receive_messages=part(self.receive_messages, 20_000),
            message_groups=part(self.message_groups, 250),
            fifo_messages=part(self.fifo_messages, 2_000),
            delayed_messages=part(self.delayed_messages, DELAYED_BATCH_MESSAGES, DELAYED_BATCH_MESSAGES),
            delayed_ahead_ms=part(self.delayed_ahead_ms, 3_000),
            tag_messages=part(self.tag_messages, 8_000, 1_000),
            sql_messages=part(self.sql_messages, 4_000, 1_000),
            topics=part(self.topics, 100),
            backlog_messages=part(self.backlog_messages, 10_000),
            blocked_messages=part(self.blocked_messages, 5 * STUCK_BATCH_MESSAGES, STUCK_BATCH_MESSAGES),
            others_messages=part(self.others_messages, 1_000),
            parked_polls=part(self.parked_polls, 100),
            parked_messages=part(self.parked_messages, 10),
        )


FULL = Sizes()
QUICK = FULL.scaled(0.01)
