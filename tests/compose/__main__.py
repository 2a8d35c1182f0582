"""`python -m tests.compose`: builds the images, brings the deployment up, holds it to its promises, takes it down again. `make compose-test`.

Without an engine that answers, tests/compose/lab-docker.sh makes one, which is taken away again at the end (--keep-engine leaves it, for the next
run). The deployment has a name and ports of its own. Progress goes to standard error; the last line of standard output is one JSON document
with all figures. Exit code 1 when a promise is broken: the last lines of every container's log are printed then.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.compose import acceptance, backups, demo, locust
from tests.compose.acceptance import Run
from tests.compose.engine import ROOT, Engine, EngineFailed, engine_answers

# From the images to the last healthy container.
UP_MAX_S = 60.0
STEPS: dict[str, Callable[[Run], None]] = {
    "principals": acceptance.make_principals,
    "messages and transactions": acceptance.messages_and_transactions,
    "closed clients": acceptance.closed_doors,
    "hygiene": acceptance.hygiene_holds,
    "kills": acceptance.kills,
    "leader cut off": acceptance.cut_off_leader,
    "down and up": acceptance.down_and_up,
    "backup and restore": backups.backup_and_restore,
}
# What the others need first.
NEEDED = "principals"


def main() -> int:
    """The exit code."""
    options = _arguments()
    if options.inside:
        return run_acceptance(options)
    lab = None if engine_answers() else Path(options.lab)
    engine = Engine(None) if lab is None else Engine.set_up(lab)
    profiles = [name for name in ("demo", "load") if getattr(options, name)]
    try:
        say("docker compose config")
        engine.compose("config", "-q")
        if options.build:
            say("building images")
            began_s = time.monotonic()
            engine.build(profiles)
            say(f"built in {time.monotonic() - began_s:.0f} s")
        command = engine.inside(sys.executable, "-m", "tests.compose", "--inside", *sys.argv[1:])
        return subprocess.run(command, cwd=ROOT, env=_with_root_on_path(), check=False).returncode
    finally:
        if not options.keep_up:
            say("taking everything down")
            engine.compose("--profile", "*", "down", "-v", "--remove-orphans", "-t", "5", check=False)
            if not options.keep_engine:
                engine.purge()


def run_acceptance(options: argparse.Namespace) -> int:
    """The promises, against a deployment that this brings up; 0 when all of them hold."""
    engine = Engine(None)
    figures: dict[str, Any] = {}
    try:
        say("up --wait")
        began_s = time.monotonic()
        engine.compose("up", "-d", "--wait", "--no-build")
        figures["up_s"] = round(time.monotonic() - began_s, 1)
        say(f"all healthy after {figures['up_s']} s")
        assert figures["up_s"] <= UP_MAX_S, f"up --wait took {figures['up_s']} s; {UP_MAX_S:g} s are allowed"
        authority, root_key, known = acceptance.read_secrets(engine)
        run = Run(engine=engine, authority=authority, root_key=root_key, known_secrets=known, figures=figures)
        steps = {name: step for name, step in STEPS.items() if not options.only or name in {NEEDED, *options.only}}
        steps |= {"flights on Spark": demo.flights} if options.demo else {}
        steps |= {"Locust": locust.users} if options.load else {}
        for name, step in steps.items():
            began_s = time.monotonic()
            step(run)
            say(f"{name}: ok ({time.monotonic() - began_s:.0f} s)")
    except (AssertionError, EngineFailed, subprocess.TimeoutExpired) as failure:
        say(f"FAILED: {failure}")
        sys.stderr.write(engine.compose("ps", "-a", check=False))
        sys.stderr.write(engine.compose("logs", "--no-color", "--tail", "15", check=False))
        figures["failed"] = str(failure)
    print(json.dumps(figures))
    return 1 if "failed" in figures else 0


def say(text: str) -> None:
    """Progress, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _with_root_on_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.compose", description="The deployment, held to its promises."
    )
    default = Path(tempfile.gettempdir()) / "ternmq-lab"
    parser.add_argument(
        "--lab", default=str(default), help="scratch folder of an engine, if none answers (60 characters)"
    )
    parser.add_argument(
        "--demo", action="store_true", help="also the flights job on Spark in containers (a large image)"
    )
    parser.add_argument("--load", action="store_true", help="also Locust in a container: 100 users for 2 minutes")
    parser.add_argument("--only", action="append", choices=list(STEPS), help="only this step; may be repeated")
    parser.add_argument("--no-build", dest="build", action="store_false", help="the images are there")
    parser.add_argument("--keep-engine", action="store_true", help="leave the engine that was made here running")
    parser.add_argument("--keep-up", action="store_true", help="leave the deployment running, too")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
