"""`python -m bench.promql` is the same as `make bench CASE=promql`."""

import sys

from bench.promql.run import main

sys.exit(main())
