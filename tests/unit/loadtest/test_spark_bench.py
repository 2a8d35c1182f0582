"""The bench of Spark, without Spark: its rows, its rounds, its CPU by kind of process, and the bars of its figures."""

import random
from pathlib import Path

import msgspec
import pytest

from loadtest.bench.figures import BARS
from loadtest.bench.spark.engine import Process, descendants, processes
from loadtest.bench.spark.rounds import figure_of, measure
from loadtest.bench.spark.rows import BATCH_MESSAGES, BODY_SIZE_BYTES, batches

COSTS = ("jvm", "python", "brokers", "proxy", "driver")


def test_rows_have_a_kibibyte_each_and_a_key_of_their_own() -> None:
    """Two batches; every body is JSON, and the same seed makes the same rows."""
    requests = list(batches(2 * BATCH_MESSAGES, random.Random(1)))
    rows = [row for request in requests for row in msgspec.msgpack.decode(request.body)["messages"]]
    assert {len(row["body"]) for row in rows} == {BODY_SIZE_BYTES}
    assert [msgspec.json.decode(row["body"])["id"] for row in rows] == list(range(2 * BATCH_MESSAGES))
    assert len({tuple(row["keys"]) for row in rows}) == 2 * BATCH_MESSAGES
    assert requests == list(batches(2 * BATCH_MESSAGES, random.Random(1)))


def test_rounds_alternate_and_warm_ups_do_not_count() -> None:
    """Order of the runs, times by the clock, and CPU a row by kind."""
    ran: list[str] = []
    used = {"jvm": 0.0, "python": 0.0}
    now_s = [0.0]

    def work(name: str, seconds: float) -> None:
        ran.append(name)
        now_s[0] += seconds
        used["jvm"] += seconds / 2

    found = measure(
        {"a": lambda: work("a", 1.0), "b": lambda: work("b", 4.0)},
        1_000_000,
        lambda: dict(used),
        rounds=3,
        warm_ups=1,
        clock=lambda: now_s[0],
    )
    assert "".join(ran) == "ababbaab"
    assert (found["a"].seconds, found["b"].per_s) == ([1.0] * 3, 250_000)
    assert found["b"].cpu() == {"jvm": 2.0, "python": 0.0}


def test_a_figure_has_its_ratio_its_costs_and_its_bars() -> None:
    """Python workers alone, and brokers with the proxy, are what the bars hold."""
    meter = iter(range(100))

    def used() -> dict[str, float]:
        turn = next(meter)
        return {kind: turn * (1.0 if kind != "python" else 4.0) for kind in COSTS}

    clock = iter([0.0, 2.0, 2.0, 5.0] * 2)
    found = measure(
        {"ours": lambda: None, "theirs": lambda: None}, 10**6, used, rounds=1, warm_ups=0, clock=clock.__next__
    )
    row = figure_of("spark_read", found["ours"], found["theirs"]).document()
    assert (row["value"], row["ceiling"], row["ratio"], row["pairwise_ratio"]) == (500_000, 333_333, 1.5, 1.5)
    assert (row["python_us"], row["mesh_us"], row["total_us"]) == (4.0, 2.0, 8.0)
    assert [text.rpartition(" ")[2] for text in row["bars"]] == ["met", "MISSED", "met"]
    assert len(row["bars"]) == sum(figure == "spark_read" for figure, _ in BARS)


def test_processes_below_another_are_found_however_deep(tmp_path: Path) -> None:
    """A table as in /proc, with a name that has a bracket and blanks, and entries that are no process."""
    for pid, name, parent in ((1, "init", 0), (7, "java", 1), (8, "a) (b", 7), (9, "python", 8), (10, "other", 1)):
        (tmp_path / str(pid)).mkdir()
        fields = " ".join(["0"] * 9 + ["100", "100", "300", "0"])
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} {fields}")
    (tmp_path / "self").mkdir()
    (tmp_path / "11").mkdir()
    found = processes(tmp_path)
    assert found[8] == Process(command="a) (b", parent=7, own_s=2.0, waited_s=3.0)
    assert sorted(descendants(7, found)) == [8, 9]
    assert sorted(descendants(1, found)) == [7, 8, 9, 10]


@pytest.mark.parametrize(
    ("figure", "ratio"),
    [
        ("spark_read", "ratio"),
        ("spark_heads", "ratio"),
        ("spark_sink_at_least_once", "pairwise_ratio"),
        ("spark_sink_exactly_once", "pairwise_ratio"),
    ],
)
def test_a_figure_of_the_issue_has_a_bar_on_its_ratio(figure: str, ratio: str) -> None:
    """Ratios, since seconds depend on the machine."""
    assert (figure, ratio) in BARS
