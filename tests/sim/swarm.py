"""What each seed chooses for itself before it begins: sizes, times, weather, and which faults there will be. Pure.

Law: everything follows from the seed alone.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType

import tern_broker.core.deadline_heap
import tern_broker.core.delivery.leasing
import tern_broker.core.delivery.settles
import tern_broker.core.sending.idempotency
import tern_broker.proposal
import tern_broker.upkeep.comparer
import tern_broker.upkeep.saver
import tern_broker.upkeep.scrubber
import tern_broker.upkeep.trimmer
import tern_store.log.log_reader
import tests.sim.checkers.duplicates
import tests.sim.clients.asking
from tern_store import StoreLimits

# Every kind of fault that the nemesis knows.
KINDS = (
    "crash",
    "crash_torn",
    "power_cut",
    "kill_in_disk_job",
    "pause",
    "partition",
    "one_way",
    "bridge",
    "isolate_leader",
    "flap",
    "reset",
    "delay",
    "loss",
    "duplicate",
    "reorder",
    "clock_jump",
    "clock_drift",
    "slow_disk",
    "disk_full",
    "fsync_error",
    "bit_rot",
    "wipe",
    "transfer",
)
# Chosen beside the others, so that the seeds of before keep their mixes.
LACKING_KINDS = ("refuse", "worn")
LACKING_CHANCE = 0.4
# What a group of one survives; nobody could give it back what it loses for good.
LONE_KINDS = (
    *("crash", "crash_torn", "power_cut", "kill_in_disk_job", "pause", "one_way", "reset"),
    *("delay", "loss", "duplicate", "reorder", "clock_jump", "clock_drift", "slow_disk", "disk_full"),
)
LONE_CHANCE = 0.08
# Faults in the right order; scripts.py does them.
SCRIPTS = ("restart_cut", "save_cut", "lost_sector")
# A seed has each kind with this chance; so none is rare, and mixes differ.
KIND_CHANCE = 0.55
SCRIPT_CHANCE = 0.3
FAULTS_MIN, FAULTS_MAX = 26, 46
UPGRADE_CHANCE = 0.3
# A seed has some hundred entries; each comparison costs two more.
COMPARE_AFTER_ENTRIES = 20
# In some seeds the window of idempotency keys ends within the run. Its law holds for what comes in time: nobody repeats a request later, no try of a
# request goes on for longer, and a broker that is paused for 4 s in between is not too late either. Group time must not jump by as much as that.
SHORT_WINDOW_CHANCE = 0.25
SHORT_WINDOW_MS = 10_000
REPEAT_WITHIN_S, SHORT_DEADLINE_S = 4.0, 1.5
CLOCK_KINDS = frozenset({"clock_jump", "clock_drift"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """One seed's choices. Times are virtual."""

    seed: int
    nodes: int
    is_short_window: bool
    kinds: tuple[str, ...]
    weights: tuple[int, ...]
    scripts: tuple[str, ...]
    faults: int
    chaos_s: float
    operations: int
    segment_size_bytes: int
    limits: StoreLimits
    election_min_ms: int
    election_max_ms: int
    retention_bytes: int
    save_after_s: float
    scrub_pass_s: float
    trim_check_s: float
    latency_s: float
    jitter_s: float
    late_chance: float
    group_commit_bytes: int
    # When each node begins with the next release (share of the chaos; 0: from the first start, 1 or more: not in this run). Empty: there is one
    # release alone.
    upgrades: tuple[float, ...] = ()


