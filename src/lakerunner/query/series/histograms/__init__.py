"""Native histograms: one value, a column of them, a grid of them, and their arithmetic."""
