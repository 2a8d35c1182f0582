"""The release: the one place that says it. Both distributions take it from here when they are built."""

VERSION = "0.1.0"
