"""The same operations on native histograms."""
