"""Records of messages: ours and Apache RocketMQ's, one by one and in columns."""
