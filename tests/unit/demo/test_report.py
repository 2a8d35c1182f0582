"""What the demo shows and writes at its end, and what it refuses to kill."""

import io
from typing import Any

import pytest
from rich.console import Console

from tern_cli.demo.consuming import ReceiveLog
from tern_cli.demo.flights import delay_table, load_flights
from tern_cli.demo.leader import broker_processes, node_status
from tern_cli.demo.producing import SendLog
from tern_cli.demo.report import curl_lines, delay_heat_table
from tern_cli.demo.run import result_document
from tern_cli.demo.traffic import Traffic
from tern_cli.demo.verify import RunFigures
from tern_cli.failures import CommandFailed

BROKERS = [
    {"name": f"broker-a-{number}", "role": "broker", "pid": 100 + number, "ports": {"http": 7_000 + number}}
    for number in range(3)
]


def test_the_table_of_all_carriers_fits_into_a_terminal_of_80_columns() -> None:
    """Render the real table into 80 columns: nothing is cut, every carrier has its line, cells are whole minutes."""
    text = io.StringIO()
    console = Console(file=text, width=80, color_system=None)
    console.print(delay_heat_table(delay_table(load_flights()), is_sparks=True))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "\u2026" not in text.getvalue()
    frontier = next(line for line in lines if line.startswith("F9"))
    assert frontier.split() == [
        "F9",
        "Frontier",
        "Airlines",
        *["10", "30", "17", "25", "36", "29", "32", "22", "8", "10", "14", "13", "685"],
    ]
    assert len([line for line in lines if line[:2].isalnum() and line[2] == " "]) == 16


def test_the_result_file_has_exactly_the_promised_keys() -> None:
    """Other programs read .tern/demo/flights.json: the keys, and rates over the times of sending and receiving."""
    sends, receives = SendLog(now_ms=lambda: 0.0), ReceiveLog(now_ms=lambda: 0.0)
    sends.began_ms, sends.last_ms, sends.longest_gap_ms = 0.0, 2_000.0, 250.04
    receives.began_ms, receives.last_ms = 0.0, 4_000.0
    figures = RunFigures(
        flights=8_000,
        sent=8_000,
        received=8_008,
        acked=8_000,
        redelivered=8,
        distinct_ids=8_000,
        range_rows=8_000,
        settled_rows=8_000,
        spark_rows=8_000,
    )
    traffic = Traffic(
        group="g",
        starting={},
        ending={},
        committed={},
        sends=sends,
        receives=receives,
        batch_seconds=1.0,
        killed="broker-a-1",
        back_after_ms=1.0,
    )
    assert result_document(figures, traffic, seconds=9.5) == {
        "sent": 8_000,
        "received": 8_008,
        "acked": 8_000,
        "redelivered": 8,
        "distinct_ids": 8_000,
        "spark_rows": 8_000,
        "seconds": 9.5,
        "send_per_s": 4_000.0,
        "receive_per_s": 2_002.0,
        "leader_killed": True,
        "longest_send_gap_ms": 250.0,
    }


def test_the_curl_lines_name_this_run_s_first_message_and_group() -> None:
    """Three commands that can be pasted."""
    lines = curl_lines("http://127.0.0.1:1", "flights", "flights-7", {"broker-a:1": 5, "broker-a:0": 40})
    assert len(lines) == 3
    assert "/queues/broker-a:0/messages?offset=40&" in lines[0]
    assert "/groups/flights-7/receive" in lines[2]


@pytest.mark.parametrize("mesh", [{}, {"processes": []}, {"processes": BROKERS[:1]}])
def test_a_mesh_without_three_brokers_here_is_refused_before_anything_is_sent(mesh: dict[str, Any]) -> None:
    """--kill-leader would end the only broker, or find none."""
    with pytest.raises(CommandFailed, match="three brokers"):
        broker_processes(mesh)


def test_brokers_are_read_from_mesh_json_among_other_processes() -> None:
    """Only role broker counts, and fields that an older file lacks do not hurt."""
    others = [{"name": "proxy-0", "role": "proxy", "pid": 1, "ports": {"http": 1}}]
    found = broker_processes({"processes": [*others, *BROKERS]})
    assert [(broker.name, broker.pid, broker.start_ticks) for broker in found] == [
        ("broker-a-0", 100, 0),
        ("broker-a-1", 101, 0),
        ("broker-a-2", 102, 0),
    ]


def test_a_broker_that_does_not_answer_has_no_status() -> None:
    """A killed node is asked until it is back; refused connections are no error."""
    assert node_status(1) == {}
