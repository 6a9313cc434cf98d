"""`python -m omniwatch`."""

from omniwatch.cli import main

main()
