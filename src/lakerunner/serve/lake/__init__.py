"""The API of our own: answers as a stream, running queries, and what they would read."""
