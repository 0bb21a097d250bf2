"""`espalier compile`: a compressed model becomes the program image of one target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compile_model(
    model: Annotated[str, typer.Argument(help="built-in name or .espalier file")],
    out: Annotated[Path, typer.Option("--out", "-o", help="program image to write")],
    target: Annotated[str, typer.Option(help="preset name or configuration file")] = "zcu104",
    refine: Annotated[
        bool,
        typer.Option(
            "--refine", help="search on, by the cycles of the whole program: about 1 % less, in minutes"
        ),
    ] = False,
) -> None:
    """Compile MODEL for TARGET and print what each layer costs."""
    from espalier.arch.config import load_config
    from espalier.backend.compiler import compile_graph
    from espalier.backend.options import CompileOptions
    from espalier.cli.models import load_compressed
    from espalier.estimate.resources import check_fits
    from espalier.report.progress import progress_on_stderr

    config = load_config(target)
    check_fits(config)
    graph = load_compressed(model, "compile")
    with progress_on_stderr() as show_progress:
        image = compile_graph(
            graph,
            config,
            CompileOptions(refine=refine),
            lambda what, done, total: show_progress(f"[{done}/{total}] {what}"),
        )
    image.save(out)
    metadata = image.metadata
    typer.echo(f"{'layer':24s} {'operators':>10s} {'nulls':>8s} {'predicted cycles':>17s}")
    for layer in metadata.layers:
        typer.echo(
            f"{layer.name:24s} {layer.operators:10d} {layer.null_operators:8d} {layer.predicted_cycles:17d}"
        )
    for memory in metadata.memory:
        typer.echo(f"{memory.memory} memory: {memory.used} of {memory.available} words")
    milliseconds = metadata.predicted_cycles / config.clock_mhz / 1000
    typer.echo(
        f"wrote {out}: {metadata.predicted_cycles} cycles predicted, {milliseconds:.3f} ms at"
        f" {config.clock_mhz} MHz ({config.clock_source})"
    )
