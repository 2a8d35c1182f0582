"""Jobs over topics: archive, verify and reports, run by `ternmq spark run NAME` or `spark-submit`.

Each job divides its work into tasks of queue ranges, which Spark runs on all cores of the session
or the cluster. The driver only plans, and joins what the tasks return.
"""

# Name of a job: the module with its JOB.
JOBS = {
    "archive": "tern_jobs.archive_job",
    "verify": "tern_jobs.verify_job",
    "replay": "tern_jobs.replay_job",
    "compact": "tern_jobs.compact_job",
    "rollup": "tern_jobs.rollup_job",
    "lag": "tern_jobs.lag_job",
    "dlq": "tern_jobs.dlq_job",
    "transactions": "tern_jobs.transactions_job",
}
