"""`python -m detent`: the same as the command `detent`."""

from __future__ import annotations

from detent.cli import main

if __name__ == "__main__":
    main()
