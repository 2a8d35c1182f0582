"""Delta tables of an archive: one for each topic, which names the files that the manifests name.

    DEST/data/TOPIC/_delta_log/00000000000000000000.json    the table's first version
    DEST/data/TOPIC/DAY/...parquet                          the files of the archive, as they are

Law: a table follows from the manifests alone, and says nothing that they do not say. It is made
only where it is asked for; once it is there, every run that publishes a manifest continues it.
"""
