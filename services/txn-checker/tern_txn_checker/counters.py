"""The checker's counters in the form that Prometheus reads. Owner: the event loop."""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tern_txn_checker.results import Result


class Counters(Collector):
    """Counters since the start of the process.

    *gauges*: for each name and help text, a function that reads the current value.
    """

    def __init__(self, gauges: dict[tuple[str, str], Callable[[], float]]) -> None:
        self.claimed = 0
        self.answers: Counter[str] = Counter()
        self.settled: Counter[str] = Counter()
        self.call_ms = 0
        self._gauges = gauges

    def count(self, result: Result, became: str) -> None:
        """Count one finished check. *became*: the broker group's verdict on the result."""
        self.answers[result.answer.text] += 1
        self.settled[became] += 1
        self.call_ms += result.latency_ms

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics for Prometheus."""
        yield CounterMetricFamily("ternmq_txn_checker_claimed", "Checks that were claimed.", value=self.claimed)
        for name, help_text, counts in (
            ("answers", "Checks by what came of them: verdicts, and why there was none.", self.answers),
            ("settled", "Results by what their broker group made of them.", self.settled),
        ):
            family = CounterMetricFamily(f"ternmq_txn_checker_{name}", help_text, labels=["what"])
            for what, count in list(counts.items()):
                family.add_metric([what], count)
            yield family
        yield CounterMetricFamily(
            "ternmq_txn_checker_call_seconds", "Time that calls took, all together.", value=self.call_ms / 1_000
        )
        for (name, help_text), read in self._gauges.items():
            yield GaugeMetricFamily(f"ternmq_txn_checker_{name}", help_text, value=read())
