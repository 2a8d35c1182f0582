"""The key index: messages found by key."""
