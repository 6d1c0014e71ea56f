"""Published data: where they are, downloads that are verified, and loaders."""

from paper.data.catalogue import CATALOGUE, KnownData, RemoteFile
from paper.data.download import default_folder, fetch
from paper.data.images import CIFAR_PROTOCOLS, CifarProtocol, ImageSplit, load_cifar100, load_mnist
from paper.data.layouts import published_items
from paper.data.loaders import LabelledSplit, data_folder, load_arxiv, load_embeddings, load_keel

__all__ = [
    "CATALOGUE",
    "CIFAR_PROTOCOLS",
    "CifarProtocol",
    "ImageSplit",
    "KnownData",
    "LabelledSplit",
    "RemoteFile",
    "data_folder",
    "default_folder",
    "fetch",
    "load_arxiv",
    "load_cifar100",
    "load_embeddings",
    "load_keel",
    "load_mnist",
    "published_items",
]
