"""Models on disk: safetensors and JSON in a folder, read with suspicion and without pickle."""

from ecrt.io.card import CardFacts, CardRow, model_card
from ecrt.io.container import package_versions
from ecrt.io.fields import BadContentError, Fields, TensorStore
from ecrt.io.modules import (
    encoder_width,
    pack_demixer,
    pack_encoder,
    pack_head,
    unpack_demixer,
    unpack_encoder,
    unpack_head,
)
from ecrt.io.reading import open_model
from ecrt.io.records import pack_diagnostics, pack_history, unpack_diagnostics, unpack_history
from ecrt.io.side_files import parse_yaml, read_json, read_text, read_yaml
from ecrt.io.values import (
    array_from_plain,
    array_to_plain,
    from_plain,
    number_from_plain,
    number_to_plain,
    to_plain,
)
from ecrt.io.writing import as_read, write_model

__all__ = [
    "BadContentError",
    "CardFacts",
    "CardRow",
    "Fields",
    "TensorStore",
    "array_from_plain",
    "array_to_plain",
    "as_read",
    "encoder_width",
    "from_plain",
    "model_card",
    "number_from_plain",
    "number_to_plain",
    "open_model",
    "pack_demixer",
    "pack_diagnostics",
    "pack_encoder",
    "pack_head",
    "pack_history",
    "package_versions",
    "parse_yaml",
    "read_json",
    "read_text",
    "read_yaml",
    "to_plain",
    "unpack_demixer",
    "unpack_diagnostics",
    "unpack_encoder",
    "unpack_head",
    "unpack_history",
    "write_model",
]
