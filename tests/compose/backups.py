"""A backup of the deployment under load, and the deployment again out of a backup, as deploy/README.md says."""

import json
import time
from typing import Any

from tests.compose.acceptance import Run, messages_and_transactions, nothing_is_lost
from tests.compose.engine import PROJECT

BROKERS = ("broker-a-0", "broker-a-1", "broker-a-2")
IMAGE = "ternmq/mesh:0.1.0"
_PLACE = "/backup/broker-a"
_WITHIN_S = 300.0


def backup_and_restore(run: Run) -> None:
    """Whole and verified under load; brought up to date, it is all that there is: brokers with empty volumes begin again with it."""
    began_s = time.monotonic()
    with run.load("backup"):
        _backup(run)
    run.figures["backup_s"] = round(time.monotonic() - began_s, 1)
    nothing_is_lost(run)
    run.figures["backup"] = _backup(run)
    _tool(run, "store", "verify", "--data-dir", _PLACE)
    engine = run.engine
    engine.compose("rm", "-s", "-f", *BROKERS)
    volumes = [f"{PROJECT}_data-{name}" for name in BROKERS]
    engine.docker("volume", "rm", *volumes)
    engine.compose("up", "--no-start", "--no-build", *BROKERS)
    mounts = [
        part for name, volume in zip(BROKERS, volumes, strict=True) for part in ("-v", f"{volume}:/volumes/{name}")
    ]
    nodes = [part for name in BROKERS for part in ("--node", name)]
    began_s = time.monotonic()
    engine.docker(
        *("run", "--rm", "--network", "none", "-v", f"{PROJECT}_backup:/backup:ro", *mounts, IMAGE),
        *("ternmq", "restore", _PLACE, "--data-dir", "/volumes", *nodes),
        within_s=_WITHIN_S,
    )
    engine.compose("up", "-d", "--wait", "--no-build")
    run.figures["restore_s"] = round(time.monotonic() - began_s, 1)
    nothing_is_lost(run)
    messages_and_transactions(run)


def _backup(run: Run) -> dict[str, Any]:
    told = _tool(run, "backup", _PLACE, "-o", "json")
    document: dict[str, Any] = json.loads(told[told.index("{") :])
    return document


def _tool(run: Run, *arguments: str) -> str:
    return run.engine.compose("run", "--rm", "-T", "ternmq", *arguments, within_s=_WITHIN_S)
