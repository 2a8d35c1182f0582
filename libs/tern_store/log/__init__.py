"""The commit log: entries in segments, the entry index, recovery, and what one append or sync does."""
