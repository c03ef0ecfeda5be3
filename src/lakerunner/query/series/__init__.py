"""What every language with metric queries shares: matchers, labels, batches, blocks, histograms, results."""
