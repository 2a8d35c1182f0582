"""The Spark job of `ternmq demo flights`: a batch report, and a stream from topic to topic."""
