"""The commands of `ternmq`, one file a subject."""
