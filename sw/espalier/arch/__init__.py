"""What the hardware is: configuration, operator and program format, registers.

Leaf package (NumPy and the standard library only). Hardware, compiler, estimator and driver all
generate what they need from the one description given here.
"""
