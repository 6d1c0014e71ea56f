"""Public data sets of the paper: where they are, how large, under which terms, and how to tell that they are whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

__all__ = ["CATALOGUE", "KnownData", "RemoteFile"]


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file to download.

    Attributes
    ----------
    size : in words, as the publisher gives it.
    md5 : checksum.
    source : who published the checksum.
    """

    url: str
    size: str
    md5: str
    source: str

    @property
    def name(self) -> str:
        """What it is called here too."""
        return PurePosixPath(urlsplit(self.url).path).name


@dataclass(frozen=True, kw_only=True)
class KnownData:
    """A data set.

    Attributes
    ----------
    terms : licence, or what its publishers say in place of one.
    next_step : what makes it ready for ``python -m paper``.
    by_hand : how to get it where a program cannot, since it needs a login; there are then no ``files``.
    """

    name: str
    title: str
    home: str
    terms: str
    files: tuple[RemoteFile, ...] = ()
    next_step: str
    by_hand: str = ""


MNIST_MD5 = {
    "train-images-idx3-ubyte.gz": ("9.9 MB", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "train-labels-idx1-ubyte.gz": ("29 kB", "d53e105ee54ea40749a09fcbcd1e9432"),
    "t10k-images-idx3-ubyte.gz": ("1.6 MB", "9fb629c4189551a2d022fa330f9573f3"),
    "t10k-labels-idx1-ubyte.gz": ("5 kB", "ec29112dd5afa0611ce80d1b7f02629c"),
}
INATURALIST = "https://ml-inat-competition-datasets.s3.amazonaws.com/2019"


def _known() -> Iterator[KnownData]:
    yield KnownData(
        name="mnist",
        title="MNIST: 70,000 handwritten digits, 28 x 28 pixels",
        home="http://yann.lecun.com/exdb/mnist/",
        terms="CC BY-SA 3.0 according to the documentation of Keras; its own page names no licence.",
        files=tuple(
            RemoteFile(
                url=f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}", size=size, md5=md5, source="torchvision"
            )
            for name, (size, md5) in MNIST_MD5.items()
        ),
        next_step="python -m paper mnist",
    )
    yield KnownData(
        name="cifar100",
        title="CIFAR-100: 60,000 images of 100 classes, 32 x 32 pixels, in its binary form",
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        terms="No licence is named; its page asks to cite Krizhevsky, Learning Multiple Layers of Features from Tiny "
        "Images, 2009.",
        files=(
            RemoteFile(
                url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                size="161 MB",
                md5="03b5dce01913d631647c71ecec9e9cb8",
                source="its page",
            ),
        ),
        next_step="python -m paper cifar100",
    )
    yield KnownData(
        name="tiny_imagenet",
        title="Tiny-ImageNet-200: 200 classes, 500 training and 50 validation images each, 64 x 64 pixels",
        home="http://cs231n.stanford.edu/",
        terms="ImageNet's terms of access: non-commercial research and educational use only.",
        files=(
            RemoteFile(
                url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                size="248 MB",
                md5="90528d7ca1a48142e341f4ef8d21d0de",
                source="public loaders, which agree; its publishers give none",
            ),
        ),
        next_step="python -m paper embed tiny_imagenet --backbone torchvision:resnet18",
    )
    yield KnownData(
        name="inaturalist",
        title="iNaturalist 2019: 268,243 images of 1,010 species, long-tailed",
        home="https://github.com/visipedia/inat_comp/tree/master/2019",
        terms="iNaturalist's terms of service; non-commercial research and educational use only; images must not be "
        "distributed.",
        files=(
            RemoteFile(
                url=f"{INATURALIST}/train2019.json.tar.gz",
                size="13 MB",
                md5="b06a6683537867c0d5c7a45f407a306d",
                source="its page",
            ),
            RemoteFile(
                url=f"{INATURALIST}/val2019.json.tar.gz",
                size="156 kB",
                md5="5cc5509b0fe495f1c8c1362612448497",
                source="its page",
            ),
            RemoteFile(
                url=f"{INATURALIST}/train_val2019.tar.gz",
                size="74 GB",
                md5="c60a6e2962c9b8ccbd458d12c8582644",
                source="its page",
            ),
        ),
        next_step="python -m paper embed inaturalist --backbone torchvision:inception_v3",
    )
    yield KnownData(
        name="arxiv",
        title="arXiv metadata: title, abstract and categories of more than two million papers, a JSON object a line",
        home="https://www.kaggle.com/datasets/Cornell-University/arxiv",
        terms="CC0 1.0 for the metadata.",
        by_hand="Kaggle wants a login. Download it in the browser, or with Kaggle's own program: kaggle datasets "
        "download -d Cornell-University/arxiv --unzip. Put arxiv-metadata-oai-snapshot.json into the folder arxiv of "
        "ECRT_DATA. It changes every week, so no checksum can be given.",
        next_step="python -m paper embed arxiv --backbone sentence-transformers:allenai/scibert_scivocab_uncased",
    )


CATALOGUE: dict[str, KnownData] = {known.name: known for known in _known()}
"""By name."""
