"""Prediction of cycles, with which the compiler chooses between mappings."""
