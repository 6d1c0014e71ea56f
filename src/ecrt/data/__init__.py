"""Raw data to (X, y), and who is minority.

A table on disk goes through ``files`` (what stands in the file), ``column_decisions`` (what each column holds, at the
first reading) and ``columns`` (cells to values), and ``tables`` turns it into numbers without gaps. ``streams`` reads
rows block by block that need not fit in memory. ``minority`` holds the rules for rare classes, rare targets and splits;
``imbalance`` makes data imbalanced.
"""

from ecrt.data.columns import HEADINGS, ColumnReading, ColumnRow, ReadOptions, column_rows
from ecrt.data.files import LABEL_SEPARATOR, DataFile, read_data
from ecrt.data.images import ImageList, Images, open_image, read_image_list
from ecrt.data.imbalance import exponential_imbalance, imbalanced_digits, rare_feature_data, step_imbalance, toy_sources
from ecrt.data.minority import (
    ClassRoles,
    MinorityRule,
    assign_roles,
    indicator_of,
    minority_mask,
    stratified_holdout,
    thin_out,
    with_lost_groups,
)
from ecrt.data.tables import TableEncoder

__all__ = [
    "HEADINGS",
    "LABEL_SEPARATOR",
    "ClassRoles",
    "ColumnReading",
    "ColumnRow",
    "DataFile",
    "ImageList",
    "Images",
    "MinorityRule",
    "ReadOptions",
    "TableEncoder",
    "assign_roles",
    "column_rows",
    "exponential_imbalance",
    "imbalanced_digits",
    "indicator_of",
    "minority_mask",
    "open_image",
    "rare_feature_data",
    "read_data",
    "read_image_list",
    "step_imbalance",
    "stratified_holdout",
    "thin_out",
    "toy_sources",
    "with_lost_groups",
]
