"""A PYNQ board whose programmable logic is the accelerator's RTL in the compiled simulator.

    python -m espalier_sim.board --files FOLDER --target tiny  # espalier_tiny_simulation.bit and .hwh
    python -m espalier_sim.board script.py                     # runs an unmodified PYNQ script on it

Scripts that use `espalier.runtime` also find it without the launcher if ESPALIER_BOARD names a board.
"""
