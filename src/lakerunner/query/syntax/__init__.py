"""What every query language of ours is built from: positions, tokens, limits, and errors that point."""
