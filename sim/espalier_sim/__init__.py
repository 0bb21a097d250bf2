"""Runs the generated accelerator in a compiled simulator and compares it with the integer model."""
