"""`python -m tern_jobs NAME [ARGS]` runs one job; without a name it lists the jobs."""

import sys
from importlib import import_module

from tern_jobs import JOBS


def main(arguments: list[str]) -> int:
    """Run the job of the first argument; return its exit code."""
    name = arguments[0] if arguments else "--help"
    if name not in JOBS:
        out = sys.stdout if name in {"-h", "--help"} else sys.stderr
        out.write("usage: ternmq spark run NAME [ARGS]; NAME is one of\n\n")
        for known, module in JOBS.items():
            out.write(f"  {known:14}{import_module(module).JOB.summary}\n")
        out.write("\n`ternmq spark run NAME --help` tells the arguments of a job.\n")
        return 0 if out is sys.stdout else 2
    from tern_jobs.frame.run import run_job  # noqa: PLC0415 - the list of jobs needs nothing of it

    return run_job(import_module(JOBS[name]).JOB, arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
