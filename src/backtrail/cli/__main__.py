"""`python -m backtrail.cli`, the same as `backtrail`."""

from backtrail.cli.main import main

main()
