"""`python -m backtrail.cli`, the same as `backtrail`."""

from backtrail.cli.entry import main

main()
