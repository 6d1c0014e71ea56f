"""Reading and writing files: files are written whole, by one writer at a time, and only plain files are read."""

from ecrt.disk.reading import open_plain, plain_bytes, read_arrays
from ecrt.disk.writing import (
    NewFolder,
    check_writable,
    free_name,
    hold,
    locked,
    plain,
    recover,
    remove_litter,
    replacing,
    write_arrays,
    write_bytes,
    write_json,
    write_text,
)

__all__ = [
    "NewFolder",
    "check_writable",
    "free_name",
    "hold",
    "locked",
    "open_plain",
    "plain",
    "plain_bytes",
    "read_arrays",
    "recover",
    "remove_litter",
    "replacing",
    "write_arrays",
    "write_bytes",
    "write_json",
    "write_text",
]
