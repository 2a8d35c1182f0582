"""`make install` names a slow build of Python, and no other."""

import subprocess
import sys
from pathlib import Path

import pytest

from deploy import interpreter

SCRIPT = Path(interpreter.__file__)


@pytest.mark.parametrize(
    ("configured_with", "prefix", "is_fast"),
    [
        ("'--prefix=/root/.pyenv/versions/3.11.7' '--enable-shared'", "/root/.pyenv/versions/3.11.7", False),
        ("'--build=x86_64-linux-gnu' '--enable-optimizations' '--with-lto'", "/usr/local", True),
        ("'--prefix=/usr' '--with-dtrace'", "/usr", True),
        ("", "/opt/python", False),
    ],
    ids=["pyenv", "official image", "distribution", "unknown"],
)
def test_a_slow_build_is_named_with_what_is_faster(configured_with: str, prefix: str, is_fast: bool) -> None:
    """One line either way."""
    line = interpreter.describe("3.11.7", configured_with, prefix)
    assert line.startswith("install: making .venv/ with Python 3.11.7")
    assert ("slower" not in line, "PYTHON=" not in line) == (is_fast, is_fast)
    assert "\n" not in line


def test_it_runs_as_make_runs_it_and_with_any_python() -> None:
    """By its path, without our packages; what it says of this Python is one line."""
    done = subprocess.run([sys.executable, "-I", str(SCRIPT)], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.count("\n") == 1
    assert done.stdout.startswith("install: making .venv/ with Python 3.")


def test_an_old_python_is_told_which_one_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1, nothing made."""
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    assert interpreter.main() == 1
    assert "make PYTHON=python3.11" in capsys.readouterr().err
