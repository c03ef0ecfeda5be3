"""One row group of a segment: what is known without reading it, which of its rows match, and their values."""
