"""`espalier evaluate`: accuracy of a compressed model, paired against the float network it was made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

COMPARABLE = ("float", "integer")


def evaluate(
    model: Annotated[str, typer.Argument(help="compressed model (.espalier) or name of a built-in one")],
    pictures: Annotated[Path, typer.Option(help="folder of pictures")],
    network: Annotated[
        Path | None, typer.Option("--float", help="the .onnx that MODEL was compressed from")
    ] = None,
    classes: Annotated[
        Path | None, typer.Option(help="CSV with columns 'file' and 'class' (0, 1, ...)")
    ] = None,
    compare: Annotated[
        str | None, typer.Option(help="float,integer (default with --float) or integer")
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="picture preparation: imagenet, cifar or crop; default: the model's")
    ] = None,
    layers: Annotated[int, typer.Option(min=0, help="pictures to compare layer by layer")] = 16,
    limit: Annotated[float, typer.Option(help="dB of SQNR below which a layer disagrees")] = 10.0,
    json_path: Annotated[Path | None, typer.Option("--json", help="also write the result here")] = None,
) -> None:
    """Score MODEL on pictures, bit for bit as the hardware computes, and find where it leaves float."""
    import json
    from dataclasses import replace

    from espalier.cli.models import load_compressed
    from espalier.errors import PictureError, UserError
    from espalier.evaluation.evaluate import evaluate_pictures
    from espalier.evaluation.pictures import picture_set
    from espalier.evaluation.result import text_lines, values
    from espalier.frontend import load_onnx
    from espalier.runtime.preprocess import RULES, Preprocessing

    chosen = ("float,integer" if network else "integer") if compare is None else compare
    sides = chosen.split(",")
    if set(sides) - set(COMPARABLE) or "integer" not in sides or len(set(sides)) != len(sides):
        raise UserError(f"cannot compare '{chosen}': choose float,integer or integer")
    if "float" in sides and network is None:
        raise UserError("comparing with float needs the network MODEL was made of: --float NETWORK.onnx")
    if rule is not None and rule not in RULES:
        raise PictureError(f"unknown rule '{rule}' to prepare pictures: choose {', '.join(RULES)}")

    integer = load_compressed(model, "evaluate")
    reference = load_onnx(network) if network is not None and "float" in sides else None
    tensor = integer.tensors[integer.input]
    preprocessing = Preprocessing.of(integer.metadata, tensor)
    if rule is not None:
        preprocessing = replace(preprocessing, rule=rule)
    files = picture_set(pictures, classes, integer.tensors[integer.output].channels)

    def progress(done: int, total: int) -> None:
        typer.echo(f"{done}/{total} pictures", err=True)

    found = evaluate_pictures(integer, reference, files, preprocessing, layers, progress)
    for line in text_lines(found, limit):
        typer.echo(line)
    for message in files.skipped:
        typer.echo(f"skipped: {message}", err=True)
    if json_path is not None:
        json_path.write_text(json.dumps(values(found, limit), indent=2) + "\n", encoding="utf-8")
