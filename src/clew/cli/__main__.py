"""`python -m clew.cli`, the same as `clew`."""

from clew.cli.main import main

main()
