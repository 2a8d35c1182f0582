"""A process takes the descriptors that its own limits add up to, or says at its start why it cannot."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tern_service.connections.descriptors import RESERVE, need_descriptors
from tern_service.settings import EXIT_CONFIG, SettingsError


class Limits:
    """Stands in for the kernel's: a soft and a hard limit of this process. Owner: one test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, ceiling: int = 1 << 30) -> None:
        self.now, self._ceiling = (soft, hard), ceiling
        monkeypatch.setattr(resource, "getrlimit", lambda kind: self.now)
        monkeypatch.setattr(resource, "setrlimit", self._set)

    def _set(self, kind: int, limits: tuple[int, int]) -> None:
        assert kind == resource.RLIMIT_NOFILE
        if limits[0] > self._ceiling:
            raise ValueError("current limit exceeds maximum limit")
        self.now = limits


def test_the_soft_limit_is_raised_to_the_sum_and_never_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections, files and a reserve; the hard limit stays as it is."""
    low = Limits(monkeypatch, 1_024, 20_000)
    need_descriptors("the broker", connections=3_000, files=500)
    assert low.now == (3_500 + RESERVE, 20_000)
    high = Limits(monkeypatch, 16_384, 20_000)
    need_descriptors("the broker", connections=3_000, files=500)
    assert high.now == (16_384, 20_000)
    endless = Limits(monkeypatch, resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    need_descriptors("the broker", connections=3_000, files=500)
    assert endless.now == (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def test_growth_is_taken_as_far_as_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be needed one day refuses no start: a log grows for months."""
    wide = Limits(monkeypatch, 1_024, 20_000)
    need_descriptors("the broker", connections=3_000, files=500, growth=2_000)
    assert wide.now == (5_500 + RESERVE, 20_000)
    narrow = Limits(monkeypatch, 1_024, 4_096)
    need_descriptors("the broker", connections=3_000, files=500, growth=2_000)
    assert narrow.now == (4_096, 4_096)
    ruled = Limits(monkeypatch, 1_024, resource.RLIM_INFINITY, ceiling=4_000)
    need_descriptors("the broker", connections=3_000, files=500, growth=2_000)
    assert ruled.now == (3_500 + RESERVE, resource.RLIM_INFINITY)


@pytest.mark.parametrize(("hard", "ceiling"), [(1_024, 1 << 30), (resource.RLIM_INFINITY, 1_024)])
def test_too_low_a_hard_limit_is_refused_in_one_sentence(
    hard: int, ceiling: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it needs, what there is, how to raise it; the kernel may refuse more than the hard limit says."""
    limits = Limits(monkeypatch, 512, hard, ceiling)
    with pytest.raises(SettingsError) as refused:
        need_descriptors("the broker", connections=3_000, files=500)
    assert refused.value.code == EXIT_CONFIG
    needed = 3_500 + RESERVE
    said = capsys.readouterr().err
    assert f"the broker may need {needed:,} open files" in said
    assert ("the hard limit is 1,024" if hard == 1_024 else "more than the system allows") in said
    assert f"ulimit -Hn {needed}" in said
    assert said.count("\n") == 1
    assert limits.now == (512, hard)


ARGUMENTS = {
    "tern_namesrv": ["--port", "0"],
    "tern_broker": ["--peers", "broker-a-0=127.0.0.1:10912", "--group-id", "0" * 32, "--http-port", "0"],
    "tern_proxy": ["--port", "0", "--namesrv", "http://127.0.0.1:1"],
    "tern_txn_checker": ["--port", "0", "--namesrv", "http://127.0.0.1:1"],
}


def test_every_process_refuses_to_start_below_what_it_may_need(tmp_path: Path) -> None:
    """Else strangers within the caps of its ports take what its files need, at some later time."""
    key = tmp_path / "cluster.key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    started = {}
    for module, arguments in ARGUMENTS.items():
        options = list(arguments)
        if module != "tern_namesrv":
            options += ["--cluster-key-file", str(key)]
        if module in {"tern_namesrv", "tern_broker"}:
            options += ["--data-dir", str(tmp_path / module)]
        started[module] = subprocess.Popen(
            ["/bin/sh", "-c", 'ulimit -n 400 && exec "$@"', "sh", sys.executable, "-m", module, *options],
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("TERN_")},
        )
    try:
        for module, process in started.items():
            _, said = process.communicate(timeout=60)
            assert (module, process.returncode) == (module, EXIT_CONFIG), said
            assert "the hard limit is 400" in said
    finally:
        for process in started.values():
            process.kill()
            process.communicate()
