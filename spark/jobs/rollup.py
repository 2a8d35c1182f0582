"""The job `rollup` for spark-submit: `spark-submit spark/jobs/rollup.py --help`."""

import sys

from tern_jobs.frame.run import run_job
from tern_jobs.rollup_job import JOB

if __name__ == "__main__":
    sys.exit(run_job(JOB))
