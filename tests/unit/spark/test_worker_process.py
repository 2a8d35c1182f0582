"""What a worker process costs: its modules are no part of garbage collections, and a reader imports no pandas."""

import os
import subprocess
import sys

PROGRAM = """
import gc, weakref
from tern_spark.worker_process import spare_modules

class Ring:
    def __init__(self): self.me = self

before = weakref.ref(Ring())
gc.collect()
assert before() is None
spare_modules()
frozen = gc.get_freeze_count()
assert frozen > 1_000, frozen
later = weakref.ref(Ring())
spare_modules()
assert gc.get_freeze_count() <= frozen, "a second call keeps what may be garbage"
gc.collect()
assert later() is None
"""

# Pages of one queue and of two, with the same properties in every record and with others.
READER = """
import sys
import tern_spark.source, tern_spark.stream.reader
from tern_spark import COLUMNS, record_batch
from tern_spark.columns import Part, records_batch
from tern_wire.names import QueueName
from tests.support.client.record_server import stored

queue = QueueName("broker-a", 1)
for others in ({"KEYS": "k", "colour": "red"}, {"size": "5"}, {}):
    page = stored(0, b"a", {"KEYS": "k", "colour": "red"}) + stored(1, b"b", others)
    assert record_batch(page, topic="orders", queue=queue).num_rows == 2
parts = [Part("orders", queue, len(page)), Part("bills", queue, len(page))]
assert records_batch(page + page, parts, tuple(COLUMNS)).num_rows == 4
print("pandas" in sys.modules)
"""


def test_a_reader_imports_no_pandas() -> None:
    """It costs 0.2 s of CPU and 38 MB in each process of Spark; PyArrow imports it with its first `array`."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", READER], check=False, capture_output=True, text=True, timeout=60, env=environment
    )
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_modules_are_spared_once_and_later_garbage_is_collected() -> None:
    """In a process of its own, since a test's process is frozen as little as a driver's."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
