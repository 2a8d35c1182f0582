"""What every scenario works with: a cluster, its load and consumers, chance, and a report that ends in a verdict.

A scenario is a coroutine function over a `Rig`. It does harm in trials, and says what it saw in `rig.note`; what must not happen goes to
`rig.fail`. `finish` puts the load to rest, reads everything back, stops the brokers and compares their logs byte by byte.
"""

import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.client import pause
from tests.chaos.cluster import Cluster, Stuck
from tests.chaos.consumers import Consumers
from tests.chaos.load import Load
from tests.chaos.verify import compare_logs, read_back

FAILURES_MAX = 50
LOG_TAIL_LINES = 25
DRAIN_S = 60.0
EQUAL_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command line."""

    scenario: str
    trials: int
    seed: int
    minutes: float
    fill_mib: int
    senders: int
    directory: Path
    keep: bool
    network: str
    fault_s: float
    judges_speed: bool


@dataclass(slots=True)
class Rig:
    """One run. Owner of its report."""

    asked: Asked
    cluster: Cluster
    rng: random.Random
    load: Load
    consumers: Consumers | None
    failures: list[str] = field(default_factory=list)
    too_slow: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Progress, on standard error."""
        print(f"{time.monotonic() - self.began_s:7.1f} s  {text}", file=sys.stderr, flush=True)

    def fail(self, what: str) -> None:
        """Something is not as it must be."""
        self.say(f"FAILED: {what}")
        if len(self.failures) < FAILURES_MAX:
            self.failures.append(what)

    def judge(self, name: str, value: float, *, at_most: float) -> None:
        """A speed against its bar; a failure unless the run was asked not to judge speeds."""
        if value > at_most:
            self.say(f"TOO SLOW: {name} is {value:.3f}, the bar is {at_most:g}")
            if len(self.too_slow) < FAILURES_MAX:
                self.too_slow.append(f"{name} is {value:.3f}, the bar is {at_most:g}")

    @property
    def is_ok(self) -> bool:
        """Everything was as it must be."""
        return not self.failures and not (self.asked.judges_speed and self.too_slow)

    def note(self, trial: dict[str, Any]) -> None:
        """One trial's figures."""
        self.trials.append(trial)
        self.say(f"trial {len(self.trials)}: " + ", ".join(f"{name} {value}" for name, value in trial.items()))

    def go_on(self) -> None:
        """Everybody sends and consumes."""
        self.load.start()
        if self.consumers is not None:
            self.consumers.start()

    async def rest(self) -> None:
        """Nobody sends or consumes, and nothing is under way."""
        if self.consumers is not None:
            await self.consumers.rest()
        await self.load.rest()

    async def warm_up(self, seconds: float = 1.0) -> None:
        """Load on, and some of it accepted."""
        self.go_on()
        before = self.load.acked
        await pause(seconds)
        await self.cluster.until(lambda: self.load.acked > before, within_s=20, what="sends are accepted")

    async def accepted_again(self, *, within_s: float = 30) -> None:
        """Until every sender that is not pinned has had a batch accepted that it had not when this was asked."""
        before = [(sender, sender.acked) for sender in self.load.senders if not sender.is_pinned]
        await self.cluster.until(
            lambda: all(sender.acked > acked for sender, acked in before),
            within_s=within_s,
            what="every sender goes on",
        )

    async def begin(self) -> None:
        """Start the mesh, make topic and group, let the load run."""
        self.say(
            f"{self.asked.scenario}: seed {self.asked.seed}, {self.cluster.network.kind}, {self.cluster.directory}"
        )
        await self.cluster.start()
        await self.load.create()
        if self.consumers is not None:
            await self.consumers.create()

    async def finish(self) -> None:
        """Rest, compare everything with what was promised, stop, compare the logs."""
        await self.load.stop()
        self.figures["acked"] = self.load.acked
        self.figures["answers"] = {str(status): count for status, count in sorted(self.load.ledger.answers.items())}
        self.figures["replayed"] = self.load.ledger.replayed
        self.say(f"at rest: {self.load.acked} sends were acknowledged; now everything is read back")
        if self.consumers is not None:
            self.consumers.start()
            if not await self.consumers.drain(within_s=DRAIN_S):
                text = f"{self.load.acked} sends were acked, {sum(self.consumers.offsets.values())} were consumed"
                self.fail(f"{text}: {self.consumers.missing()}")
            await self.consumers.stop()
            self.figures["consumed"] = sum(self.consumers.offsets.values())
            self.figures["acks_refused"] = dict(self.consumers.refusals)
            self.figures["redelivered"] = self.consumers.redelivered
            self.say(f"{sum(self.consumers.offsets.values())} messages were consumed")
        findings = await read_back(self.load)
        self.say(f"{findings.read} messages were read back")
        self.figures["read_back"] = findings.document()
        if not findings.is_clean:
            self.fail(f"read back: {findings.witnesses[:3]}")
        ledger = self.load.ledger
        self.figures["violations"] = ledger.violation_count
        if ledger.violation_count:
            self.fail(f"{ledger.violation_count} violations: {ledger.violations[:3]}")
        await self._compare_logs()

    async def _compare_logs(self) -> None:
        try:
            await self.cluster.equal(within_s=EQUAL_S)
        except Stuck as stuck:
            self.fail(str(stuck))
            return
        statuses = list((await self.cluster.statuses()).values())
        await self.cluster.stop()
        # Segments are named by position, so what retention dropped does not move the others.
        folders = [self.cluster.data(name) for name in self.cluster.nodes]
        first = min((int(path.name) for path in (folders[0] / "commitlog").glob("0*")), default=0)
        compared, different = compare_logs(folders, first + min(status["log_size_bytes"] for status in statuses))
        self.figures["log_bytes_compared"] = compared
        if different:
            self.fail(f"the logs differ: {different[:3]}")

    def tails(self) -> str:
        """The last lines of every process's log, for a failed run."""
        parts = []
        for log in sorted((self.cluster.directory / "logs").glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
            parts.append("\n".join([f"--- {log.name}", *lines]))
        return "\n".join(parts)

    def report(self) -> dict[str, Any]:
        """The whole run as one document."""
        return {
            "scenario": self.asked.scenario,
            "ok": self.is_ok,
            "seed": self.asked.seed,
            "network": self.cluster.network.kind,
            "seconds": round(time.monotonic() - self.began_s, 1),
            "figures": self.figures,
            "trials": self.trials,
            "failures": self.failures,
            "too_slow": self.too_slow,
        }
