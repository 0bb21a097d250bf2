"""How good a compressed network is: scores on labelled pictures, paired, and fidelity layer by layer."""
