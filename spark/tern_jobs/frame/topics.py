"""The source's options for a job: its endpoint and credentials, and the topics to read."""

from argparse import Namespace

from tern_spark.options import ReadOptions, read_options


def topic_options(options: Namespace, topics: str, *, fail_on_data_loss: bool = True) -> ReadOptions:
    """Return the checked options of a read of *topics*, separated by commas.

    OptionError when they are not valid.
    """
    given = {
        "endpoint": options.endpoint,
        "subscribe": topics,
        "failOnDataLoss": str(fail_on_data_loss).lower(),
    }
    files = {"keyFile": options.key_file, "caFile": options.ca_file}
    return read_options(given | {name: file for name, file in files.items() if file})
