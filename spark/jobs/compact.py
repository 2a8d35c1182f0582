"""The job `compact` for spark-submit: `spark-submit spark/jobs/compact.py --help`."""

import sys

from tern_jobs.compact_job import JOB
from tern_jobs.frame.run import run_job

if __name__ == "__main__":
    sys.exit(run_job(JOB))
