"""`python -m roadworthy` is the command line."""

from roadworthy.cli import main

main()
