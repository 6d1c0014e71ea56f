"""Images or text to features with a pretrained network, once, so that all else works on tables of numbers."""

from ecrt.embedding.backbones import BACKBONES, Backbone, make_backbone
from ecrt.embedding.embedding import Embedded, Items, embed, image_items, read_items, text_items

__all__ = [
    "BACKBONES",
    "Backbone",
    "Embedded",
    "Items",
    "embed",
    "image_items",
    "make_backbone",
    "read_items",
    "text_items",
]
