"""Pure decisions about tails: where they are, what event ids hold, how events look."""
