"""`python -m fedfv` is the command `fedfv`."""

from fedfv.cli import entry

if __name__ == "__main__":
    entry()
