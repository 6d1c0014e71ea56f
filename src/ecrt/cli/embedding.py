"""The command embed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ecrt.cli.shared import one_line_errors, tell
from ecrt.errors import InputError

__all__ = ["embed_source"]


def embed_source(
    context: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(help="Folder of images, or a table with a text column."),
    ],
    backbone: Annotated[
        str, typer.Option(metavar="NAME", help="Network, such as torchvision:resnet18; a wrong name lists all kinds.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="NPZ file to write; ecrt fit reads it.")
    ] = Path("embeddings.npz"),
    text: Annotated[str | None, typer.Option(metavar="COL", help="Column of a table that holds the text.")] = None,
    target: Annotated[str | None, typer.Option(metavar="COL", help="Column of a table that holds the class.")] = None,
    split: Annotated[str | None, typer.Option(help="Only this split of a collection: train, val or test.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="At most so many, drawn at random.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which rows are drawn.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Items that the network sees at once.")] = 64,
    threads: Annotated[int, typer.Option(min=1, help="Threads that open images.")] = 4,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Weights of the network (.safetensors), instead of a download.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Turn images or text into features; stop it at any time, and the same command goes on."""
    with one_line_errors(debug=context.obj):
        from ecrt.embedding import embed, make_backbone, read_items
        from ecrt.estimators.inputs import resolve_device
        from ecrt.training import BarProgress

        if output.suffix != ".npz":
            raise InputError(f"The features are written as .npz, not {output.suffix or 'without an ending'}.")
        if output.exists() and not force:
            raise InputError(f"{output} is there already; --force writes it anew.")
        items = read_items(
            source,
            text=text,
            target=target,
            split=split,
            rows=rows,
            seed=seed,
        )
        network = make_backbone(backbone, device=resolve_device(device), weights=weights)
        with BarProgress() as progress:
            found = embed(items, network, output, batch_size=batch_size, threads=threads, progress=progress)
        kept = f", {found.kept} of them from an earlier run" if found.kept else ""
        tell(f"{found.rows} rows of {found.features} features{kept}.")
        tell(f"Features: {found.file}")
