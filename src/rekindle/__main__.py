"""`python -m rekindle`: the command, also where its script is not on the path."""

from rekindle.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
