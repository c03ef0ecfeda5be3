"""`python -m bench.logql` is the same as `make bench CASE=logql`."""

import sys

from bench.logql.run import main

sys.exit(main())
