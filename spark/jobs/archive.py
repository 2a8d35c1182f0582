"""The job `archive` for spark-submit: `spark-submit spark/jobs/archive.py --help`."""

import sys

from tern_jobs.archive_job import JOB
from tern_jobs.frame.run import run_job

if __name__ == "__main__":
    sys.exit(run_job(JOB))
