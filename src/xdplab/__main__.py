"""`python -m xdplab`: the command line."""

from xdplab.cli import main

main()
