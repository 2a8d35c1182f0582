"""Jobs run in this process (`--master inline`), over a scripted proxy, as `ternmq spark run` would run them."""

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tern_jobs.__main__ import main
from tern_wire.records.layout import AT_STORE_STAMP
from tests.support.client.record_server import Script, stored

DAY_MS = 86_400_000


def stored_on(
    number: int, body: bytes, stored_ms: int, properties: dict[str, str] | None = None, queue: int = 0
) -> bytes:
    """The record of `stored`, stored at *stored_ms*."""
    record = bytearray(stored(number, body, properties, queue=queue))
    record[AT_STORE_STAMP : AT_STORE_STAMP + 8] = stored_ms.to_bytes(8, "big")
    return bytes(record)


def two_days(queue: int, rows: int, first: int = 0) -> list[bytes]:
    """Records *first* to *first* + *rows* of a queue: the first half of 100 rows on day 20,000, the others on the next."""
    return [
        stored_on(
            number,
            b"%d/%d " % (queue, number) + b"x" * (number % 7),
            (20_000 + (number >= 50)) * DAY_MS + number,
            {"TAGS": ("red", "blue")[number % 2], "size": "L"} if number % 3 else None,
            queue=queue,
        )
        for number in range(first, first + rows)
    ]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a job left: exit code, the JSON on stdout (None: there is none), and stderr."""

    code: int
    result: Any
    stderr: str

    @property
    def faults(self) -> list[str]:
        """The faults that the job told."""
        return list(self.result["faults"])

    @property
    def facts(self) -> dict[str, Any]:
        """The job's figures."""
        return dict(self.result["facts"])


def run(name: str, script: Script, *arguments: str, output: str = "json") -> Ended:
    """Run the job *name* against *script*."""
    out, err = io.StringIO(), io.StringIO()
    common = ["--endpoint", script.url, "--master", "inline", "-o", output]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([name, *arguments, *common])
        except SystemExit as stop:
            code = int(str(stop.code))
    text = out.getvalue()
    result = json.loads(text) if output == "json" and text else text or None
    return Ended(code=code, result=result, stderr=err.getvalue())


def archive(script: Script, to: Path, *arguments: str) -> Ended:
    """Archive the scripted topic."""
    return run("archive", script, "--topics", "orders", "--to", str(to), *arguments)


def verify(script: Script, at: Path, *arguments: str) -> Ended:
    """Verify the archive of the scripted topic."""
    return run("verify", script, "--archive", str(at), *arguments)


def files(at: Path) -> list[str]:
    """All files of an archive below its folder."""
    return sorted(str(path.relative_to(at)) for path in at.rglob("*") if path.is_file())
