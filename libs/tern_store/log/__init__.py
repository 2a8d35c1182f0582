"""The commit log: entries in segments, the entry index, recovery, appends and syncs."""
