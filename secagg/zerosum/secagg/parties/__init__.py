"""The clients and the server of a session: messages in, messages out."""
