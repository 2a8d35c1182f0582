"""`ternmq lease`: what it asks a proxy, and what it shows."""

import json

from typer.testing import CliRunner

from tern_cli.app import app
from tern_wire.errors import ReadLeaseNotFound
from tests.support.client.scripted_proxy import Reply, blocking_proxy, refused, said
from tests.support.mesh.shown_samples import LEASE

RUNNER = CliRunner()
PATH = "/v1/read-leases"


def run(answer: Reply, *words: str) -> tuple[int, str, list[str]]:
    """A command at a proxy that says *answer*: its exit code, its output, and what was asked."""
    with blocking_proxy(lambda _: answer) as made:
        done = RUNNER.invoke(app, ["lease", *words, "--endpoint", made.url])
    return done.exit_code, done.output, [f"{each.method} {each.path}" for each in made.asked]


def test_leases_are_listed_with_their_topics_and_reasons() -> None:
    """As a table for people, and whole for programs."""
    answer = said({"leases": [LEASE, {**LEASE, "lease": "x.broker-b", "broken_by": "topic 'bills' was deleted"}]})
    code, output, asked = run(answer, "ls")
    assert (code, asked) == (0, [f"GET {PATH}"])
    assert "2 read leases." in output
    code, output, _ = run(answer, "ls", "-o", "json")
    rows = json.loads(output)
    assert code == 0
    assert [row["broken_by"] for row in rows] == ["", "topic 'bills' was deleted"]
    assert rows[0] == LEASE


def test_a_lease_is_ended_by_its_name() -> None:
    """Which a second command does not find."""
    gone = Reply(status=204, body=b"", headers={})
    code, output, asked = run(gone, "rm", "5b1f.broker-a")
    assert (code, asked) == (0, [f"DELETE {PATH}/5b1f.broker-a"])
    assert "retention may drop its messages" in output
    code, output, _ = run(refused(ReadLeaseNotFound(lease="5b1f.broker-a")), "rm", "5b1f.broker-a")
    assert code == 1
    assert "5b1f.broker-a" in output
