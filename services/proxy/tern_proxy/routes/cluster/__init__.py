"""The cluster over HTTP: who is there and who leads, and where a topic lives."""
