"""The pure decisions of the supervisor, the plan of a mesh, and how received messages are written."""

import pytest

from tern_cli.failures import CommandFailed
from tern_cli.mesh.plan import (
    BOOTSTRAP,
    MeshShape,
    plan_from_document,
    plan_mesh,
    plan_to_document,
    shape_from_base,
)
from tern_cli.mesh.supervision import restart_delay_s, roles_to_stop
from tern_cli.mesh.supervisor import child_environment
from tern_cli.views.message_format import as_document, compile_format
from tern_client import ReceivedMessage


@pytest.mark.parametrize(
    ("exit_code", "uptime_s", "quick_deaths", "delay_s"),
    [
        (1, 0.1, 0, 0.2),
        (1, 0.1, 1, 0.4),
        (1, 0.1, 4, 3.2),
        (1, 0.1, 5, 5.0),
        (1, 0.1, 5_000, 5.0),
        (1, 2.9, 3, 1.6),
        (-9, 3.0, 0, 0.0),
        (-9, 3.0, 5, 0.0),
        (1, 60.0, 5, 0.0),
        (0, 0.1, 0, 0.2),
        (74, 60.0, 0, None),
        (78, 0.1, 0, None),
    ],
)
def test_a_crash_loop_backs_off_and_a_child_that_was_killed_starts_at_once(
    exit_code: int, uptime_s: float, quick_deaths: int, delay_s: float | None
) -> None:
    """74 is a disk that lied, 78 a wrong configuration: starting again would repeat the damage or the message."""
    assert restart_delay_s(exit_code, uptime_s, quick_deaths) == delay_s


@pytest.mark.parametrize(
    ("elapsed_s", "alive", "told"),
    [
        (0.0, {"proxy", "txn-checker", "broker", "namesrv"}, ["proxy", "txn-checker"]),
        (0.1, {"txn-checker", "broker", "namesrv"}, ["proxy", "txn-checker"]),
        (0.1, {"proxy", "broker", "namesrv"}, ["proxy", "txn-checker"]),
        (0.0, {"broker", "namesrv"}, ["proxy", "txn-checker", "broker"]),
        (0.0, {"namesrv"}, ["proxy", "txn-checker", "broker", "namesrv"]),
        (2.4, {"proxy", "broker", "namesrv"}, ["proxy", "txn-checker"]),
        (2.5, {"proxy", "txn-checker", "broker", "namesrv"}, ["proxy", "txn-checker", "broker"]),
        (6.5, {"proxy", "broker", "namesrv"}, ["proxy", "txn-checker", "broker", "namesrv"]),
    ],
)
def test_roles_are_stopped_one_after_the_other_but_none_waits_for_ever(
    elapsed_s: float, alive: set[str], told: list[str]
) -> None:
    """Proxies and checkers together, brokers, name servers; a deaf one holds the next up for seconds only."""
    assert roles_to_stop(elapsed_s, alive) == told


def test_a_plan_has_every_process_with_the_ports_that_the_options_say() -> None:
    """Node i of the broker group uses broker-port + 10 i and the two above; all know the same peers."""
    shape = MeshShape(proxies=2, namesrvs=2, segment_size_bytes=65_536)
    plan = plan_mesh(shape, data_dir="/d", group_id="ab", python="py")
    assert [process.name for process in plan.processes] == [
        *("namesrv-0", "namesrv-1", "broker-a-0", "broker-a-1", "broker-a-2", "proxy-0", "proxy-1"),
        "txn-checker-0",
    ]
    ports = [port for port, _, _ in plan.ports()]
    assert ports == [9876, 9877, 10911, 10912, 10913, 10921, 10922, 10923, 10931, 10932, 10933, 8080, 8081, 8090]
    broker = list(plan.processes[3].argv)
    assert broker[broker.index("--peers") + 1] == (
        "broker-a-0=127.0.0.1:10912,broker-a-1=127.0.0.1:10922,broker-a-2=127.0.0.1:10932"
    )
    assert broker[broker.index("--namesrv") + 1] == "http://127.0.0.1:9876,http://127.0.0.1:9877"
    assert broker[broker.index("--data-dir") + 1] == "/d/data/broker-a-1"
    assert broker[broker.index("--segment-size-bytes") + 1] == "65536"
    assert BOOTSTRAP in broker
    checker = list(plan.processes[-1].argv)
    assert checker[:4] == ["py", "-P", "-m", "tern_txn_checker"]
    assert checker[checker.index("--namesrv") + 1] == "http://127.0.0.1:9876,http://127.0.0.1:9877"
    assert checker[checker.index("--name") + 1] == "txn-checker-0"
    for caller in (checker, list(plan.processes[-2].argv)):
        assert caller[caller.index("--check-hosts") + 1] == "127.0.0.1,localhost,[::1]"
    assert plan.endpoints("proxy") == ["http://127.0.0.1:8080", "http://127.0.0.1:8081"]
    assert plan_from_document(plan_to_document(plan)) == plan


def test_a_port_base_moves_every_port_into_one_range() -> None:
    """Two meshes side by side need two bases that are a hundred apart."""
    shape = MeshShape(**shape_from_base({"brokers": 5, "proxies": 9, "namesrvs": 9, "checkers": 9}, 18_000))
    ports = [port for port, _, _ in plan_mesh(shape, data_dir="/d", group_id="ab", python="py").ports()]
    assert len(set(ports)) == len(ports) == 9 + 9 + 9 + 15
    assert min(ports) == 18_000
    assert max(ports) < 18_100


def test_children_get_an_environment_that_keeps_them_small() -> None:
    """And may write byte code: starting five processes without it costs a second."""
    environment = child_environment({"PATH": "/bin", "PYTHONDONTWRITEBYTECODE": "1"})
    assert environment["OPENBLAS_NUM_THREADS"] == "1"
    assert environment["MALLOC_ARENA_MAX"] == "2"
    assert environment["PATH"] == "/bin"
    assert "PYTHONDONTWRITEBYTECODE" not in environment


MESSAGE = ReceivedMessage(
    message_id="id",
    topic="t",
    queue="broker-a:3",
    offset=42,
    body=b"\xff\x00",
    content_type="",
    tag="A",
    keys=("k", "l"),
    properties={"p": "ü"},
    born_at=1,
    stored_at=2,
    attempt=1,
    receipt_handle="h",
    invisible_until=3,
)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("%v", b"\xff\x00"),
        (r"%q@%o\t%k\n", b"broker-a:3@42\tk l\n"),
        ("%p %s %a %t %i %d %h", '{"p": "ü"} 2 1 A id 1 h'.encode()),
        (r"100%% \q \\", rb"100% \q " + b"\\"),
        ("", b""),
    ],
)
def test_a_format_writes_a_message_byte_for_byte(text: str, written: bytes) -> None:
    """Bodies are bytes: nothing is decoded on the way."""
    assert compile_format(text)(MESSAGE) == written


def test_an_unknown_letter_in_a_format_is_named() -> None:
    """Before anything is received, so that no message is lost to a typing error."""
    with pytest.raises(CommandFailed, match="%z is not known") as failure:
        compile_format("%v %z")
    assert failure.value.exit_code == 2


def test_a_body_that_is_no_text_is_written_as_base64_in_json() -> None:
    """The same pair of names as the HTTP API's."""
    assert as_document(MESSAGE)["body_base64"] == "/wA="
