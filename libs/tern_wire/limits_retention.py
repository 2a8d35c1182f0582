"""Limits of what is told of retention, each with its reason."""

# Pairs of topic and group whose lost messages are counted apart: a scrape of as many lines; the others are one line.
DROPPED_UNREAD_ROWS_MAX = 1_000
# Of these, rows in a status that people read.
DROPPED_UNREAD_SHOWN_MAX = 20
