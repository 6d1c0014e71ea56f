"""Models on disk: safetensors and JSON in a folder, read with suspicion and without pickle."""

from ecrt.io.attributes import (
    Array,
    Kind,
    Labels,
    Record,
    Rows,
    Subset,
    Value,
    from_plain,
    pack,
    to_plain,
    unpack,
)
from ecrt.io.model_files import as_read, open_model, package_versions, write_model
from ecrt.io.networks import DemixerNetwork, EncoderNetwork, HeadNetwork, encoder_width, head_shape
from ecrt.io.parsing import BadContentError, parse_yaml, read_json, read_text, read_yaml, typed

__all__ = [
    "Array",
    "BadContentError",
    "DemixerNetwork",
    "EncoderNetwork",
    "HeadNetwork",
    "Kind",
    "Labels",
    "Record",
    "Rows",
    "Subset",
    "Value",
    "as_read",
    "encoder_width",
    "from_plain",
    "head_shape",
    "open_model",
    "pack",
    "package_versions",
    "parse_yaml",
    "read_json",
    "read_text",
    "read_yaml",
    "to_plain",
    "typed",
    "unpack",
    "write_model",
]
