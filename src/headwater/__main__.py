"""`python -m headwater` is the `headwater` command."""

from headwater.cli import run

if __name__ == "__main__":
    run()
