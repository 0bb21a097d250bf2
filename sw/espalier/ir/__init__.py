"""Intermediate representations: imported, float and integer graphs, their checks and the model file."""