def choose(seed: int) -> Swarm:
    """The choices of *seed*."""
    rng, scripting = random.Random(f"swarm {seed}"), random.Random(f"scripts of {seed}")
    kinds = tuple(kind for kind in KINDS if rng.random() < KIND_CHANCE) or ("crash", "partition")
    is_lone = random.Random(f"size of {seed}").random() < LONE_CHANCE
    if is_lone:
        kinds = tuple(kind for kind in kinds if kind in LONE_KINDS) or ("crash", "power_cut")
    lacking = random.Random(f"lacks of {seed}")
    lacks = tuple(
        kind for kind in LACKING_KINDS if lacking.random() < LACKING_CHANCE and (kind == "refuse" or not is_lone)
    )
    is_short_window = random.Random(f"window of {seed}").random() < SHORT_WINDOW_CHANCE
    if is_short_window:
        kinds = tuple(kind for kind in kinds if kind not in CLOCK_KINDS) or ("crash", "partition")
    segment = rng.choice((128, 128, 256)) << 10
    election = rng.choice((700, 1000))
    return Swarm(
        seed=seed,
        is_short_window=is_short_window,
        nodes=_size(rng, is_lone=is_lone),
        kinds=(*kinds, *lacks),
        weights=(*(rng.choice((1, 2, 4)) for _ in kinds), *(2 for _ in lacks)),
        scripts=tuple(script for script in SCRIPTS if scripting.random() < SCRIPT_CHANCE and not is_lone),
        faults=rng.randint(FAULTS_MIN, FAULTS_MAX),
        chaos_s=rng.uniform(11.0, 15.0),
        operations=rng.randint(812, 892),
        segment_size_bytes=segment,
        limits=StoreLimits(
            entry_size_max_bytes=120 << 10,
            recent_max_bytes=rng.choice((4 << 10, 256 << 10)),
            queue_entries_per_file=rng.choice((60, 400)),
            index_slots=rng.choice((16, 256)),
            index_entries_per_file=rng.choice((100, 1000)),
            table_keys_max=32,
        ),
        election_min_ms=election,
        election_max_ms=2 * election,
        retention_bytes=rng.choice((0, 0, segment, 2 * segment)),
        save_after_s=rng.choice((0.5, 1.0, 2.5, 8.0)),
        scrub_pass_s=rng.choice((4.0, 3600.0)),
        trim_check_s=rng.choice((1.0, 3.0)),
        latency_s=rng.choice((2e-4, 1e-3, 4e-3)),
        jitter_s=rng.choice((1e-4, 1e-3, 5e-3)),
        late_chance=rng.choice((0.0, 0.01, 0.05)),
        group_commit_bytes=rng.choice((4 << 10, 32 << 10)),
        upgrades=_upgrades(seed),
    )


def _upgrades(seed: int) -> tuple[float, ...]:
    rng = random.Random(f"upgrades of {seed}")
    if rng.random() >= UPGRADE_CHANCE:
        return ()
    # As many as there may be; who is old to the end keeps the group where it is.
    return tuple(rng.choice((0.0, 1.0, *(rng.uniform(0.1, 0.9) for _ in range(6)))) for _ in range(5))


def _size(rng: random.Random, *, is_lone: bool) -> int:
    size = 5 if rng.random() < 0.15 else 3
    return 1 if is_lone else size


def short_of_room(seed: int) -> Swarm:
    """*seed* with disks that are full again and again, and nothing else that drops messages: for the law of `kept_unread.py`."""
    kinds, weights = ("short_of_room", "crash", "wipe", "transfer", "partition"), (4, 1, 1, 1, 1)
    swarm = choose(seed)
    return replace(
        swarm,
        nodes=max(3, swarm.nodes),
        kinds=kinds,
        weights=weights,
        scripts=(),
        upgrades=(),
        retention_bytes=0,
        trim_check_s=1.0,
        save_after_s=0.5,
        # Several segments within the run.
        segment_size_bytes=128 << 10,
        operations=2_400,
    )


@contextmanager
def constants(swarm: Swarm) -> Iterator[None]:
    """The product's figures for days and gibibytes, as this seed's short life has them; undone at the end."""
    changes: tuple[tuple[ModuleType, str, float], ...] = (
        (tern_broker.upkeep.saver, "SAVE_AFTER_S", swarm.save_after_s),
        (tern_broker.upkeep.scrubber, "PAUSE_MIN_S", swarm.scrub_pass_s),
        (tern_broker.upkeep.trimmer, "CHECK_PERIOD_S", swarm.trim_check_s),
        (tern_broker.proposal, "GROUP_COMMIT_SIZE_MAX_BYTES", swarm.group_commit_bytes),
        (tern_broker.upkeep.trimmer, "GROUP_COMMIT_SIZE_MAX_BYTES", swarm.group_commit_bytes),
        (tern_broker.upkeep.comparer, "COMPARE_AFTER_ENTRIES", COMPARE_AFTER_ENTRIES),
        (tern_broker.upkeep.comparer, "AGAIN_AFTER_S", 0.5),
        (tern_broker.core.deadline_heap, "STALE_MAX", 8),
        (tern_broker.core.delivery.leasing, "EXPIRES_MAX", 4),
        # Its clients ack a few messages at a time.
        (tern_broker.core.delivery.settles, "ACKS_TOGETHER_MIN", 2),
        (tern_store.log.log_reader, "WINDOW_ROWS", 16),
    )
    if swarm.is_short_window:
        changes += (
            (tern_broker.core.sending.idempotency, "IDEMPOTENCY_WINDOW_MS", SHORT_WINDOW_MS),
            (tern_broker.core.sending.idempotency, "TABLE_PERIOD_MS", SHORT_WINDOW_MS // 10),
            (tests.sim.checkers.duplicates, "IDEMPOTENCY_WINDOW_MS", SHORT_WINDOW_MS),
            (tests.sim.clients.asking, "DEADLINE_S", SHORT_DEADLINE_S),
        )
    before = [getattr(module, name) for module, name, _ in changes]
    try:
        for module, name, value in changes:
            setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(changes, before, strict=True):
            setattr(module, name, value)
