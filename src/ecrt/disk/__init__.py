"""Files on disk: plain ones of bounded size are read, and nothing else."""

from ecrt.disk.plain import open_plain, plain_bytes, read_arrays

__all__ = ["open_plain", "plain_bytes", "read_arrays"]
