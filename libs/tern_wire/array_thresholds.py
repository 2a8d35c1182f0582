"""Maximum counts up to which a loop in Python is faster than arrays of numpy.

Arrays cost the same for one row as for fifty. Most entries hold one to three messages, so the first
two thresholds decide the cost of a send. The figures are in the DESIGN.md of the broker and of the
store; `python -m loadtest.few_rows` prints them.
"""

# Rows of a SEND that are applied one by one. Both ways make the same decisions, to the byte.
SEND_ROWS_ONE_BY_ONE_MAX = 32
# Rows of a SEND that are checked one by one before it is proposed. What is not plain is left to the
# arrays.
CHECKED_ROWS_ONE_BY_ONE_MAX = 32
# Records whose key hashes and index entries are made one by one, and the maximum of their
# properties together.
RECORDS_ONE_BY_ONE_MAX = 16
PROPERTIES_ONE_BY_ONE_MAX_BYTES = 4_096
# Idempotency keys that are looked up, or inserted, in the youngest table one by one.
KEYS_ONE_BY_ONE_MAX = 64
# Idempotency keys that are looked up in the filters of sealed tables one by one.
FILTERED_KEYS_ONE_BY_ONE_MAX = 4
# From so many receipt handles on they are read together.
HANDLES_TOGETHER_MIN = 4
# From so many acks of one command on those of adjacent messages are applied together.
ACKS_TOGETHER_MIN = 8
# Tags of a filter that are compared with the tag hashes of a page one by one; more are found by a
# binary search.
TAGS_ONE_BY_ONE_MAX = 4
