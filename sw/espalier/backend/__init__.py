"""Part of Espalier."""
