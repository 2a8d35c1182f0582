"""Logs: one event is one line, whatever is in it."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tern_service import setup_logs
from tern_service.logs import TEXT_LENGTH_MAX


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Logging is the process's: give it back as it was."""
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn.error")
    handlers, level, uvicorn_level = list(root.handlers), root.level, uvicorn.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    uvicorn.setLevel(uvicorn_level)


def test_without_a_terminal_an_event_is_a_json_line_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers stay numbers."""
    setup_logs("namesrv")
    logging.getLogger("a.b").warning("node %s left", "n1", extra={"term": 3, "odd": object})
    event = json.loads(capsys.readouterr().err)
    assert event["event"] == "node n1 left"
    assert (event["level"], event["service"], event["logger"], event["term"]) == ("WARNING", "namesrv", "a.b", 3)
    assert event["time"].endswith("Z")


@pytest.mark.parametrize("as_json", [True, False])
def test_control_characters_cannot_make_a_second_line(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    """Neither in the message nor in a field, nor by Unicode's line ends or a terminal's escapes."""
    setup_logs("x", json=as_json)
    evil = "a\nb\r\x1b[2Jc\x85d\u2028e\x00\ud800"
    logging.getLogger("t").error("%s", evil, extra={"field": evil})
    line = capsys.readouterr().err.removesuffix("\n")
    assert len(line.splitlines()) == 1
    assert "\x1b[2J" not in line
    assert "\x00" not in line


def test_an_event_has_a_bounded_length(capsys: pytest.CaptureFixture[str]) -> None:
    """A client cannot fill the disk with one value."""
    setup_logs("x", json=True)
    logging.getLogger("t").error("m" * 1_000_000, extra={"field": "f" * 1_000_000})
    assert len(capsys.readouterr().err) < 3 * TEXT_LENGTH_MAX


def test_a_traceback_is_part_of_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The cause is in it."""
    setup_logs("x", json=True)
    try:
        raise ValueError("the cause")
    except ValueError:
        logging.getLogger("t").exception("failed")
    assert "ValueError: the cause" in json.loads(capsys.readouterr().err)["traceback"]


def test_events_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """And the level is settable."""
    setup_logs("x", level="warning", json=True)
    logging.getLogger("t").info("quiet")
    assert capsys.readouterr().err == ""


def test_logs_and_settings_do_not_import_the_web_framework() -> None:
    """The command line's start-up depends on it."""
    code = "import sys, tern_service.logs; from tern_service import load_settings; print('fastapi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
