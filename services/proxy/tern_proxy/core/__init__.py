"""What the proxy decides, purely: parsing of requests, records and rows, result and message documents. No clock, no loop."""
