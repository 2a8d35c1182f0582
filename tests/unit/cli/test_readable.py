"""What people read: times with their zone, durations with their unit, yes and no; never a number of 13 digits or a value as Python writes it."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tern_cli.app import app
from tern_cli.output import Format, show_rows
from tern_cli.readable import shown, shown_time
from tern_wire.times import duration_text, given_duration, parse_time_ms
from tests.support.client.scripted_proxy import Asked, Reply, blocking_proxy
from tests.support.files.node_directory import filled
from tests.support.mesh.bare_installation import leaves
from tests.support.mesh.shown_samples import KID, T, answer

RUNNER = CliRunner()
# Every command that asks a proxy and shows something.
AT_A_PROXY = f"""
send orders x
recv orders billing
request orders x
reply orders x --to broker-a:s --correlation-id c
offsets orders -g billing
msg get orders m1
msg find orders 4711
msg trace orders m1
scheduled ls orders
scheduled cancel orders r1
lease ls
lease rm 5b1f.broker-a
publication ls
publication show nightly
publication rm nightly 42
dlq ls billing
dlq show billing broker-a:17
dlq redrive billing --all
dlq task 5b1f
dlq cancel 5b1f
dlq purge billing --confirm billing
tx ls
tx show AQ-1
tx commit AQ-1 --reason x
tx rollback AQ-1
tx stats
topic create orders
topic alter orders -q 9
topic ls
topic describe orders
topic rm orders -y
topic stats orders
topic placement orders
topic place orders --broker-group broker-a
group create billing
group alter billing --fifo
group ls
group describe billing
group rm billing -y
group lag billing
group seek billing orders --to latest
group members billing
group assignments billing orders
group locks billing orders
producer-group create shop
producer-group ls
producer-group describe shop
producer-group rm shop -y
key create shop
key ls
key revoke shop {KID} -y
acl grant shop PUB --topic orders
acl deny shop PUB --topic orders
acl remove shop PUB --topic orders
acl ls
acl check shop PUB --topic orders
acl quota shop
broker-group ls
broker-group show broker-a
"""
# At name servers and brokers.
AT_NAME_SERVERS = """
namesrv status
namesrv route orders
namesrv wipe-write broker-a
namesrv restore-write broker-a
namesrv kv get ORDER orders
namesrv kv put ORDER orders broker-a:8
namesrv kv rm ORDER orders
namesrv kv ls
broker-group restore broker-a
raft status
raft digests
raft blocked
raft choose broker-a-0 -y
raft pass-over 7 -y
raft transfer-leader --to broker-a-0
"""
IN_A_DIRECTORY = """
store stat
store verify
store dump -o table --what records
store dump -o table --what entries
store dump -o table --what queues
store dump -o table --what index
store dump -o table --what timers
store dump -o table --what state
"""
# What these show is read where it is made: a mesh that runs, files that are written, a demo's report. They show no document of the wire.
ELSEWHERE = {
    # What jobs print is in unit/spark/jobs; the zip is in test_spark_bundle.
    *("spark run", "spark zip"),
    *("serve", "up", "down", "status", "init-cluster", "backup", "restore", "demo flights", "demo transfer"),
    # test_context_commands and mesh/test_definitions look at what they print.
    *("definitions export", "definitions apply"),
    *("context add", "context ls", "context show", "context use", "context rm"),
    # It prints what handlers print; its own lines are in cli/worker/test_worker_command.
    "worker",
    # It shows raw times beside local ones; its lines are in commands/test_tail_commands.
    "tail",
    *("store export", "store import", "broker-group join", "broker-group drain"),
}
RAW = {
    "ms since 1970": re.compile(r"(?<![\w.])1[5-9]\d{11}(?!\w)"),
    "a value as Python has it": re.compile(r"(?<![\w'])(True|False|None)(?![\w'])"),
    "a list or map as Python has it": re.compile(r"[\[{(]'|'[\]})]|\[\]|\{\}"),
    "a duration in raw ms": re.compile(r"(?<![\w:.])\d{4,} ms\b"),
    "a time without its zone": re.compile(r"\d\d:\d\d:\d\d(\.\d+)?(?![\d.Z+-])"),
}


def raw_in(text: str) -> list[str]:
    """What of *text* nobody should have to read."""
    return [f"{what}: {found.group()}" for what, pattern in RAW.items() if (found := pattern.search(text))]


def words_of(lines: str) -> list[str]:
    """The command lines of a table."""
    return [line for line in lines.splitlines() if line]


@pytest.fixture(scope="module")
def everything() -> Iterator[str]:
    """Where a proxy, a name server and a broker answer with samples."""

    def answered(asked: Asked) -> Reply:
        found = answer(asked)
        assert found is not None, f"{asked.method} {asked.path} has no sample"
        return found

    with blocking_proxy(answered) as made:
        yield made.url


@pytest.mark.parametrize("words", [*words_of(AT_A_PROXY), *words_of(AT_NAME_SERVERS)])
def test_no_command_shows_people_what_is_for_programs(words: str, everything: str) -> None:
    """On stdout or stderr, as a table or as a sentence; and the same command's JSON keeps the values as they are."""
    where = "--endpoint" if words in AT_A_PROXY else "--namesrv"
    done = RUNNER.invoke(app, [*words.split(), where, everything])
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    assert not raw_in(done.output), done.output


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node's directory with some of everything."""
    return filled(tmp_path_factory.mktemp("readable") / "node").directory


