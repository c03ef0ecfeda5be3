"""`python -m lakerunner` is `lakerunner`."""

from lakerunner.cli.main import main

if __name__ == "__main__":
    main()
