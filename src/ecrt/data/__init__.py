"""Raw data to (X, y): imbalance protocols, class roles, synthetic data, loaders."""

from ecrt.data.files import DataFile, Images, read_data
from ecrt.data.imbalance import exponential_imbalance, step_imbalance, stratified_holdout, thin_out
from ecrt.data.loaders import (
    LabelledSplit,
    Split,
    data_folder,
    imbalanced_digits,
    load_arxiv,
    load_embeddings,
    load_keel,
)
from ecrt.data.minority import ClassRoles, MinorityRule, assign_roles, minority_mask
from ecrt.data.synthetic import (
    GaussianSources,
    SyntheticData,
    extreme_sources,
    henon,
    henon_inverse,
    rare_feature_data,
    toy_sources,
)
from ecrt.data.tables import Column, TableEncoder

__all__ = [
    "ClassRoles",
    "Column",
    "DataFile",
    "GaussianSources",
    "Images",
    "LabelledSplit",
    "MinorityRule",
    "Split",
    "SyntheticData",
    "TableEncoder",
    "assign_roles",
    "data_folder",
    "exponential_imbalance",
    "extreme_sources",
    "henon",
    "henon_inverse",
    "imbalanced_digits",
    "load_arxiv",
    "load_embeddings",
    "load_keel",
    "minority_mask",
    "rare_feature_data",
    "read_data",
    "step_imbalance",
    "stratified_holdout",
    "thin_out",
    "toy_sources",
]