@pytest.mark.parametrize("words", words_of(IN_A_DIRECTORY))
def test_no_command_shows_people_raw_values_of_files(words: str, node: Path) -> None:
    """The same for what is read from a stopped node."""
    done = RUNNER.invoke(app, [*words.split(), "--data-dir", str(node)])
    assert done.exit_code == 0, done.output
    assert not raw_in(done.output), done.output


def test_every_command_of_the_tree_is_looked_at() -> None:
    """A new command has a line here, or a reason."""
    looked = words_of(AT_A_PROXY + AT_NAME_SERVERS + IN_A_DIRECTORY)
    tree = [name for name, _ in leaves(get_command(app))]
    missing = [
        name for name in tree if name not in ELSEWHERE and not any(f"{each} ".startswith(f"{name} ") for each in looked)
    ]
    assert not missing
    assert set(tree) >= ELSEWHERE


@pytest.mark.parametrize(
    "text",
    [f"dead at {T}", "replayed False", "keys ['4711']", "keys []", "rests 60000 ms", "at 12:00:00.5 today", "None"],
)
def test_the_search_for_raw_values_finds_them(text: str) -> None:
    """A check that cannot fail would be none."""
    assert raw_in(text)
    assert not raw_in("dead at 2026-11-23T14:18:26.084+01:00, 60 s, 4711, yes, [OPTIONS], 999 ms")


def test_programs_get_the_raw_values(everything: str) -> None:
    """Exactly those of the wire."""

    def document(words: str) -> Any:
        done = RUNNER.invoke(app, [*words.split(), "-o", "json", "--endpoint", everything])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    assert document("dlq ls billing")["messages"][0]["dlq"]["dead_at"] == T
    assert document("msg find orders 4711")["messages"][0]["keys"] == ["4711", "4712"]
    assert document("topic stats orders")["queues"][1]["last_visible_at"] is None
    assert document("group describe billing")["invisible_ms"] == 60_000
    assert document("group lag billing")["topics"][0]["queues"][0]["committed"] is None
    assert document("scheduled ls orders")[0]["deliver_at"] == T
    assert document("send orders x")["replayed"] is False


