"""The compiler: from an integer graph to a program image, and the emulator that executes images."""
