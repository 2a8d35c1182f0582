"""What the SDK asks, as generators that a transport drives: one file a subject."""
