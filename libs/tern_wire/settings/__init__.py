"""Settings of topics, groups and producer groups."""
