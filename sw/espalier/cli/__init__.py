"""The `espalier` command line, one command per module."""
