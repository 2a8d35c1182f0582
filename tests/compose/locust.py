"""Locust in a container against the deployment: profile load, without its page."""

import csv
import io

from tests.compose.acceptance import Run

USERS, SECONDS = 100, 120
_WITHIN_S = 420.0
_FILE, _HOST, _REPORT = "/opt/ternmq/load/loadtest/locustfile.py", "https://proxy-0:8443", "/data/report"
_PROFILE = ("--profile", "load")


def users(run: Run) -> None:
    """100 users for 2 minutes: no request fails that ought not to, what was sent, stored and acked agrees, and there is a report."""
    told = run.engine.compose(
        *(
            *_PROFILE,
            "run",
            "--rm",
            "-T",
            "load",
            "locust",
            "-f",
            _FILE,
            "--host",
            _HOST,
            "--headless",
            "--only-summary",
        ),
        *("-u", str(USERS), "-r", str(USERS), "-t", f"{SECONDS}s", "--html", f"{_REPORT}.html", "--csv", _REPORT),
        within_s=_WITHIN_S,
    )
    assert "The totals agree." in told, told[-2_000:]
    rows = {row["Name"]: row for row in csv.DictReader(io.StringIO(_read(run, f"{_REPORT}_stats.csv")))}
    total = rows["Aggregated"]
    failures = {name: row["Failure Count"] for name, row in rows.items() if row["Failure Count"] != "0"}
    assert not failures, f"requests failed: {failures}"
    assert "<html" in _read(run, f"{_REPORT}.html").lower()
    run.figures["locust"] = {
        "users": USERS,
        "requests": int(total["Request Count"]),
        "requests_per_s": round(float(total["Requests/s"]), 1),
        "p50_ms": float(total["50%"]),
        "p99_ms": float(total["99%"]),
    }


def _read(run: Run, path: str) -> str:
    return run.engine.compose(*_PROFILE, "run", "--rm", "-T", "--no-deps", "--entrypoint", "cat", "load", path)
