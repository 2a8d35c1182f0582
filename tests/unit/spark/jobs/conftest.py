"""These tests need the demo extra (Arrow, pandas, PySpark); `make test-spark` installs it and runs them."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pyarrow") and find_spec("pyspark") else ["test_*.py"]
