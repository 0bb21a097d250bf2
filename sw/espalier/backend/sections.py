"""DDR sections: the program as the accelerator's loader reads it."""

from __future__ import annotations

from espalier.arch.config import HardwareConfig
from espalier.arch.fields import pack
from espalier.arch.program import PROGRAM_WORD_BITS, SECTION_FIELDS, SectionKind
from espalier.backend.descriptors import PROGRAM_WORD_BYTES
from espalier.backend.streams import STREAM_WORD_BYTES

WORD_BYTES = {
    SectionKind.PROGRAM: PROGRAM_WORD_BYTES,
    SectionKind.STREAM: STREAM_WORD_BYTES,
    SectionKind.TABLE: STREAM_WORD_BYTES,
}
BEAT_BYTES = PROGRAM_WORD_BITS // 8


def build_program(
    descriptors: bytes, streams: list[bytes], tables: list[bytes], config: HardwareConfig, whole_bursts: bool
) -> bytes:
    """All sections and the END section. Empty ones are left out.

    streams: of every PE, counted over all branches. With `whole_bursts` a section is lengthened with zero
    words until the next one starts on a burst boundary, where the destination has room for them.
    """
    sections = [(SectionKind.PROGRAM, 0, descriptors, config.program_depth_words)]
    sections += [(SectionKind.STREAM, i, data, config.stream_depth_words) for i, data in enumerate(streams)]
    sections += [(SectionKind.TABLE, i, data, config.table_depth_words) for i, data in enumerate(tables)]
    burst = config.burst_beats * BEAT_BYTES if whole_bursts else BEAT_BYTES
    content = b"".join(
        _section(kind, index, data, depth, burst) for kind, index, data, depth in sections if data
    )
    return content + _header(SectionKind.END, 0, 0)


def build_batch(
    pieces: list[tuple[int, bytes]], left: int, following: int, config: HardwareConfig, whole_bursts: bool
) -> bytes:
    """Sections of a batch of streams and its END section.

    pieces: address and content, of every PE. The next batch has `following` beats (0: there is none) and may
    be read when `left` batches have been left. With `whole_bursts` the batch is padded to whole bursts.
    """
    content = b"".join(
        _section(SectionKind.STREAM, index, data, 0, BEAT_BYTES, address)
        for index, (address, data) in enumerate(pieces)
    )
    content += _header(SectionKind.END, left, following)
    return padded(content, config, whole_bursts)


def padded(content: bytes, config: HardwareConfig, whole_bursts: bool) -> bytes:
    """Lengthen a content with zeros to whole bursts, or leave it as it is."""
    return content + bytes(-len(content) % (config.burst_beats * BEAT_BYTES)) if whole_bursts else content


def _section(kind: SectionKind, index: int, data: bytes, depth: int, burst: int, address: int = 0) -> bytes:
    """`depth`: words that there are for content that is lengthened to fill a burst."""
    word = WORD_BYTES[kind]
    beats = -(-(BEAT_BYTES + len(data)) // burst) * burst // BEAT_BYTES
    words = len(data) // word
    if (filled := (beats - 1) * BEAT_BYTES // word) <= depth:
        words = filled
    payload = data.ljust(words * word, b"\0")
    whole = payload.ljust(-(-len(payload) // BEAT_BYTES) * BEAT_BYTES, b"\0")
    return _header(kind, index, words, address) + whole


def _header(kind: SectionKind, index: int, words: int, address: int = 0) -> bytes:
    values = {"kind": int(kind), "index": index, "address": address, "words": words}
    return pack(SECTION_FIELDS, values).to_bytes(BEAT_BYTES, "little")
