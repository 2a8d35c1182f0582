"""The connections of an HTTP listener: how many, how fast, how much of an answer may wait."""
