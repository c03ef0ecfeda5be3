"""Operations on vectors over steps, for all query languages: aggregation, matching, range functions, kernels."""
