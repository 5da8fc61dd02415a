"""Messages, durable records and exported states, byte by byte."""
