"""Counters of a worker, as a snapshot and in Prometheus' text form. Pure."""

from dataclasses import asdict, dataclass, field


@dataclass(slots=True)
class Counters:
    """What one subscription has done since its start. Owner: the subscription."""

    received: int = 0
    acked: int = 0
    nacked: int = 0
    dead_lettered: int = 0
    released: int = 0
    lease_lost: int = 0
    failed: int = 0
    deadline_passed: int = 0
    handled: int = 0
    handler_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStats:
    """One subscription of a worker: counts since its start, and what is in hand now.

    `failed` handlers raised an exception or passed their deadline, `handled` is all that ended, and
    `handler_ms` their time together. `lease_lost` messages were delivered to somebody else before
    their result was known here. `released` messages went back uncounted.
    """

    topic: str
    group: str
    received: int
    acked: int
    nacked: int
    dead_lettered: int
    released: int
    lease_lost: int
    failed: int
    deadline_passed: int
    handled: int
    handler_ms: float
    running: int
    in_flight_messages: int
    in_flight_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStats:
    """A worker at one moment: `state` is `new`, `running`, `stopping` or `stopped`; `problem` says
    why it does not receive, "" if it does or could.

    Example:

        from tern_client import Worker, WorkerStats

        worker = Worker("http://127.0.0.1:8080")


        @worker.on("orders", group="billing")
        async def bill(body: bytes) -> None:
            print(body)


        stats: WorkerStats = worker.stats()
        print(stats.state, stats.subscriptions[0].acked)  # -> new 0
    """

    state: str
    problem: str = ""
    subscriptions: tuple[SubscriptionStats, ...] = field(default=())


def snapshot(
    topic: str,
    group: str,
    counters: Counters,
    *,
    running: int = 0,
    in_flight_messages: int = 0,
    in_flight_bytes: int = 0,
) -> SubscriptionStats:
    """Return *counters* and what is in hand as one value."""
    return SubscriptionStats(
        topic=topic,
        group=group,
        running=running,
        in_flight_messages=in_flight_messages,
        in_flight_bytes=in_flight_bytes,
        **asdict(counters),
    )


_COUNTERS = {
    "received": "Messages received.",
    "acked": "Messages acked.",
    "nacked": "Messages given back as failed.",
    "dead_lettered": "Messages made dead letters by their handler.",
    "released": "Messages given back uncounted.",
    "lease_lost": "Messages whose lease ended before their result was known.",
    "failed": "Handlers that raised an exception or passed their deadline.",
    "deadline_passed": "Handlers that passed their deadline.",
    "handled": "Messages whose handler ended.",
}
_GAUGES = {
    "running": "Messages whose handler runs.",
    "in_flight_messages": "Messages in memory.",
    "in_flight_bytes": "Bytes of the bodies in memory.",
}


def prometheus_text(stats: WorkerStats) -> str:
    """Return *stats* in Prometheus' text form, version 0.0.4."""
    lines: list[str] = []
    for names, kind, suffix in ((_COUNTERS, "counter", "_total"), (_GAUGES, "gauge", "")):
        for name, text in names.items():
            _write(lines, stats, f"ternmq_worker_{name}{suffix}", kind, text, name, 1)
    _write(lines, stats, "ternmq_worker_handler_seconds_total", "counter", "Time in handlers.", "handler_ms", 1_000)
    lines += ["# HELP ternmq_worker_up Whether the worker receives or could.", "# TYPE ternmq_worker_up gauge"]
    lines.append(f"ternmq_worker_up {int(stats.state == 'running' and not stats.problem)}")
    return "\n".join(lines) + "\n"


def _write(lines: list[str], stats: WorkerStats, metric: str, kind: str, text: str, name: str, unit: int) -> None:
    lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {kind}"]
    for each in stats.subscriptions:
        value = getattr(each, name)
        shown = value if unit == 1 else f"{value / unit:.6f}"
        lines.append(f'{metric}{{topic="{_escaped(each.topic)}",group="{_escaped(each.group)}"}} {shown}')


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
