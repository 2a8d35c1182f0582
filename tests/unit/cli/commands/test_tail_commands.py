"""`ternmq tail` against a scripted proxy: what is asked, what is printed, how it ends."""

import json

import pytest
from typer.testing import CliRunner

from tern_cli.app import app
from tern_cli.live.lines import body_of
from tern_wire.errors import TopicNotFound
from tests.support.client.scripted_proxy import blocking_proxy, refused
from tests.support.client.tail_events import IDLE, START, message, stream

RUNNER = CliRunner()


def test_messages_are_lines_for_people_or_json() -> None:
    """Local time beside the raw one, place, tag and body; no colours where there is no terminal."""
    skipped = {"event": "skipped", "data": {"count": 3}}
    with blocking_proxy(lambda _: stream(START, skipped, message(7, b"\xff\x00"), message(8), IDLE)) as proxy:
        words = ["tail", "orders", "--endpoint", proxy.url, "--idle", "0s"]
        shown = RUNNER.invoke(app, [*words, "--since", "10m", "-n", "5"])
        rows = RUNNER.invoke(app, [*words, "--earliest", "-o", "json"])
        asked = [each.path for each in proxy.asked]
    assert (shown.exit_code, rows.exit_code) == (0, 0)
    first, second = shown.stdout.splitlines()
    assert first.split(" ", 1)[1] == "2 broker-a:0 7 [new] 0xff00"
    assert first.startswith("19")
    assert second.endswith("8 [new] 8")
    assert "3 messages were dropped" in shown.stderr
    documents = [json.loads(line) for line in rows.stdout.splitlines()]
    assert [each.get("body", each.get("body_base64")) for each in documents] == ["/wA=", "8"]
    assert "since=10m" in asked[0]
    assert "max_messages=5" in asked[0]
    assert "from=earliest" in asked[1]


def test_failures_are_told_and_no_traceback() -> None:
    """An unknown topic, two filters, two begins; and Ctrl-C."""
    with blocking_proxy(lambda _: refused(TopicNotFound(topic="orders"))) as proxy:
        failed = RUNNER.invoke(app, ["tail", "orders", "--endpoint", proxy.url])
        assert (failed.exit_code, "does not exist" in failed.stderr) == (1, True)
        for options in (["--tags", "a", "--sql", "b"], ["--since", "1m", "--earliest"]):
            wrong = RUNNER.invoke(app, ["tail", "orders", *options, "--endpoint", proxy.url])
            assert wrong.exit_code == 2

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tern_client.blocking.tailing.BlockingTail.__iter__", interrupted)
        stopped = RUNNER.invoke(app, ["tail", "orders", "--endpoint", "http://127.0.0.1:9"])
    assert (stopped.exit_code, stopped.stderr) == (130, "")


def test_a_body_is_one_line_that_no_terminal_obeys() -> None:
    """Line ends and escapes are shown, and text of every script stays."""
    assert body_of("grün ✓".encode()) == "grün ✓"
    assert body_of(b"a\nb\x1b[31m\tc") == r"a\nb\x1b[31m\tc"
