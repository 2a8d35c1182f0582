"""The stream: its offsets, how much of a backlog a batch takes, and the reader that Spark calls."""
