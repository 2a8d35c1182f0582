"""Limits of reports about retention, each with its reason."""

# Pairs of topic and group whose lost messages are counted individually: as many lines of a scrape;
# the others are one line.
DROPPED_UNREAD_ROWS_MAX = 1_000
# Rows of these in a status for people.
DROPPED_UNREAD_SHOWN_MAX = 20
