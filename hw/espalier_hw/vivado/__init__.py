"""From Verilog to a bitstream with Vivado: scripts, stages that run them, a stand-in to check them."""
