"""A quiet local Spark session: loopback only, no ports for a UI, no progress bars, no log lines but errors.

What has to be in the environment is read by the launcher and the JVM before any setting is, so it is set here, once, before
the first session of the process.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Short jobs: the client compiler and the serial collector start faster than the server ones pay back.
_JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def java_command(environment: Mapping[str, str]) -> str | None:
    """The Java that Spark will start, or None: `JAVA_HOME`, else the path."""
    home = environment.get("JAVA_HOME")
    if home:
        found = Path(home) / "bin" / "java"
        return str(found) if found.is_file() else None
    return shutil.which("java", path=environment.get("PATH"))


def open_session(name: str, *, conf_dir: Path, cores: int = 2, memory_mb: int = 1_024) -> Any:
    """A session of *cores* in this process's JVM, with the `ternmq` format registered. *conf_dir* holds log4j2.properties.

    A failed task is tried three times. RuntimeError when there is no Java.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the environment has to be set before the gateway starts

    from tern_spark import register  # noqa: PLC0415 - the door imports PySpark only on demand, so does this

    if java_command(os.environ) is None:
        raise RuntimeError("Spark needs Java 17 or later: install a JRE, or point JAVA_HOME at one.")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Planner and tasks run in this very interpreter; Spark would take whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["SPARK_CONF_DIR"] = str(conf_dir.resolve())
    builder = SparkSession.builder.appName(name).master(f"local[{cores},3]")
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.driver.memory", f"{memory_mb}m")
    spark = builder.config("spark.driver.extraJavaOptions", _JVM_OPTIONS).getOrCreate()
    register(spark)
    return spark
