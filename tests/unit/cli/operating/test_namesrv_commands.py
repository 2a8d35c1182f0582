"""`ternmq namesrv` with two real name servers, and with one that is not there: what is shown, what is written, who did not take it."""

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_cli.mesh.plan import MeshShape, plan_mesh
from tern_wire.paths import REGISTER_PATH, kv_path
from tern_wire.routing.route import Registration, TopicRoute
from tests.support.mesh.stand_in_mesh import mesh_document

RUNNER = CliRunner()
DEAD = "http://127.0.0.1:9"
ORDER = ("ORDER_TOPIC_CONFIG", "orders")
LEADER = Registration(
    cluster="dev",
    broker_group="broker-a",
    node="broker-a-0",
    link="127.0.0.1:1",
    http="127.0.0.1:2",
    is_leader=True,
    term=3,
    topics={"orders": TopicRoute(topic_id=1, queues=8)},
)


@contextlib.contextmanager
def name_server() -> Iterator[str]:
    """A name server's URL; it is warm and knows one broker with one topic."""
    command = [sys.executable, "-m", "tern_namesrv", "--port", "0", "--warm-up-ms", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        url = f"http://127.0.0.1:{json.loads(process.stderr.readline())['port']}"
        # It listens already; the request waits until it serves.
        httpx.post(url + REGISTER_PATH, json=dataclasses.asdict(LEADER), timeout=20, trust_env=False).raise_for_status()
        yield url
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def two() -> Iterator[list[str]]:
    """Two of them; each test leaves them without configuration."""
    with name_server() as one, name_server() as other:
        yield [one, other]


def run(urls: list[str], *words: str) -> Result:
    """`ternmq namesrv WORDS --namesrv URL --namesrv URL`."""
    return RUNNER.invoke(app, ["namesrv", *words, *(word for url in urls for word in ("--namesrv", url))])


def put_at(url: str, value: str) -> None:
    """Configure one name server alone."""
    httpx.put(url + kv_path(*ORDER), json={"value": value}, trust_env=False).raise_for_status()


def failure_of(result: Result) -> dict[str, Any]:
    """The last line of stderr as JSON."""
    document: dict[str, Any] = json.loads(result.stderr.splitlines()[-1])["error"]
    return document


def test_status_shows_every_name_server_and_who_does_not_answer(two: list[str]) -> None:
    """Exit code 1 when one is missing; programs get each one's own words."""
    good = run(two, "status")
    assert good.exit_code == 0, good.output
    assert good.stdout.count("warm") == 2
    assert good.stdout.count("broker-a-0") == 2
    partly = run([*two, DEAD], "status", "-o", "json")
    rows = json.loads(partly.stdout)
    assert (partly.exit_code, [row["answers"] for row in rows]) == (1, [True, True, False])
    assert rows[0]["broker_groups"]["broker-a"]["leader"] == "broker-a-0"
    assert f"{DEAD}  no answer" in " ".join(run([*two, DEAD], "status").stdout.split()).replace(" no", "  no")


def test_configuration_is_written_to_every_name_server_and_read_back(two: list[str]) -> None:
    """Put, get, list, remove."""
    put = run(two, "kv", "put", *ORDER, "broker-a:8")
    assert (put.exit_code, "at 2 name servers" in put.stdout) == (0, True)
    assert run(two[1:], "kv", "get", *ORDER).stdout == "broker-a:8\n"
    listed = run(two, "kv", "ls", ORDER[0], "-o", "json")
    assert json.loads(listed.stdout) == [{"key": "orders", "value": "broker-a:8", "name_servers": "2/2"}]
    spaces = run(two, "kv", "ls", "-o", "json")
    assert json.loads(spaces.stdout) == [{"namespace": ORDER[0], "keys": 1, "name_servers": "2/2"}]
    removed = [json.loads(run(two, "kv", "rm", *ORDER, "-o", "json").stdout)["removed"] for _ in range(2)]
    assert removed == [True, False]
    gone = run(two, "kv", "get", *ORDER)
    assert (gone.exit_code, "There is no such configuration" in gone.stderr) == (1, True)


def test_who_did_not_take_it_is_named_and_what_differs_is_shown(two: list[str]) -> None:
    """The others have it; the command can be repeated."""
    partly = run([*two, DEAD], "kv", "put", *ORDER, "broker-a:8", "-o", "json")
    assert partly.exit_code == 1
    assert failure_of(partly)["title"] == "Not every name server has it"
    assert failure_of(partly)["lines"] == [f"{DEAD} does not answer."]
    put_at(two[1], "broker-a:4")
    read = run([*two, DEAD], "kv", "get", *ORDER)
    assert (read.exit_code, read.stdout) == (0, "broker-a:8\n")
    assert f"{two[1]} holds another value: broker-a:4" in read.stderr
    assert f"{DEAD} does not answer" in read.stderr
    rows = json.loads(run([*two, DEAD], "kv", "ls", ORDER[0], "-o", "json").stdout)
    assert [(row["value"], row["name_servers"]) for row in rows] == [("broker-a:8", "1/3"), ("broker-a:4", "1/3")]
    run(two, "kv", "rm", *ORDER)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["kv", "put", *ORDER, "nonsense"], "broker-a:8;broker-b:8"),
        (["kv", "put", "a b", "k", "v"], "A namespace is"),
        (["kv", "get", "NS", ""], "at least one letter"),
        (["route", "no topic"], "is not a topic name"),
        (["wipe-write", "Broker A"], "A broker group is"),
    ],
)
def test_what_is_asked_wrongly_is_exit_code_2(two: list[str], words: list[str], says: str) -> None:
    """With the name server's own reason."""
    wrong = run(two, *words)
    assert (wrong.exit_code, says in wrong.stderr) == (2, True), wrong.output


