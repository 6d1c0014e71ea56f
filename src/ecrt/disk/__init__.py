"""Reading and writing files: files are written whole, by one writer at a time, and only plain files are read."""

from ecrt.disk.files import (
    check_writable,
    remove_litter,
    replacing,
    sync_folder,
    write_arrays,
    write_bytes,
    write_json,
    write_text,
)
from ecrt.disk.folders import NewFolder, free_name, recover
from ecrt.disk.journal import Journal
from ecrt.disk.locks import locked
from ecrt.disk.plain import open_plain, plain_bytes, read_arrays

__all__ = [
    "Journal",
    "NewFolder",
    "check_writable",
    "free_name",
    "locked",
    "open_plain",
    "plain_bytes",
    "read_arrays",
    "recover",
    "remove_litter",
    "replacing",
    "sync_folder",
    "write_arrays",
    "write_bytes",
    "write_json",
    "write_text",
]
