"""Records of messages, our own and Apache RocketMQ's: single records and columns of many."""
