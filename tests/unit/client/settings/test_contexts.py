"""Named contexts and settings: what precedes what, and a file that decides where keys are sent."""

import os
import stat
import threading
from pathlib import Path

import pytest

from tern_client import ContextUnusable, EndpointMalformed, Settings
from tern_client.settings.contexts import (
    Contexts,
    change_contexts,
    check_context_name,
    context_of,
    contexts_file,
    read_contexts,
)
from tern_wire.errors import InvalidField

PROD = context_of(("https://mq.example.com",), namespace="shop", key_file="/keys/prod.key", ca_file="/keys/ca.crt")
LOCAL = context_of(("http://127.0.0.1:8080", "http://127.0.0.1:8081"))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The variables of a user with two contexts, prod the current one."""
    found = {"HOME": str(tmp_path)}
    file = contexts_file(found)
    change_contexts(file, lambda before: before.with_context("prod", PROD))
    change_contexts(file, lambda before: before.with_context("local", LOCAL))
    return found


def test_the_file_is_where_the_environment_says() -> None:
    """A variable of its own, then XDG's folder, then the home's."""
    home = {"HOME": "/homes/ann"}
    assert contexts_file(home) == Path("/homes/ann/.config/ternmq/contexts.json")
    assert contexts_file({**home, "XDG_CONFIG_HOME": "/etc/ann"}) == Path("/etc/ann/ternmq/contexts.json")
    assert contexts_file({**home, "TERNMQ_CONTEXTS_FILE": "/tmp/c.json"}) == Path("/tmp/c.json")


def test_contexts_are_read_as_they_were_written(environ: dict[str, str]) -> None:
    """By the owner alone; the first one is current, and a context that goes leaves none."""
    file = contexts_file(environ)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_contexts(file) == Contexts(current="prod", contexts={"prod": PROD, "local": LOCAL})
    assert change_contexts(file, lambda before: before.using("local")).current == "local"
    assert change_contexts(file, lambda before: before.without("local")) == Contexts(contexts={"prod": PROD})
    assert os.listdir(file.parent) == ["contexts.json"]


@pytest.mark.parametrize(
    ("variables", "context", "source", "expected"),
    [
        ({}, "", "the current context prod", PROD),
        ({"TERNMQ_CONTEXT": "local"}, "", "the context local", LOCAL),
        ({"TERNMQ_CONTEXT": "local"}, "prod", "the context prod", PROD),
        (
            {"TERNMQ_ENDPOINT": "http://a:1, http://b:2"},
            "",
            "TERNMQ_ENDPOINT",
            context_of(("http://a:1", "http://b:2")),
        ),
        ({"TERNMQ_ENDPOINT": "http://a:1"}, "prod", "the context prod", PROD),
        (
            {"TERNMQ_ENDPOINT": "http://a:1", "TERNMQ_CONTEXT": "prod"},
            "",
            "TERNMQ_ENDPOINT",
            context_of(("http://a:1",)),
        ),
    ],
)
def test_what_is_nearer_precedes(
    environ: dict[str, str], variables: dict[str, str], context: str, source: str, expected: object
) -> None:
    """An argument, the endpoint of the environment, its context, the current context. Where the
    endpoint comes from elsewhere, nothing of a context applies: its key is not sent there.
    """
    found = Settings.from_env({**environ, **variables}, context=context)
    assert found.source == source
    assert (
        context_of(found.endpoints, namespace=found.namespace, key_file=found.key_file, ca_file=found.ca_file)
        == expected
    )


def test_variables_precede_the_fields_of_a_context_unless_it_is_an_argument(environ: dict[str, str]) -> None:
    """As everywhere: what is said for this run counts more than what was stored."""
    variables = {**environ, "TERNMQ_NAMESPACE": "test", "TERNMQ_KEY_FILE": "/keys/mine"}
    found = Settings.from_env(variables)
    assert (found.namespace, found.key_file, found.ca_file) == ("test", "/keys/mine", "/keys/ca.crt")
    assert Settings.from_env(variables, context="prod").namespace == "shop"


def test_without_contexts_the_default_is_this_machine(tmp_path: Path) -> None:
    """No file is no error."""
    assert Settings.from_env({"HOME": str(tmp_path)}).endpoints == ("http://127.0.0.1:8080",)
    assert not (tmp_path / ".config").exists()


def test_an_unknown_context_is_named_with_those_that_are_known(environ: dict[str, str]) -> None:
    """In one sentence, with the command that helps."""
    with pytest.raises(ContextUnusable, match=r"no context 'pord'; known: local, prod\..*ternmq context ls"):
        Settings.from_env(environ, context="pord")


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(environ: dict[str, str], mode: int) -> None:
    """They could send the key elsewhere."""
    file = contexts_file(environ)
    file.chmod(mode)
    with pytest.raises(ContextUnusable, match="may be written by other users"):
        read_contexts(file)
    with pytest.raises(ContextUnusable):
        change_contexts(file, lambda before: before)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"contexts": {"a": {}}}', b'{"contexts": 3}', b"\xff"])
def test_a_damaged_file_is_refused_and_not_replaced(environ: dict[str, str], text: bytes) -> None:
    """Its contexts may be dear to somebody."""
    file = contexts_file(environ)
    file.write_bytes(text)
    with pytest.raises(ContextUnusable, match="does not hold contexts"):
        change_contexts(file, lambda before: before.with_context("new", LOCAL))
    assert file.read_bytes() == text


def test_a_later_release_is_read_and_not_changed(environ: dict[str, str]) -> None:
    """A change would lose what this release does not know."""
    file = contexts_file(environ)
    text = file.read_text().replace('"version": 1', '"version": 2, "colour": "red"')
    file.write_text(text)
    assert read_contexts(file).named("prod") == PROD
    with pytest.raises(ContextUnusable, match="later release"):
        change_contexts(file, lambda before: before.using("local"))
    assert file.read_text() == text


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    """Each waits for the one before it."""
    file = tmp_path / "contexts.json"

    def add(number: int) -> None:
        change_contexts(file, lambda before: before.with_context(f"c{number}", LOCAL))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(read_contexts(file).contexts) == {f"c{number}" for number in range(20)}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """With the variable that chooses another file."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(ContextUnusable, match="TERNMQ_CONTEXTS_FILE"):
        change_contexts(tmp_path / "taken" / "contexts.json", lambda before: before)


def test_malformed_contexts_are_refused_when_they_are_made() -> None:
    """Not when a program uses them."""
    with pytest.raises(EndpointMalformed):
        context_of(("mq.example.com",))
    with pytest.raises(EndpointMalformed):
        context_of(())
    with pytest.raises(InvalidField):
        context_of(("http://a:1",), namespace="no spaces")
    for name in ("", " a", "a\n", "a" * 65):
        with pytest.raises(InvalidField):
            check_context_name(name)
    assert context_of(("http://a:1",), key_file="mine.key").key_file == os.path.abspath("mine.key")
