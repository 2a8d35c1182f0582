"""Archives of topics: Parquet files that hash-chained manifests name.

    DEST/manifests/00000001.json    the first run: its ranges, with files, counts and checksums
    DEST/manifests/00000002.json    the next run, with the hash of the first manifest
    DEST/plans/00000003.json        the ranges of a run under way, or of one that was killed
    DEST/data/TOPIC/DAY/...parquet  rows of one range: topic, queue, start and end are in the name

Law: a manifest is the only thing that makes a file part of the archive. Readers follow manifests,
never listings, so a run that was killed has added nothing.
"""
