"""`ternmq publication`: what it asks a proxy, and what it shows."""

import json

from typer.testing import CliRunner

from tern_cli.app import app
from tern_wire.errors import PublicationNotFound
from tests.support.client.scripted_proxy import Reply, blocking_proxy, refused, said
from tests.support.mesh.shown_samples import ABANDONED, PUBLICATION, STAGE

RUNNER = CliRunner()
PATH = "/v1/publications"


def run(answer: Reply, *words: str) -> tuple[int, str, list[str]]:
    """A command at a proxy that says *answer*: its exit code, its output, and what was asked."""
    with blocking_proxy(lambda _: answer) as made:
        done = RUNNER.invoke(app, ["publication", *words, "--endpoint", made.url])
    return done.exit_code, done.output, [f"{each.method} {each.path}" for each in made.asked]


def test_queries_are_listed_also_those_that_have_published_nothing() -> None:
    """As a table for people, and whole for programs."""
    begun = {name: value for name, value in PUBLICATION.items() if name not in {"batch", "published_at"}}
    answer = said({"publications": [PUBLICATION, {**begun, "query": "new"}]})
    code, output, asked = run(answer, "ls")
    assert (code, asked) == (0, [f"GET {PATH}"])
    assert "2 queries, 2,048 messages staged." in output
    code, output, _ = run(answer, "ls", "-o", "json")
    assert (code, json.loads(output)) == (0, [PUBLICATION, {**begun, "query": "new"}])


def test_a_query_is_shown_with_its_stages() -> None:
    """And one that is not known is said to be so."""
    answer = said({**PUBLICATION, "staged": [STAGE]})
    code, output, asked = run(answer, "show", "nightly")
    assert (code, asked) == (0, [f"GET {PATH}/nightly"])
    assert "has published batch 41 with 12,000 messages; 1 stages, 1,024 messages." in " ".join(output.split())
    code, output, _ = run(answer, "show", "nightly", "-o", "json")
    assert json.loads(output)["staged"] == [STAGE]
    code, output, _ = run(refused(PublicationNotFound(query="nightly")), "show", "nightly")
    assert code == 1
    assert "nightly" in output


def test_a_batch_is_given_up_by_its_number() -> None:
    """What was dropped is told."""
    code, output, asked = run(said(ABANDONED), "rm", "nightly", "42")
    assert (code, asked) == (0, [f"DELETE {PATH}/nightly/batches/42"])
    assert "1 stages with 1,024 messages are dropped." in output
    code, output, _ = run(said(ABANDONED), "rm", "nightly", "42", "-o", "json")
    assert json.loads(output) == ABANDONED
    assert run(said(ABANDONED), "rm", "nightly", "--", "-1")[0] == 2
