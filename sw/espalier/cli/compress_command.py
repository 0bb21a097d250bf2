"""`espalier compress`: a float network in ONNX becomes a compressed model file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compress(
    model: Annotated[Path, typer.Argument(help="network as .onnx")],
    calibration: Annotated[Path, typer.Option(help="folder of typical pictures (200 are plenty)")],
    out: Annotated[Path, typer.Option("--out", "-o", help="model file to write (.espalier)")],
    bits: Annotated[int, typer.Option(help="weight bits, 1-8; above 4 a weight costs two operators")] = 4,
    bits_of: Annotated[
        list[str] | None,
        typer.Option("--layer-bits", help="LAYER=BITS for a layer of other bits; may be repeated"),
    ] = None,
    mac_fraction: Annotated[float, typer.Option(help="share of the dense MACs to keep at most")] = 0.198,
    max_operators: Annotated[int, typer.Option(help="weights to keep at most")] = 1_450_000,
    first_layer_density: Annotated[
        float, typer.Option(help="share of the first layer's weights to keep")
    ] = 0.5,
    density: Annotated[
        float | None, typer.Option(help="share of the weights to keep in every layer, instead of the budgets")
    ] = None,
    pattern: Annotated[
        str, typer.Option(help="of the non-zeros: none, row, row:K, bank:B, N:M or block:1xB")
    ] = "none",
    prune: Annotated[str, typer.Option(help="how masks are found: admm or magnitude")] = "admm",
    rounding: Annotated[
        str, typer.Option(help="feedback, or plain: nearest levels, nothing made up for")
    ] = "feedback",
    rule: Annotated[str, typer.Option(help="picture preparation: imagenet, cifar or crop")] = "imagenet",
    labels: Annotated[Path | None, typer.Option(help="text file with a class name per line")] = None,
    seed: Annotated[int, typer.Option(help="of the sampling of pixels")] = 0,
) -> None:
    """Prune and quantise MODEL with calibration pictures, without any training."""
    from espalier.compress.build import CompressOptions, LayerReport
    from espalier.compress.from_onnx import PictureOptions, compress_onnx
    from espalier.ir.storage import save_graph

    def progress(name: str, done: int, total: int, report: LayerReport | None) -> None:
        text = f"[{done}/{total}] {name}"
        if report is not None:
            text += f"  {report.bits} bits, density {report.density:.1%}, relative error {report.error:.4f}"
        typer.echo(text, err=True)

    options = CompressOptions(
        bits=bits,
        layer_bits=_layer_bits(bits_of or []),
        mac_fraction=mac_fraction,
        max_operators=max_operators,
        first_layer_density=first_layer_density,
        density=density,
        pattern=pattern,
        prune_method=prune,
        rounding=rounding,
        seed=seed,
    )
    pictures = PictureOptions(rule=rule, labels=labels)
    skipped: list[str] = []
    graph = compress_onnx(model, calibration, options, pictures, progress, skipped)
    for message in skipped:
        typer.echo(f"skipped: {message}", err=True)
    save_graph(graph, out)
    typer.echo(f"wrote {out}: {out.stat().st_size / 1000:.1f} kB")


def _layer_bits(texts: list[str]) -> dict[str, int]:
    """Bits by layer from LAYER=BITS.

    Raises:
        UserError: not of this form.

    """
    from espalier.errors import UserError

    found = {}
    for text in texts:
        name, _, bits = text.rpartition("=")
        if not name or not bits.isdecimal():
            raise UserError(f"'{text}' does not say a layer's bits: write LAYER=BITS, as in conv1=8")
        found[name] = int(bits)
    return found
