"""Operations on vectors over steps: aggregation, matching, range functions and their kernels."""
