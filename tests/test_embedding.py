"""Images and text to features: with the backbones that need no network, and with stand-ins for optional libraries."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

from ecrt.cli import app
from ecrt.data import read_data
from ecrt.embedding import BACKBONES, embed, make_backbone, read_items
from ecrt.errors import InputError

BATCH = 4


@pytest.fixture
def folder(tmp_path):
    """80 images of two classes in two splits: more than two chunks of eight batches."""
    rng = np.random.default_rng(0)
    for split, n in (("train", 30), ("val", 10)):
        for place, label in enumerate(("dark", "light")):
            (tmp_path / "images" / split / label).mkdir(parents=True)
            for number in range(n):
                pixels = rng.integers(110 * place, 110 * place + 140, (10, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "images" / split / label / f"{number:02d}.png")
    return tmp_path / "images"


class Stopping:
    """A backbone that is killed after so many batches."""

    def __init__(self, inner, batches):
        self.__dict__ |= vars(inner)
        self.inner, self.left = inner, batches

    def encode(self, prepared):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return self.inner.encode(prepared)


def stopping(inner, batches):
    found = Stopping(inner, batches)
    del found.__dict__["encode"]
    return found


def test_features_are_those_of_each_image(folder, tmp_path):
    items = read_items(folder)
    found = embed(items, make_backbone("pixels:4"), tmp_path / "out.npz", batch_size=BATCH)
    assert (found.rows, found.features, found.kept) == (80, 48, 0)
    with np.load(tmp_path / "out.npz") as arrays:
        one = list(arrays["ids"]).index("val/light/03.png")
        with Image.open(folder / "val/light/03.png") as image:
            expected = np.asarray(image, dtype=np.float64).mean()
        assert arrays["X"].dtype == np.float32
        assert 255 * arrays["X"][one].mean() == pytest.approx(expected, abs=8)  # cut to a square
        assert arrays["y"][one] == "light"
        assert arrays["test"].sum() == 20
        assert arrays["X"][~arrays["test"]].shape == (60, 48)
        assert arrays["y"][arrays["test"]].tolist() == ["dark"] * 10 + ["light"] * 10


@pytest.mark.parametrize("batches", [0, 3, 8, 13, 19])
def test_stopped_and_called_again_gives_the_same_bytes(folder, tmp_path, batches):
    items, backbone = read_items(folder), make_backbone("pixels:4")
    embed(items, backbone, tmp_path / "whole.npz", batch_size=BATCH)
    with pytest.raises(KeyboardInterrupt):
        embed(items, stopping(backbone, batches), tmp_path / "stopped.npz", batch_size=BATCH)
    assert not (tmp_path / "stopped.npz").exists()
    again = embed(items, backbone, tmp_path / "stopped.npz", batch_size=BATCH)
    assert again.kept == batches // 8 * 8 * BATCH  # chunks are of eight batches
    assert (tmp_path / "stopped.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    assert not (tmp_path / "stopped.npz.parts").exists()


@pytest.mark.parametrize("change", ["image", "backbone", "batch"])
def test_chunks_of_something_else_are_not_used(folder, tmp_path, change):
    backbone, size = make_backbone("pixels:4"), BATCH
    with pytest.raises(KeyboardInterrupt):
        embed(read_items(folder), stopping(backbone, 9), tmp_path / "out.npz", batch_size=size)
    if change == "image":
        Image.new("RGB", (10, 12), (255, 0, 0)).save(folder / "train" / "dark" / "00.png")
    elif change == "backbone":
        backbone = make_backbone("pixels:3")
    else:
        size = 5
    found = embed(read_items(folder), backbone, tmp_path / "out.npz", batch_size=size)
    assert found.kept == 0


def test_an_image_that_cannot_be_read_is_named(folder, tmp_path):
    (folder / "train" / "dark" / "07.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"07\.png cannot be read"):
        embed(read_items(folder), make_backbone("pixels:4"), tmp_path / "out.npz")


def test_split_and_rows(folder):
    assert len(read_items(folder, split="val")) == 20
    few = read_items(folder, rows=7, seed=3)
    assert len(few) == 7
    assert few.ids.tolist() == read_items(folder, rows=7, seed=3).ids.tolist()
    with pytest.raises(InputError, match=r"nothing in the split 'test'; there are \['train', 'val'\]"):
        read_items(folder, split="test")


def test_text_of_a_table(tmp_path):
    file = tmp_path / "texts.csv"
    file.write_text("body,kind\nred apple,fruit\ngreen pear,fruit\nan old car,vehicle\n")
    items = read_items(file, text="body", target="kind")
    embed(items, make_backbone("words:64"), tmp_path / "out.npz", batch_size=2)
    with np.load(tmp_path / "out.npz") as arrays:
        assert arrays["X"].shape == (3, 64)
        np.testing.assert_allclose(np.linalg.norm(arrays["X"], axis=1), 1, rtol=1e-6)
        assert arrays["y"].tolist() == ["fruit", "fruit", "vehicle"]
        assert "test" not in arrays
    for options, message in (
        ({}, "--text COL"),
        ({"text": "bod"}, "no column 'bod'"),
        ({"text": "body", "split": "train"}, "has no splits"),
    ):
        with pytest.raises(InputError, match=message):
            read_items(file, **options)
    file.write_text("body,kind\nred apple,fruit\n,fruit\n")
    with pytest.raises(InputError, match="row 1 has no text in 'body'"):
        read_items(file, text="body")


def test_images_and_text_are_not_confused(folder, tmp_path):
    with pytest.raises(InputError, match=r"words:8 takes texts, and the source holds images"):
        embed(read_items(folder), make_backbone("words:8"), tmp_path / "out.npz")
    with pytest.raises(InputError, match="columns of a table"):
        read_items(folder, text="body")


# --- optional libraries -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet18", "No backbone is called 'resnet18'"),
        ("timm:", "No backbone is called 'timm:'"),
        ("pixels:many", "a positive whole number"),
    ],
)
def test_wrong_names(name, message):
    with pytest.raises(InputError, match=message):
        make_backbone(name)


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [
        ("timm", "timm:resnet18", r"ecrt\[vision\]"),
        ("torchvision", "torchvision:resnet18", r"ecrt\[vision\]"),
        ("sentence_transformers", "sentence-transformers:all-MiniLM-L6-v2", r"ecrt\[text\]"),
    ],
)
def test_a_library_that_is_absent_is_named(monkeypatch, module, name, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"{name} needs {module}: .*{extra}"):
        make_backbone(name)


def _small_network(n_classes=5):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, n_classes))


def _to_tensor(image):
    return torch.from_numpy(np.asarray(image.resize((2, 2)), dtype=np.float32) / 255).permute(2, 0, 1)


@pytest.fixture
def libraries(monkeypatch):
    """Stand-ins with the calls of timm and torchvision that are used, around the same small network."""
    timm = ModuleType("timm")

    def create_model(name, pretrained, num_classes):
        if name != "small":
            raise RuntimeError(f"Unknown model ({name})")
        if pretrained:
            raise OSError("no connection")
        network = _small_network()
        network[-1] = nn.Identity()
        return network

    timm.create_model = create_model
    timm.data = SimpleNamespace(
        resolve_model_data_config=lambda network: {"size": 2}, create_transform=lambda size, is_training: _to_tensor
    )
    models = ModuleType("torchvision.models")
    published = SimpleNamespace(transforms=lambda: _to_tensor)
    models.get_model_weights = lambda name: SimpleNamespace(DEFAULT=published)
    models.get_model = lambda name, weights: _small_network()
    torchvision = ModuleType("torchvision")
    torchvision.models = models
    for module in (timm, torchvision, models):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_timm_and_torchvision_give_what_comes_before_the_last_layer(libraries, folder, tmp_path):
    save_file(_small_network().state_dict(), tmp_path / "w.safetensors")
    vision = make_backbone("torchvision:small")
    timm = make_backbone("timm:small", weights=tmp_path / "w.safetensors")
    image = Image.new("RGB", (9, 9), (10, 200, 90))
    expected = _small_network()[:3](_to_tensor(image)[None]).detach().numpy()
    for backbone in (vision, timm):
        np.testing.assert_array_equal(backbone.encode([backbone.prepare(image)]), expected)
    save_file({"other": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="weights of another network"):
        make_backbone("torchvision:small", weights=tmp_path / "other.safetensors")
    other = _small_network()
    nn.init.zeros_(other[1].weight)
    save_file(other.state_dict(), tmp_path / "zero.safetensors")
    assert make_backbone("timm:small", weights=tmp_path / "zero.safetensors").identity != timm.identity
    (tmp_path / "w.pth").write_bytes(b"")
    with pytest.raises(InputError, match=r"w\.pth is not a \.safetensors file"):
        make_backbone("timm:small", weights=tmp_path / "w.pth")


def test_what_a_library_raises_is_told_in_a_sentence(libraries):
    with pytest.raises(InputError, match=r"timm:big cannot be made: Unknown model \(big\)"):
        make_backbone("timm:big")
    with pytest.raises(InputError, match=r"no connection.*--weights"):
        make_backbone("timm:small")


def test_a_build_for_another_torch_is_told(monkeypatch, tmp_path):
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(InputError, match=r"does not work beside torch .*nms does not exist"):
        make_backbone("timm:small")


def test_every_family_has_an_example_of_its_own_name():
    assert all(family.example.startswith(f"{prefix}:") for prefix, family in BACKBONES.items())


# --- the command --------------------------------------------------------------------------------------------------


def test_command_writes_what_fit_reads(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["embed", str(folder), "--backbone", "pixels:3", "-o", "f.npz", "--split", "train", "--device", "cpu"]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.output
    assert "60 rows of 27 features." in run.output
    assert "already exists; use --force" in CliRunner().invoke(app, words).output
    found = read_data(tmp_path / "f.npz", target=["y"])  # as ecrt fit and ecrt predict do
    assert found.X.shape == (60, 27)
    assert set(found.y) == {"dark", "light"}
    assert found.ids["id"].iloc[0] == "train/dark/00.png"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere", "--backbone", "pixels:3"], "There is no file or folder nowhere."),
        ([".", "--backbone", "pixels:3", "-o", "f.csv"], "written as .npz, not .csv"),
        ([".", "--backbone", "pixel:3"], "No backbone is called 'pixel:3'"),
        ([".", "--backbone", "pixels:3", "--device", "tpuu"], "device='tpuu' cannot be used here"),
        ([".", "--backbone", "pixels:3", "--weights", "w.pth"], "There is no file of weights w.pth"),
    ],
)
def test_errors_of_the_command(folder, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    run = CliRunner().invoke(app, ["embed", *words])
    assert run.exit_code == 1
    assert message in run.output.replace("\n", "")
