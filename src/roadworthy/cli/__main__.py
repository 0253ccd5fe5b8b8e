"""`python -m roadworthy.cli` is the command `roadworthy`."""

from roadworthy.cli import main

main()
