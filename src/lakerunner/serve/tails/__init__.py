"""Live tails: the entries of segments that were registered since."""
