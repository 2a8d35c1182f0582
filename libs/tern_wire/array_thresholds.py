"""Up to which counts a loop in Python is faster than arrays of numpy, which cost the same for one row as for fifty.

Most entries hold one to three messages, so the first two decide what a send costs. The figures are in the DESIGN.md of
the broker and of the store; `python -m loadtest.few_rows` prints them.
"""

# A SEND of so many rows is applied row by row. Both ways decide alike, to the byte.
SEND_ROWS_ONE_BY_ONE_MAX = 32
# The key hashes and index entries of so many records, with properties of so many bytes together, are made one by one.
RECORDS_ONE_BY_ONE_MAX = 16
PROPERTIES_ONE_BY_ONE_MAX_BYTES = 4_096
# So many idempotency keys are looked for, or placed, in the youngest table one by one.
KEYS_ONE_BY_ONE_MAX = 64
# So many idempotency keys are looked up in the filters of sealed tables one by one.
FILTERED_KEYS_ONE_BY_ONE_MAX = 4
# The tag hashes of a page are compared with so many tags of a filter one by one; more are found by a binary search.
TAGS_ONE_BY_ONE_MAX = 4
