"""`python -m elsewhere`."""

from elsewhere.cli import main

main()
