"""`archive` as a process that is killed while it reads, over and over: nothing is lost and nothing is there twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.client.job_runs import archive, two_days, verify
from tests.support.client.record_server import Script, record_server

# Pages that the process may read before it is killed; more than there are: it ends by itself.
PAGES = (1, 4, 9, 6, 12, 2)


def test_a_process_killed_at_any_page_loses_nothing(tmp_path: Path) -> None:
    """Six processes, SIGKILL at a page of each, messages arriving in between; then one run to the end, and the proof."""
    at = tmp_path / "archive"
    queues = {f"broker-a:{queue}": two_days(queue, 60) for queue in range(3)}
    with record_server(Script(queues=queues, page_rows_max=20)) as script:
        command = [sys.executable, "-m", "tern_jobs", "archive", "--topics", "orders", "--to", str(at)]
        command += ["--endpoint", script.url, "--master", "inline", "--rows-per-file", "50"]
        for number, pages in enumerate(PAGES):
            left = iter(range(pages))
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:

                def kill_after(_: int, left: object = left, pid: int = process.pid) -> None:
                    if next(left, None) is None:  # type: ignore[call-overload]
                        os.kill(pid, signal.SIGKILL)

                script.before_page = kill_after
                assert process.wait(60) in {0, -signal.SIGKILL}
            script.queues["broker-a:1"] += two_days(1, 7, first=60 + 7 * number)
        script.before_page = lambda offset: None
        assert archive(script, at).code == 0
        proof = verify(script, at)
    assert (proof.code, proof.faults) == (0, [])
    assert proof.facts["rows"] == proof.facts["compared rows"] == 180 + 7 * len(PAGES)