def test_a_route_shows_queues_permission_and_ordered_configuration(two: list[str]) -> None:
    """As RocketMQ's tools do."""
    run(two, "kv", "put", *ORDER, "broker-a:8")
    run(two, "wipe-write", "broker-a")
    shown = run(two, "route", "orders")
    assert shown.exit_code == 0, shown.output
    assert "Ordered configuration: broker-a:8" in shown.stdout
    line = next(line for line in shown.stdout.splitlines() if line.strip().startswith("broker-a "))
    assert line.split() == ["broker-a", "broker-a-0", "1", "8", "8", "R-"]
    document = json.loads(run(two, "route", "orders", "-o", "json").stdout)
    assert (document["topic"], document["queue_data"][0]["perm"]) == ("orders", 4)
    missing = run(two, "route", "nope")
    assert (missing.exit_code, "ternmq topic create nope" in missing.stderr) == (1, True)
    run(two, "kv", "rm", *ORDER)
    run(two, "restore-write", "broker-a")


def test_write_permission_is_withdrawn_and_restored_at_every_name_server(two: list[str]) -> None:
    """With how many topics that touches; a group that nobody knows is refused."""
    wiped = run(two, "wipe-write", "broker-a", "-o", "json")
    assert json.loads(wiped.stdout) == {"broker_group": "broker-a", "writable": False, "topics": 1, "name_servers": two}
    assert json.loads(run(two, "status", "-o", "json").stdout)[1]["wiped"] == ["broker-a"]
    restored = run(two, "restore-write", "broker-a")
    assert (restored.exit_code, restored.stdout) == (0, "broker-a may be written again: 1 topics, at 2 name servers.\n")
    unknown = run(two, "wipe-write", "broker-z")
    assert (unknown.exit_code, "known: broker-a" in unknown.stderr) == (1, True)


def test_name_servers_are_those_of_the_mesh_unless_they_are_named(two: list[str], tmp_path: Path) -> None:
    """mesh.json, the option once with commas, the variable; and nobody answering is a failure."""
    (tmp_path / "mesh.json").write_text(json.dumps(mesh_document(namesrvs=two)))
    for words, variables in (
        (["--data-dir", str(tmp_path)], {}),
        (["--namesrv", ",".join(two)], {}),
        ([], {"TERNMQ_NAMESRV": ",".join(two)}),
    ):
        shown = RUNNER.invoke(app, ["namesrv", "status", "-o", "json", *words], env=variables)
        assert [row["name_server"] for row in json.loads(shown.stdout)] == two
    nobody = run([DEAD], "kv", "ls")
    assert (nobody.exit_code, f"{DEAD} did not answer" in nobody.stderr) == (1, True)
    wrong = run(["nonsense"], "kv", "ls")
    assert wrong.exit_code == 2


def test_a_mesh_gives_its_name_servers_a_directory_each_and_everything_a_faster_pace() -> None:
    """What operators told outlives `down` and `up`; on one machine a killed broker is out of the tables in seconds."""
    plan = plan_mesh(MeshShape(namesrvs=2), data_dir="/tern", group_id="0" * 32, python="python")
    told = {process.name: " ".join(process.argv) for process in plan.processes}
    for name in ("namesrv-0", "namesrv-1"):
        assert (
            f"--data-dir /tern/data/{name} --expiry-ms 5000 --scan-interval-ms 500 --expected-broker-groups broker-a"
            in told[name]
        )
    assert "--heartbeat-interval-ms 2000" in told["broker-a-0"]
    assert "--route-interval-ms 1000" in told["proxy-0"]
