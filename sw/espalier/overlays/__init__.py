"""Bitstreams that PYNQ finds by name: put NAME.bit and NAME.hwh into this folder."""
