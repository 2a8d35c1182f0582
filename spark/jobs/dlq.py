"""The job `dlq` for spark-submit: `spark-submit spark/jobs/dlq.py --help`."""

import sys

from tern_jobs.dlq_job import JOB
from tern_jobs.frame.run import run_job

if __name__ == "__main__":
    sys.exit(run_job(JOB))