def test_times_are_shown_in_the_zone_of_who_looks_and_can_be_typed_again() -> None:
    """With its offset; milliseconds are kept, so that --from finds what was shown."""
    with pytest.MonkeyPatch.context() as patch:
        for zone, text in (("UTC", "2026-11-23T13:11:46.084Z"), ("Asia/Kolkata", "2026-11-23T18:41:46.084+05:30")):
            patch.setenv("TZ", zone)
            time.tzset()
            assert shown_time(T) == text
            assert parse_time_ms(text) == T
    assert shown_time(0) == ""
    assert "after 1970" in shown_time(10**17)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 ms"),
        (1.5, "1.5 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (1_500, "1.5 s"),
        (60_000, "60 s"),
        (90_000, "90 s"),
        (119_999, "119.999 s"),
        (120_000, "2 min"),
        (125_400, "2 min 5 s"),
        (3_600_000, "60 min"),
        (7_200_000, "2 h"),
        (86_400_000, "24 h"),
        (40 * 86_400_000, "40 d"),
        (99 * 3_600_000, "99 h"),
        (90_061_000, "1 d 1 h 1 min 1 s"),
        (-2_000, "-2 s"),
    ],
)
def test_durations_have_a_unit(duration_ms: float, text: str) -> None:
    """One, where the number stays whole."""
    assert duration_text(duration_ms) == text


def test_a_value_is_read_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns and facts alike; what looks like markup stays as it is."""
    assert [shown("x", value) for value in (None, True, False, [], ["a", "b"], {"a": 1}, "x", 7)] == [
        *("-", "yes", "no", "", "a, b", "a=1", "x", "7"),
    ]
    assert (shown("dead_at", 0), shown("wait_ms", 60_000), shown("lag_ms", None)) == ("-", "60 s", "-")
    show_rows([{"name": "[red]x[/red]", "wait_ms": 2_000}], ("name", "wait_ms"), Format.TABLE)
    written = capsys.readouterr().out
    assert "[red]x[/red]" in written
    assert "wait ms" not in written


# Limits -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("recv orders billing --wait 99h", "--wait is 99h; at most 30 s."),
        ("recv orders billing --wait 60000", "--wait is 60 s (60000); at most 30 s."),
        ("recv orders billing --invisible 99999999d", "--invisible is 99999999d; use 1 s to 12 h."),
        ("recv orders billing --invisible 10ms", "--invisible is 10ms; use 1 s to 12 h."),
        ("request orders x --timeout 5m", "--timeout is 5m; use 1 ms to 30 s."),
        ("group create billing --invisible 13h", "--invisible is 13h; use 1 s to 12 h."),
        ("group create billing --retry 1s,41d", "--retry is 41d; at most 40 d."),
        ("group create billing --retry 1ms*2..2h", "--retry is 1ms; use 100 ms to 40 d."),
        ("producer-group create shop --timeout 2h", "--timeout is 2h; use 100 ms to 30 s."),
        ("producer-group create shop --check-after 2h", "--check-after is 2h; use 100 ms to 60 min."),
        ("producer-group create shop --check-interval 1ms", "--check-interval is 1ms; use 100 ms to 60 min."),
    ],
)
def test_a_duration_out_of_range_is_told_as_it_was_typed(words: str, sentence: str) -> None:
    """With what is allowed, before anybody is asked."""
    done = RUNNER.invoke(app, [*words.split(), "--endpoint", "http://127.0.0.1:1"])
    assert done.exit_code == 2, done.output
    assert sentence in done.output


def test_a_duration_that_was_given_as_a_number_is_told_with_its_unit() -> None:
    """The SDK sends milliseconds; whoever reads the answer has typed something else."""
    assert given_duration(356_400_000) == "99 h (356400000)"
    assert given_duration("99h") == "99h"
    assert given_duration("9" * 80) == "9" * 40


# The command itself -----------------------------------------------------------------------------------------------
def test_the_version_is_told() -> None:
    """Of the installation, with the Python that runs it; also as a program of its own."""
    done = RUNNER.invoke(app, ["--version"])
    assert done.exit_code == 0, done.output
    assert re.fullmatch(r"ternmq \d+\.\d+\S* \(Python 3\.\d+\.\d+\)\n", done.output)
    command = [sys.executable, "-m", "tern_cli", "--version"]
    alone = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=dict(os.environ))
    assert alone.stdout == done.output
