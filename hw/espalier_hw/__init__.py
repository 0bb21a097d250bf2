"""The accelerator in Amaranth HDL; every block is parametrised by one `HardwareConfig`."""
