"""What a worker process has imported is no part of its garbage collections; garbage still is."""

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


def test_modules_are_spared_once_and_later_garbage_is_collected() -> None:
    """In a process of its own, since a test's process is frozen as little as a driver's."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
