"""Status of a node: for operators, proxies and metrics."""

from typing import Any

from tern_broker.config import BrokerConfig
from tern_broker.engine import Engine


def space_held(engine: Engine) -> dict[str, Any] | None:
    """Return on a leader whose disk is full the largest holder of unread messages that cannot be
    dropped; None if there is none.
    """
    holder = engine.trimmer.holder if engine.raft.is_serving else None
    return {"topic": holder.topic, "group": holder.group, "messages": holder.messages} if holder is not None else None


def engine_status(engine: Engine, config: BrokerConfig) -> dict[str, Any]:
    """Return the status for operators and proxies: role, term, leader, indexes, peers, counters."""
    counters = engine.state.counters
    return {
        "node": config.node,
        "cluster": config.cluster,
        "broker_group": config.broker_group,
        "group_id": config.group_id,
        "role": "leader" if engine.raft.is_leader else "follower",
        "serving": engine.raft.is_serving,
        "leader": engine.raft.leader or "",
        "term": engine.raft.term,
        "commit_index": engine.raft.commit_index,
        "applied_index": engine.raft.applied_index,
        "last_index": engine.store.log.end_index,
        "synced_index": engine.store.log.synced_index,
        "log_size_bytes": engine.store.log.end_position - engine.store.log.start.position,
        "log_first_index": engine.store.log.first_index,
        "rebuilding": engine.store.rebuilding,
        "lacks": engine.lack(),
        "blocked": engine.poison.describe(),
        "comparison": engine.comparer.describe(),
        "comparisons": engine.comparer.comparisons,
        "undecided": engine.comparer.is_undecided,
        "held": engine.raft.is_held,
        "time_ahead_ms": engine.time.ahead_ms(engine.proposer.now_ms()) if engine.raft.is_serving else 0,
        "scrub_passes": engine.scrubber.passes,
        "scrubbed_bytes": engine.scrubber.checked_bytes,
        "disk_pressure": engine.trimmer.pressure.value,
        "trims": engine.trimmer.trims,
        "space_held": space_held(engine),
        "dropped_unread": engine.dropped_unread.describe(),
        "dropped_unread_by_topic": engine.dropped_unread.by_topic(),
        "version": config.state_machine_version(),
        "level": engine.state.feature_level.level,
        "standing": engine.raft.standing.name.lower(),
        "fsync_ms": round(engine.raft.sync_s * 1000, 3),
        "disk_permille": engine.raft.transport.own_disk_permille,
        "elections": engine.raft.campaigns,
        "transfers": engine.raft.transfers,
        "peers": [
            {
                "node": peer.name,
                "connected": peer.connected,
                "standing": peer.standing,
                "match_index": peer.match_index,
                "disk_permille": peer.disk_permille,
                "version": peer.version,
            }
            for peer in engine.raft.peers()
        ],
        "topics": len(engine.state.names.topics),
        "groups": len(engine.state.names.groups),
        "idempotency_keys": len(engine.state.keys),
        "waiting_proposals": engine.proposer.waiting,
        "entries_proposed": engine.proposer.entries,
        "refused": dict(engine.proposer.refused),
        "stored": counters.stored,
        "delayed": engine.state.timing.pending.total(),
        "fired": counters.fired,
        "recalled": counters.recalled,
        "leased": counters.leased,
        "settled": counters.settled,
        "expired": counters.expired,
        "nacked": counters.nacked,
        "dead_lettered": counters.dead_lettered,
        "redriven": counters.redriven,
        "transactions_open": sum(group.open for group in engine.state.producers.by_id.values()),
        "transactions_expired": sum(group.expired for group in engine.state.producers.by_id.values()),
        "read_leases": len(engine.state.read_leases.leases),
        "read_leases_broken": sum(1 for lease in engine.state.read_leases.leases.values() if lease.broken_by),
        "staged": counters.staged,
        "published": counters.published,
        "staged_messages": engine.state.publications.totals.rows,
        "prepared": counters.prepared,
        "committed": counters.committed,
        "rolled_back": counters.rolled_back,
        "checks": counters.checks,
        "checks_given_up": counters.checks_given_up,
        "flow": engine.statistics.totals(),
    }
