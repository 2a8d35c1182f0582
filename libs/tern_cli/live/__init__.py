"""`ternmq tail`: the messages of a topic as they come, for people and programs."""
