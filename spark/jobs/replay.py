"""The job `replay` for spark-submit: `spark-submit spark/jobs/replay.py --help`."""

import sys

from tern_jobs.frame.run import run_job
from tern_jobs.replay_job import JOB

if __name__ == "__main__":
    sys.exit(run_job(JOB))
