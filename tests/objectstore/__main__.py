"""`make object-store`: archive, compact and verify in a real S3-compatible store that is killed while they write, as the jobs are.

    messages -> archive --catalog -> s3://bucket/archive <- compact --delete, verify, a query over the Delta table

Each round more messages are there, and at a moment drawn by the seed the store or the job is killed: at a page of the
read, when a manifest appears, or when a version of the table does. The store comes back at once, or when the job has
given up. A job ends well, or with one clear sentence; the run after the last round completes everything. Exit code 1
when a message is lost or there twice, in the files or in the table, or when a job fails unclearly.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable, QueryBuilder

from tests.objectstore.store import ObjectStore
from tests.support.client.job_runs import run, two_days
from tests.support.client.record_server import Script, record_server

_QUEUES, _ROWS_A_ROUND, _PAGE_ROWS, _FILE_ROWS = 3, 600, 50, 200
_JOB_MAX_S, _LOOK_S = 180, 0.002
PLACE = "archive"
MOMENTS = ("page", "manifest", "version")


class Wrong(Exception):
    """What was to be proved is not so."""


@dataclass
class Rounds:
    """The rounds of a run, and what each met. Owner: the run."""

    store: ObjectStore
    script: Script
    rng: random.Random
    met: Counter[str] = field(default_factory=Counter)

    def grow(self) -> None:
        """More messages in every queue."""
        for number in range(_QUEUES):
            rows = self.script.queues.setdefault(f"broker-a:{number}", [])
            rows += two_days(number, self.rng.randint(1, _ROWS_A_ROUND), first=len(rows))

    def job(self, name: str, *arguments: str) -> None:
        """Run a job while the store or the job itself is killed once."""
        # `compact` asks for no page.
        moment, victim = (
            self.rng.choice(MOMENTS if name == "archive" else MOMENTS[1:]),
            self.rng.choice(("store", "store", "job")),
        )
        is_back_at_once = self.rng.random() < 0.5
        reached = self._reached(moment)
        command = [sys.executable, "-m", "tern_jobs", name, *arguments]
        command += ["--endpoint", self.script.url, "--master", "inline", "--quiet"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.store.environment},
        )
        ends_s = time.monotonic() + _JOB_MAX_S
        is_killed = False
        try:
            while process.poll() is None and time.monotonic() < ends_s:
                if not is_killed and reached():
                    is_killed = True
                    if victim == "job":
                        process.kill()
                    else:
                        self.store.kill()
                        if is_back_at_once:
                            self.store.start()
                time.sleep(_LOOK_S)
            if process.poll() is None:
                raise Wrong(f"{name} does not end: killed was the {victim} at a {moment}")
            out, err = process.communicate()
        finally:
            process.kill()
            self.script.before_page = lambda offset: None
        if is_killed and victim == "store" and not is_back_at_once:
            self.store.start()
        what = f"{victim} killed at a {moment}" if is_killed else f"over before a {moment}"
        self._judge(f"{name}, {what}", process.returncode, out, err)

    def _judge(self, what: str, code: int, out: str, err: str) -> None:
        is_clear = code == 1 and ("error: " in err or "fault: " in out) and "Traceback" not in err
        if not (code in {0, -9} or is_clear):
            raise Wrong(f"{what}: it ended with {code}\n{out[-2_000:]}\n{err[-2_000:]}")
        self.met[f"{what}: {'done' if code == 0 else 'ended' if code == -9 else 'told'}"] += 1

    def _reached(self, moment: str) -> Callable[[], bool]:
        """Whether the moment has come, since now."""
        if moment == "page":
            left = iter(range(self.rng.randint(0, 30)))
            is_reached: list[bool] = []

            def count(_: int) -> None:
                if next(left, None) is None:
                    is_reached.append(True)

            self.script.before_page = count
            return lambda: bool(is_reached)
        pattern = "manifests/*.json" if moment == "manifest" else "data/*/_delta_log/*.json"
        place = self.store.objects / PLACE
        before = len(list(place.glob(pattern)))
        return lambda: len(list(place.glob(pattern))) > before

    def finish(self) -> dict[str, int]:
        """Complete everything, and compare; the figures. Wrong."""
        expected = sum(len(rows) for rows in self.script.queues.values())
        os.environ |= self.store.environment
        uri = self.store.uri(PLACE)
        for name, given in (
            ("archive", ("--topics", "orders", "--to", uri)),
            ("compact", ("--archive", uri, "--delete")),
        ):
            ended = run(name, self.script, *given)
            if ended.code:
                raise Wrong(f"the last {name} ended with {ended.code}: {ended.result} {ended.stderr}")
        proof = run("verify", self.script, "--archive", uri)
        if proof.code or proof.facts["rows"] != expected or proof.facts["tables"] != 1:
            raise Wrong(f"of {expected} messages: {proof.result} {proof.stderr}")
        options = {**self.store.environment, "AWS_ENDPOINT_URL": self.store.url, "AWS_ALLOW_HTTP": "true"}
        table = DeltaTable(f"s3://bucket/{PLACE}/data/orders", storage_options=options)
        query = "SELECT count(*), count(DISTINCT queue_id * 1000000 + queue_offset) FROM orders"
        found = QueryBuilder().register("orders", table).execute(query).read_all()
        rows, distinct = (found.column(at).to_pylist()[0] for at in (0, 1))
        if (rows, distinct) != (expected, expected):
            raise Wrong(f"of {expected} messages the table has {rows}, {distinct} of them different")
        return {"messages": expected, "versions": table.version() + 1, "manifests": int(proof.facts["manifests"])}


def main() -> int:
    """Run the rounds; return the exit code."""
    parser = argparse.ArgumentParser(prog="make object-store", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="jobs that run while something is killed; default 20")
    parser.add_argument("--seed", type=int, default=1, help="what is killed when; default 1")
    parser.add_argument("--store", type=Path, default=Path(sys.executable).parent / "versitygw", help="the program")
    options = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ternmq-objects-") as folder:
        store = ObjectStore(options.store, Path(folder))
        store.start()
        try:
            with record_server(Script(queues={}, page_rows_max=_PAGE_ROWS)) as script:
                rounds = Rounds(store, script, random.Random(options.seed))
                for number in range(options.rounds):
                    rounds.grow()
                    uri = store.uri(PLACE)
                    if number % 4 == 3:
                        rounds.job("compact", "--archive", uri, "--delete")
                    else:
                        given = ("--topics", "orders", "--to", uri, "--rows-per-file", str(_FILE_ROWS))
                        rounds.job("archive", *given, "--catalog")
                figures = rounds.finish()
        except Wrong as wrong:
            print(f"object-store: seed {options.seed}: {wrong}", file=sys.stderr)
            return 1
        finally:
            store.kill()
    for what, times in sorted(rounds.met.items()):
        print(f"{times:4}  {what}")
    told = ", ".join(f"{value:,} {name}" for name, value in figures.items())
    print(f"0 lost, 0 twice: {told}, {time.monotonic() - began_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
