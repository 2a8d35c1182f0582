"""`make bench-spark`: Spark on a mesh of its own, beside Parquet with the same rows."""
