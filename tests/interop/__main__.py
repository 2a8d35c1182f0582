"""`make interop`: exports our stores and has a real Apache RocketMQ 5 serve them; every message must be found, and found as it was sent.

Exit code 0: everything agrees; 1: something differs, or RocketMQ could not be run. Fetched jars stay below --directory.
"""

import argparse
import json
import random
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from tern_cli.app import app
from tests.interop.rocketmq import InteropFailed, RocketMQ, fetch_jars, running
from tests.interop.samples import Sample, from_a_mesh, of_every_kind

# Queries by key and by id of each store: an index is right for all keys or for none.
QUERIES = 60
DIFFERENCES_SHOWN_MAX = 5
# A broker answers with no more, so of a key that more messages share it must find this many.
FOUND_MAX = 64


class Comparison:
    """What was checked of one store, and what differs. Owner: the run."""

    def __init__(self, sample: Sample, table: Table) -> None:
        self._sample, self._table = sample, table
        self.differences: list[str] = []

    def check(self, what: str, compare: Callable[[], int]) -> None:
        """One row of the table: *compare* returns how many were checked and adds the differences it finds."""
        before = len(self.differences)
        checked = compare()
        found = len(self.differences) - before
        self._table.add_row(self._sample.name, what, f"{checked:,}", "agree" if not found else f"{found:,} DIFFER")

    def messages(self, broker: RocketMQ) -> int:
        """Every topic from offset 0 on: body, tag, keys, properties, queue, offset and order; nothing more, nothing less."""
        found: dict[tuple[str, int, int], dict[str, Any]] = {}
        for topic in sorted({topic for topic, _, _ in self._sample.expected}):
            last: dict[int, int] = {}
            for row in broker.ask("read", topic):
                place = (row["topic"], row["queue"], row["offset"])
                if row["offset"] <= last.get(row["queue"], -1):
                    self.differences.append(f"{place} was read behind {last[row['queue']]}")
                last[row["queue"]] = row["offset"]
                found[place] = row
        for place in sorted(self._sample.expected.keys() | found.keys()):
            self._compare(place, found.get(place))
        return len(self._sample.expected)

    def queries(self, broker: RocketMQ, word: str, places: dict[tuple[str, str], set[tuple[int, int]]]) -> int:
        """Some of *places* (topic and key, or id, to queue and offset), asked of the index."""
        rng = random.Random(1)
        chosen = rng.sample(sorted(places), min(QUERIES, len(places)))
        for topic, text in chosen:
            rows = broker.ask(word, topic, text)
            found = {(row["queue"], row["offset"]) for row in rows}
            sent = places[topic, text]
            if not found <= sent or len(found) < min(len(sent), FOUND_MAX):
                self.differences.append(f"{word} {text} of {topic}: found {sorted(found)}, sent {sorted(sent)}")
        return len(chosen)

    def _compare(self, place: tuple[str, int, int], row: dict[str, Any] | None) -> None:
        wanted = self._sample.expected.get(place)
        if wanted is None or row is None:
            self.differences.append(f"{place} is {'not exported' if wanted is None else 'not read'}")
            return
        for name, value in wanted.items():
            if row[name] != value:
                self.differences.append(f"{place}: {name} is {str(row[name])[:80]}, sent was {str(value)[:80]}")


def export(sample: Sample, target: Path) -> dict[str, Any]:
    """`ternmq store export`; its summary."""
    shutil.rmtree(target, ignore_errors=True)
    words = ["store", "export", str(target), "--data-dir", str(sample.directory), "-o", "json", *sample.options]
    done = CliRunner().invoke(app, words)
    if done.exit_code:
        raise InteropFailed(f"the export of {sample.name} failed: {done.output}")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def compare(sample: Sample, directory: Path, class_path: str, table: Table) -> list[str]:
    """Export *sample*, let RocketMQ serve it, and again after its own orderly end; the differences."""
    summary = export(sample, directory / "exported")
    comparison = Comparison(sample, table)
    by_key: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    by_id: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    for (topic, queue, offset), sent in sample.expected.items():
        by_id[topic, sent["properties"]["UNIQ_KEY"]].add((queue, offset))
        for key in sent["keys"].split():
            by_key[topic, key].add((queue, offset))
    with running(directory / "exported", directory / "run", class_path, summary["settings"]) as broker:
        comparison.check("messages", lambda: comparison.messages(broker))
        comparison.check("queries by key", lambda: comparison.queries(broker, "key", by_key))
        comparison.check("queries by message id", lambda: comparison.queries(broker, "id", by_id))
        broker.stop()
        broker.start()
        comparison.check("messages after a restart", lambda: comparison.messages(broker))
        comparison.check("queries by key after it", lambda: comparison.queries(broker, "key", by_key))
    return comparison.differences


def main() -> int:
    """Both samples; prints the table and, if there are any, the first differences."""
    parser = argparse.ArgumentParser(prog="make interop", description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path(".tern/interop"), help="where jars and stores are kept")
    directory: Path = parser.parse_args().directory
    table = Table("store", "checked", "how many", "Apache RocketMQ 5.5.0", title="make interop", title_justify="left")
    console = Console(width=None if sys.stdout.isatty() else 140)
    differences: list[str] = []
    shutil.rmtree(directory / "samples", ignore_errors=True)
    try:
        class_path = fetch_jars(directory)
        for make in (of_every_kind, from_a_mesh):
            sample = make(directory / "samples" / make.__name__, random.Random(5))
            differences += compare(sample, directory, class_path, table)
    except InteropFailed as failure:
        console.print(table)
        print(f"interop: {failure}", file=sys.stderr)
        return 1
    console.print(table)
    for difference in differences[:DIFFERENCES_SHOWN_MAX]:
        print(f"interop: {difference}", file=sys.stderr)
    return 1 if differences else 0


sys.exit(main())
