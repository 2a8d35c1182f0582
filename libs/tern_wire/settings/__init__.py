"""What may be said of topics, groups and producer groups."""
