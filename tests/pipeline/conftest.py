"""The hard cases of the Spark pipeline, each with what is promised and the test that shows it. Those here start meshes or JVMs of their own.

| case | promise | test |
|---|---|---|
| a task fails | read again, nothing counted or stored twice | spark/test_spark_source, test_spark_sink: `..._failed_task_...` |
| two attempts of a task | both read and write, one copy | test_executors: `..._two_attempts_...` |
| an executor dies | no row lost, none twice | test_executors: `..._machine_that_dies_...`; `make spark-cluster` |
| a driver dies | no row lost, none twice | spark/test_spark_pipeline_killed, test_spark_stream; `make kill-spark` |
| a proxy dies | reads go on the same; writes, too | test_repeatable; spark/test_spark_sink_mesh; unit/spark/test_pages |
| a leader dies | reads go on the same; writes, too | test_repeatable; spark/test_spark_sink_mesh |
| a proxy hangs | the next one after the time limit | unit/spark/test_option_effects |
| retention overtakes a read | with a lease read whole; without, an error or a count | spark/test_spark_lease; unit/spark/jobs/test_archive |
| producers go on | a plan is not read beyond its end | unit/spark/test_pages: `..._never_read_beyond_...` |
| a topic is made again | the query fails in a sentence | unit/spark/test_pages, test_stream, jobs/test_archive; spark/test_spark_stream |
| a key is revoked | one error, few requests, nothing visible | test_key_revoked (real keys), test_executors (Spark) |
| a body of 4 MiB | read, streamed, archived, written both ways; more is refused by its row | test_repeatable |
| an empty topic | no rows, no task of ours | spark/test_spark_source; unit/spark/test_pages |
| 10,000 queues | requests by topic, one for each queue with rows | test_many_queues; unit/spark/test_tasks, test_option_effects |
| what is not visible | no open, rolled-back, staged or early message | test_repeatable; spark/test_spark_transactions |
| the same offsets again | the same bytes at another leader and from a backup; in an archive that was compacted | test_repeatable; unit/spark/jobs/test_archive, test_compact |
| a start by time | agrees with a filter on `store_ts` | spark/test_spark_reads: `..._start_by_time_...` |
| Spark Connect | reads, writes and streams | test_connect |
| every option | legal and illegal values, in the driver | unit/spark/test_options, test_sink_options; effects: test_option_effects |
"""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pyarrow") and find_spec("pyspark") else ["test_*.py"]
