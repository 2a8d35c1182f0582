"""A quiet Spark session: no ports for a UI, no progress bars, no log lines but errors.

It runs in this process and on loopback alone, or on the cluster of TERNMQ_SPARK_MASTER, whose
workers have this package installed and share the files. The launcher and the JVM read the
environment before any setting, so it is set here, once, before the first session of the process.
"""

import os
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# For short jobs: the client compiler and the serial collector start faster.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# The address of a cluster's master, such as spark://spark-master:7077; without it the session is
# local.
MASTER_VARIABLE = "TERNMQ_SPARK_MASTER"
# Set by spark-submit in the process of a Python program.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def java_command(environment: Mapping[str, str]) -> str | None:
    """Return the Java that Spark will start, by `JAVA_HOME` or else the path; None if absent."""
    home = environment.get("JAVA_HOME")
    if home:
        found = Path(home) / "bin" / "java"
        return str(found) if found.is_file() else None
    return shutil.which("java", path=environment.get("PATH"))


def is_submitted(environment: Mapping[str, str]) -> bool:
    """Return whether `spark-submit` has started this process, and its JVM before it."""
    return _SUBMITTED in environment


def open_session(name: str, *, conf_dir: Path, cores: int = 2, memory_mb: int = 1_024, master: str = "") -> Any:
    """Return a session of *cores* in this process's JVM, or of the whole cluster *master*.

    The default of *master* is the one that `spark-submit` was given, or TERNMQ_SPARK_MASTER. The
    `ternmq` format is registered. *conf_dir* holds log4j2.properties and spark-defaults.conf. A
    failed task is tried three times. RuntimeError when there is no Java.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the environment has to be set before the gateway starts

    from tern_spark import register  # noqa: PLC0415 - the package imports PySpark only on demand, so does this module

    if is_submitted(os.environ) and not master:
        # The JVM runs, with the settings of spark-submit. Here they are only not contradicted.
        submitted = SparkSession.builder.appName(name)
        for key, value in SETTINGS.items():
            submitted = submitted.config(key, value)
        spark = submitted.getOrCreate()
        register(spark)
        return spark
    if java_command(os.environ) is None:
        raise RuntimeError("Spark needs Java 17 or later: install a JRE, or point JAVA_HOME at one.")
    master = master or os.environ.get(MASTER_VARIABLE, "")
    is_local = not master or master.startswith("local")
    if is_local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Planner and tasks run in this interpreter; by default Spark takes the first `python3` on the
    # path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["SPARK_CONF_DIR"] = str(conf_dir.resolve())
    builder = SparkSession.builder.appName(name).master(master or f"local[{cores},3]")
    for key, value in (SETTINGS | (_LOCAL_SETTINGS if is_local else _cluster_settings(memory_mb))).items():
        builder = builder.config(key, value)
    builder = builder.config("spark.driver.memory", f"{memory_mb}m")
    spark = builder.config("spark.driver.extraJavaOptions", JVM_OPTIONS).getOrCreate()
    register(spark)
    return spark


def _cluster_settings(memory_mb: int) -> dict[str, str]:
    """Return the address of this driver for the workers, and their limits."""
    return {
        "spark.driver.host": socket.gethostbyname(socket.gethostname()),
        "spark.executor.memory": f"{memory_mb * 3 // 4}m",
        "spark.executor.extraJavaOptions": JVM_OPTIONS,
        "spark.task.maxFailures": "3",
    }
