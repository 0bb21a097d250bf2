"""Progress messages of `sim`, the same as those of `espalier`."""

from espalier.report.progress import Progress, progress_on_stderr, silent

__all__ = ["Progress", "progress_on_stderr", "silent"]
