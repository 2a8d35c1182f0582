"""The commands of `ternmq`, one file per subject."""
