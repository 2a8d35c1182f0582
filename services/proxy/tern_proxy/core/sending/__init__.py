"""Pure decisions about incoming messages: parsed, checked against a topic, encoded, answered."""
