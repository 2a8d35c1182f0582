"""The sink: rows of a DataFrame become messages of a topic, with Arrow's kernels and no Python
object per row.

    RecordBatch -> columns -> entries (MessagePack, one a row) -> requests -> proxies
"""
