"""Metrics of the proxy in plain dictionaries (a labelled Prometheus counter costs more than parsing
a small request).

Owner: the event loop. Prometheus reads them at each request of /metrics.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tern_wire.errors import Overloaded

# Seconds. A single send should be in the first three, a parked poll in the last.
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Counters(Collector):
    """Counts since the process started.

    *requests*: by route and status. *durations*: by route and position in BUCKETS_S. *seconds*:
    the sum of the durations by route. *gauges*: name and help -> a function that reads the current
    values.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.durations: Counter[tuple[str, int]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.gauges: dict[tuple[str, str], Callable[[], dict[str, float]]] = {}

    def count_refused(self, errors: Iterable[Exception]) -> None:
        """Count the `overloaded` ones of *errors* by the exhausted budget."""
        for error in errors:
            if isinstance(error, Overloaded):
                self.refused[str(error.fields.get("what", ""))] += 1

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for Prometheus."""
        requests = CounterMetricFamily(
            "ternmq_proxy_requests", "Answered requests by route and status.", labels=["route", "status"]
        )
        for (route, status), count in list(self.requests.items()):
            requests.add_metric([route, str(status)], count)
        yield requests
        latency = HistogramMetricFamily(
            "ternmq_proxy_request_seconds", "From the request's head to the answer.", labels=["route"]
        )
        for route, total_s in list(self.seconds.items()):
            by_bucket = [self.durations[route, bucket] for bucket in range(len(BUCKETS_S) + 1)]
            latency.add_metric([route], buckets=_cumulative(by_bucket), sum_value=total_s)
        yield latency
        for name, help_text, counts in (
            (
                "messages",
                "Messages stored, replayed, delivered, pulled, tailed, settled, released, prepared, committed, rolled back.",
                self.messages,
            ),
            ("bytes", "Bytes of request bodies (in) and of answers (out) on hot routes.", self.bytes),
            ("refused", "What was refused with `overloaded`, by the budget that was used up.", self.refused),
        ):
            family = CounterMetricFamily(f"ternmq_proxy_{name}", help_text, labels=["what"])
            for what, count in list(counts.items()):
                family.add_metric([what], count)
            yield family
        for (name, help_text), read in self.gauges.items():
            gauge = GaugeMetricFamily(f"ternmq_proxy_{name}", help_text, labels=["of"])
            for label, value in read().items():
                gauge.add_metric([label], value)
            yield gauge


def _cumulative(counts: list[int]) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for limit, count in zip((*map(str, BUCKETS_S), "+Inf"), counts, strict=True):
        total += count
        buckets.append((limit, float(total)))
    return buckets
