"""Pure decisions about transactions: begins, ends, checks, and their producer groups."""
