"""Runs a program that ends only when it is told to: `python -m tests.support.documents.interrupted FILE LINES`.

Presses Ctrl-C once FILE has printed so many lines, and passes them on. Exit code 0 if FILE then ends in order and
without a traceback.
"""

import signal
import subprocess
import sys

END_MAX_S = 30


def interrupted(file: str, lines: int) -> int:
    """The exit code for the caller."""
    with subprocess.Popen([sys.executable, file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            for _ in range(lines):
                sys.stdout.write(running.stdout.readline())
            running.send_signal(signal.SIGINT)
            rest, said = running.communicate(timeout=END_MAX_S)
        finally:
            running.kill()
    sys.stdout.write(rest)
    sys.stderr.write(said)
    return 0 if running.returncode in {0, 128 + signal.SIGINT} and not said else 1


if __name__ == "__main__":
    sys.exit(interrupted(sys.argv[1], int(sys.argv[2])))
