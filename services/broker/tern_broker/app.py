"""The broker's FastAPI application: health, metrics and status of one node, copies for others. Runs
in the HTTP loop.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from tern_broker.config import BrokerConfig
from tern_broker.routes import AskChoose, AskPassOver, AskTransfer, RebuildRoutes, status_routes
from tern_service import add_health, add_metrics, install_problems
from tern_service.process_security import UNPROTECTED, ProcessSecurity
from tern_wire.version import VERSION

AskStatus = Callable[[], "asyncio.Future[dict[str, Any]]"]
_GAUGES = {
    "term": "Raft term",
    "commit_index": "Last committed entry",
    "applied_index": "Last applied entry",
    "last_index": "Last entry of the log",
    "synced_index": "Last entry that is on this node's disk",
    "log_size_bytes": "End of the commit log",
    "topics": "Topics",
    "groups": "Consumer groups",
    "idempotency_keys": "Idempotency keys remembered",
    "delayed": "Messages that wait for their delivery time",
    "transactions_open": "Transactions that have not ended",
    "transactions_expired": "Transactions that nobody has answered for, to be resolved by hand",
    "waiting_proposals": "Requests waiting for an entry",
    "undecided": "1 while replicas differ and no majority agrees",
    "held": "1 while this node serves nothing because no majority of the replicas agrees",
    "blocked": "1 while this node waits in front of an entry that it cannot apply",
    "read_leases": "Read leases, which keep messages from retention",
    "staged_messages": "Messages of stages that are not published yet",
    "read_leases_broken": "Read leases of which messages are gone, until their time is over",
}
_COUNTERS = {
    "stored": "Messages stored since the process started",
    "fired": "Delayed messages whose time came",
    "recalled": "Delayed messages that were taken back",
    "leased": "Messages leased",
    "settled": "Messages acknowledged",
    "expired": "Leased messages that became visible again",
    "nacked": "Messages that a consumer gave back",
    "dead_lettered": "Messages that failed for the last time",
    "redriven": "Dead letters that were delivered again",
    "staged": "Messages staged",
    "published": "Batches published",
    "prepared": "Transactions begun",
    "committed": "Transactions committed",
    "rolled_back": "Transactions rolled back",
    "checks": "Checks of transactions handed to checkers",
    "checks_given_up": "Transactions that were asked about as often as their producer group says",
    "entries_proposed": "Entries proposed as leader",
    "rebuild_requests_refused": "Requests for a copy of the log without a good proof of the cluster key",
    "rebuild_sent_bytes": "Bytes of the log copied to nodes that are rebuilt",
    "elections": "Elections that this node has begun",
    "comparisons": "Comparisons of the replicas' digests that this node was part of",
    "transfers": "Handovers of leadership that this node has begun",
}


# The fields of the status that /readyz repeats if they are set: reasons why a node takes no part,
# or only a limited one.
_REASONS = ("quarantined", "rebuilding", "refuses_sends", "lacks", "blocked", "undecided", "held")


class _StatusMetrics(Collector):
    """The latest status as metrics; refreshed by each request for /metrics or /readyz."""

    def __init__(self) -> None:
        self.latest: dict[str, Any] = {}

    def collect(self) -> list[Any]:
        """Return one family for each figure."""
        families: list[Any] = []
        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"ternmq_broker_{name}", text)
            value = self.latest.get(name, 0)
            gauge.add_metric([], float(value if isinstance(value, int | float) else bool(value)))
            families.append(gauge)
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"ternmq_broker_{name}", text)
            counter.add_metric([], float(self.latest.get(name, 0)))
            families.append(counter)
        leads = GaugeMetricFamily("ternmq_broker_is_leader", "1 on the leader")
        leads.add_metric([], float(self.latest.get("role") == "leader"))
        fsync = GaugeMetricFamily("ternmq_broker_last_fsync_seconds", "How long the last fdatasync of the log took")
        fsync.add_metric([], float(self.latest.get("fsync_ms", 0)) / 1_000)
        disk = GaugeMetricFamily("ternmq_broker_disk_used_ratio", "Share of the disk budget that is used")
        disk.add_metric([], float(self.latest.get("disk_permille", 0)) / 1_000)
        return [
            *families,
            leads,
            fsync,
            disk,
            *self._core_loop(),
            *self._peers(),
            self._refusals(),
            self._refused(),
            self._dropped(),
        ]

    def _core_loop(self) -> list[Any]:
        """Return the durations of its steps, and the longest of the last minute, which a scrape
        once a minute does not miss.
        """
        said = self.latest.get("core_loop")
        if said is None:
            return []  # a standby node has none
        text = "How long the core loop did not come back to its sockets"
        steps = HistogramMetricFamily("ternmq_broker_core_loop_step_seconds", text)
        counts = itertools.accumulate(said["steps_by_ms"].values())
        bounds = ["+Inf" if bound == "inf" else str(float(bound) / 1_000) for bound in said["steps_by_ms"]]
        steps.add_metric([], list(zip(bounds, counts, strict=True)), said["total_ms"] / 1_000)
        longest = GaugeMetricFamily(
            "ternmq_broker_core_loop_longest_step_seconds", f"{text}, at most in the last minute"
        )
        longest.add_metric([], said["longest_60s_ms"] / 1_000)
        return [steps, longest]

    def _refusals(self) -> CounterMetricFamily:
        """Return connections and frames that were refused, by port and reason."""
        refused = CounterMetricFamily("ternmq_link_refused", "What was refused at a port", labels=["port", "reason"])
        for port, reasons in self.latest.get("refusals", {}).items():
            for reason, count in reasons.items():
                refused.add_metric([port, reason], float(count))
        return refused

    def _refused(self) -> CounterMetricFamily:
        """Return requests of proxies that were refused with `overloaded`, by the budget that was
        used up.
        """
        refused = CounterMetricFamily("ternmq_broker_refused", "Requests refused as overloaded", labels=["what"])
        for what, count in self.latest.get("refused", {}).items():
            refused.add_metric([what], float(count))
        return refused

    def _dropped(self) -> CounterMetricFamily:
        """Return messages that retention dropped before a group had read them, counted once for
        each such group.
        """
        text = "Messages that retention dropped before a consumer group had read them"
        dropped = CounterMetricFamily("ternmq_broker_dropped_unread_messages", text, labels=["topic"])
        for topic, count in self.latest.get("dropped_unread_by_topic", {}).items():
            dropped.add_metric([topic], float(count))
        return dropped

    def _peers(self) -> list[Any]:
        """Return by peer whether it is connected, and on the leader how many entries it lacks (a
        follower does not know).
        """
        connected = GaugeMetricFamily("ternmq_broker_peer_connected", "1 while the peer is connected", labels=["peer"])
        lag = GaugeMetricFamily("ternmq_broker_follower_lag_entries", "Entries that a follower lacks", labels=["peer"])
        for peer in self.latest.get("peers", ()):
            connected.add_metric([peer["node"]], float(peer["connected"]))
            if self.latest.get("role") == "leader":
                lag.add_metric([peer["node"]], float(max(0, self.latest["last_index"] - peer["match_index"])))
        return [connected, lag]


def create_app(
    config: BrokerConfig,
    *,
    ask_status: AskStatus,
    ask_trim: AskStatus,
    ask_transfer: AskTransfer | None = None,
    ask_choose: AskChoose | None = None,
    ask_pass_over: AskPassOver | None = None,
    rebuild: RebuildRoutes | None = None,
    security: ProcessSecurity = UNPROTECTED,
) -> FastAPI:
    """Create the application; the *ask_*... reach the core loop. *rebuild* None: there is no log to
    be copied.
    """
    app = FastAPI(title="TernMQ broker", version=VERSION, docs_url=None, redoc_url=None, redirect_slashes=False)
    install_problems(app)
    metrics = _StatusMetrics()

    @app.middleware("http")
    async def refresh(request: Any, call_next: Any) -> Any:
        """Request the core's status first, since health and metrics answer without waiting."""
        metrics.latest = await ask_status()
        if rebuild is not None:
            metrics.latest |= rebuild.counters()
        return await call_next(request)

    def ready() -> tuple[bool, dict[str, Any]]:
        leader = metrics.latest.get("leader", "")
        reasons = {name: metrics.latest[name] for name in _REASONS if metrics.latest.get(name)}
        return bool(leader), {"leader": leader, "role": metrics.latest.get("role", ""), **reasons}

    info = {"service": "broker", "cluster": config.cluster, "broker_group": config.broker_group, "node": config.node}
    add_health(app, ready=ready, info=security.info(**info))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    security.register(registry)
    add_metrics(app, registry, service="broker")
    app.include_router(status_routes(ask_status, ask_trim, ask_transfer, ask_choose, ask_pass_over))
    if rebuild is not None:
        app.include_router(rebuild.router())
    return app
