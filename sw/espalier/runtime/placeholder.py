"""Placeholder bitstreams: what a simulated board reads instead of configuration data."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from espalier.errors import DeviceError

# In the payload. A real payload has a synchronisation word there, which this one never holds, so that no
# FPGA accepts it as a configuration.
PLACEHOLDER_MAGIC = b"ESPALIER-SIMULATION-ONLY"
_HEADER = 4096  # bytes that hold header and magic


def swap_words(content: bytes) -> bytes:
    """Reverse the bytes of every 32-bit word, as PYNQ does with the payload of a .bit file."""
    return b"".join(content[index : index + 4][::-1] for index in range(0, len(content), 4))


def is_placeholder(path: str | Path) -> bool:
    """Whether a .bit file is a placeholder.

    Raises:
        DeviceError: it cannot be read.

    """
    try:
        with Path(path).open("rb") as stream:
            head = stream.read(_HEADER)
    except OSError as error:
        raise DeviceError(f"cannot read bitstream {path}: {error.strerror}") from error
    return any(
        PLACEHOLDER_MAGIC in part for start in range(4) for part in (head, swap_words(_whole(head[start:])))
    )


def encode_manifest(manifest: dict[str, Any]) -> bytes:
    """Payload of a placeholder, in whole words, as it is before `swap_words`."""
    text = json.dumps(manifest, sort_keys=True).encode()
    payload = PLACEHOLDER_MAGIC + struct.pack(">I", len(text)) + text
    return payload + bytes(-len(payload) % 4)


def decode_manifest(payload: bytes) -> dict[str, Any]:
    """Inverse of `encode_manifest`.

    Raises:
        DeviceError: no placeholder: a real bitstream cannot be simulated.

    """
    if not payload.startswith(PLACEHOLDER_MAGIC):
        raise DeviceError(
            "a simulated board takes placeholder bitstreams only; real ones cannot be simulated"
        )
    start = len(PLACEHOLDER_MAGIC) + 4
    (count,) = struct.unpack(">I", payload[start - 4 : start])
    manifest: dict[str, Any] = json.loads(payload[start : start + count])
    return manifest


def _whole(content: bytes) -> bytes:
    return content[: len(content) // 4 * 4]
