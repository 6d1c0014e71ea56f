"""Models on disk: safetensors and JSON in a folder, read with suspicion and without pickle."""

from ecrt.io.attributes import Array, Kind, Labels, Record, Rows, Subset, Value, pack, unpack
from ecrt.io.card import CardFacts, CardRow, model_card
from ecrt.io.model_files import as_read, open_model, write_model
from ecrt.io.networks import DemixerNetwork, EncoderNetwork, HeadNetwork, encoder_width, head_shape
from ecrt.io.parsing import BadContentError, parse_yaml, read_json, read_text, read_yaml, typed
from ecrt.io.values import from_plain, register, to_plain
from ecrt.io.versions import package_versions

__all__ = [
    "Array",
    "BadContentError",
    "CardFacts",
    "CardRow",
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
    "model_card",
    "open_model",
    "pack",
    "package_versions",
    "parse_yaml",
    "read_json",
    "read_text",
    "read_yaml",
    "register",
    "to_plain",
    "typed",
    "unpack",
    "write_model",
]
