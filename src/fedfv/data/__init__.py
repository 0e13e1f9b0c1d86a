"""Data sets, and how they are divided among clients."""

from fedfv.data._federation import Federation, Index

__all__ = ["Federation", "Index"]
