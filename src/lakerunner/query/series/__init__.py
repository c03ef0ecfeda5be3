"""The data of metric queries in any language: matchers, label lists, batches, blocks, histograms, results."""
