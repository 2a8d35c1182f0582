"""What each seed chooses for its clients: who they are, how they share the operations, and what the topics and groups are like. Pure.

Each way of delivering has a topic, and each that may deliver a message twice has a group of its own: elsewhere nothing may excuse that.

     orders   billing, audit             nothing but leases; some messages come with transactions
     trips    billing, audit             offsets are committed and sought
     rides    dispatch, rewind           messages have an order (FIFO); dispatch as workers, rewind seeks; in some seeds it grows
     jobs     workers                    nacks, few attempts, dead letters; in some seeds one group's are redriven
     alarms   clock                      messages have a delivery time; some are recalled
     ledger   billing                    nothing but messages of transactions
     flights                             batches that are staged and published, read by readers alone
     letters  keepers                    held long, extended, and received again with the attempt id

Transactions are of two producer groups: one that checkers ask for by name, one with a check URL, of which they ask as of all that have one.
"""

from dataclasses import dataclass
from random import Random

from tern_wire.limits import ATTEMPTS_DEFAULT
from tests.sim.history.history import Create

TOPICS = ("orders", "trips")
# Offsets of a group are only set in this topic, and in the other one by the group below: elsewhere, nothing may excuse a redelivery.
SOUGHT_TOPIC = "trips"
FIFO_TOPIC, RETRY_TOPIC, DELAY_TOPIC, LEDGER_TOPIC = "rides", "jobs", "alarms", "ledger"
PUBLISHED_TOPIC = "flights"
KEPT_TOPIC, KEPT_GROUP = "letters", "keepers"
# Where messages of transactions may lie.
TRANSACTION_TOPICS = (LEDGER_TOPIC, "orders")
SOUGHT_GROUP = "rewind"
# Groups that have dead letters.
RETRY_GROUP, FIFO_GROUP = "workers", "dispatch"
QUEUES = {
    "orders": 4,
    "trips": 4,
    FIFO_TOPIC: 2,
    RETRY_TOPIC: 2,
    DELAY_TOPIC: 2,
    LEDGER_TOPIC: 2,
    KEPT_TOPIC: 2,
    PUBLISHED_TOPIC: 2,
}
GROWN_QUEUES = 3
MESSAGE_GROUPS = tuple(f"g{number}" for number in range(6))
KINDS = {FIFO_TOPIC: "FIFO", DELAY_TOPIC: "DELAY", LEDGER_TOPIC: "TRANSACTION", "orders": "MIXED"}
PULLED, CALLED = "bank", "shop"
CHECK_URL = "http://127.0.0.1:9/checks"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A consumer group: what it reads and how its consumers settle. Shares are of the messages that one of them holds."""

    name: str
    topics: tuple[str, ...]
    invisible_ms: int
    max_attempts: int = ATTEMPTS_DEFAULT
    # None: the product's table, whose delays are longer than a run.
    delays_ms: tuple[int, ...] | None = None
    is_fifo: bool = False
    nack_share: float = 0.0
    reject_share: float = 0.0

    def create(self) -> Create:
        """The request that declares it."""
        settings: list[tuple[str, object]] = [("max_attempts", self.max_attempts), ("fifo", self.is_fifo)]
        if self.delays_ms is not None:
            settings.append(("retry", {"policy": "custom", "delays_ms": list(self.delays_ms)}))
        return Create("group", self.name, self.invisible_ms, tuple(settings))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerGroupPlan:
    """A producer group: when and how often its open transactions are asked about, ms of the group's time."""

    name: str
    max_checks: int
    check_after_ms: int
    check_interval_ms: int

    def create(self) -> Create:
        """The request that declares it."""
        settings = [("check_after_ms", self.check_after_ms), ("check_interval_ms", self.check_interval_ms)]
        url = [("check_url", CHECK_URL), ("timeout_ms", 100)] if self.name == CALLED else []
        return Create("producer_group", self.name, self.max_checks, (*settings, *url))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One seed's mix. Shares are of 1; times of consumers are virtual seconds, invisible times the group's milliseconds."""

    producers: int
    consumers: int  # a group
    readers: int
    burst_max: int
    messages_max: int
    keyed_share: float
    repeat_share: float
    # How long after its begin a request is repeated (virtual s; 0: for ever).
    repeat_within_s: float
    large_share: float
    groups: tuple[GroupPlan, ...]
    producer_groups: tuple[ProducerGroupPlan, ...]
    # How long checkers claim, and the longest time that a transaction itself says it wants before its first check.
    claim_ms: int
    check_after_max_ms: int
    extend_share: float
    release_share: float
    abandon_share: float
    hold_max_s: float
    delay_max_ms: int
    recall_share: float
    # Whose dead letters are redriven; empty: nobody's.
    redriven: str
    # When the ordered topic grows (virtual s from the beginning; 0: never).
    grows_at_s: float
    # Queries that write batches, two drivers each.
    queries: int
    operations: int
    pace_s: float

    def creates(self) -> list[Create]:
        """The requests that declare all topics and groups."""
        topics = [
            Create("topic", topic, queues, (("type", KINDS.get(topic, "NORMAL")),)) for topic, queues in QUEUES.items()
        ]
        groups = [group.create() for group in self.groups]
        return [*topics, *groups, *(group.create() for group in self.producer_groups)]


def draw_plan(rng: Random, operations: int, pace_s: float, repeat_within_s: float = 0.0) -> Plan:
    """A plan for about *operations* operations in *pace_s* undisturbed seconds."""
    return Plan(
        producers=rng.randint(3, 6),
        consumers=rng.randint(1, 3),
        readers=rng.randint(1, 2),
        burst_max=rng.choice((4, 8, 12)),
        messages_max=rng.choice((1, 3, 5)),
        keyed_share=rng.choice((0.2, 0.5, 0.8)),
        repeat_share=0.06 if not repeat_within_s else 0.2,
        repeat_within_s=repeat_within_s,
        large_share=rng.choice((0.0, 0.01, 0.03)),
        groups=_draw_groups(rng),
        producer_groups=tuple(
            ProducerGroupPlan(
                name=name,
                max_checks=rng.randint(1, 3),
                check_after_ms=rng.choice((100, 300, 900)),
                check_interval_ms=rng.choice((100, 400)),
            )
            for name in (PULLED, CALLED)
        ),
        claim_ms=rng.choice((150, 400, 1_000)),
        check_after_max_ms=rng.choice((400, 1_500)),
        extend_share=rng.choice((0.05, 0.2)),
        release_share=0.05,
        abandon_share=rng.choice((0.05, 0.2)),
        hold_max_s=rng.choice((0.05, 0.4, 1.2)),
        delay_max_ms=rng.choice((600, 3_000)),
        recall_share=0.25,
        redriven=rng.choice(("", "", RETRY_GROUP, FIFO_GROUP)),
        queries=rng.choice((0, 1, 2)),
        grows_at_s=rng.uniform(0.2, 0.8) * pace_s if rng.random() < 0.4 else 0.0,
        operations=operations,
        pace_s=pace_s,
    )


def _draw_groups(rng: Random) -> tuple[GroupPlan, ...]:
    return (
        GroupPlan(name="billing", topics=(*TOPICS, LEDGER_TOPIC), invisible_ms=2_500),
        GroupPlan(name="audit", topics=TOPICS, invisible_ms=rng.choice((250, 500, 1_000))),
        GroupPlan(
            name=FIFO_GROUP,
            topics=(FIFO_TOPIC,),
            invisible_ms=rng.choice((400, 1_500)),
            max_attempts=rng.randint(2, 4),
            delays_ms=rng.choice(((200,), (100, 500))),
            is_fifo=True,
            nack_share=0.1,
            reject_share=0.02,
        ),
        GroupPlan(name=SOUGHT_GROUP, topics=(FIFO_TOPIC,), invisible_ms=rng.choice((300, 800))),
        GroupPlan(
            name=RETRY_GROUP,
            topics=(RETRY_TOPIC,),
            invisible_ms=rng.choice((300, 1_000)),
            max_attempts=rng.randint(2, 4),
            delays_ms=rng.choice(((300,), (100, 400, 900), (0, 600))),
            nack_share=rng.choice((0.2, 0.5)),
            reject_share=rng.choice((0.03, 0.1)),
        ),
        GroupPlan(name="clock", topics=(DELAY_TOPIC,), invisible_ms=1_000),
        GroupPlan(name=KEPT_GROUP, topics=(KEPT_TOPIC,), invisible_ms=3_000),
    )
