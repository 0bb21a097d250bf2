"""Error types: what a user can mend is a `UserError`, what only a developer can is an `InternalError`."""

from __future__ import annotations


class EspalierError(Exception):
    """Base of all errors that Espalier raises on purpose."""


class UserError(EspalierError):
    """Something outside the program is wrong: the message says what, where, the limit and what to do.

    The command lines print the message alone, without a traceback, and exit with code 2.
    """

    exit_code = 2


class ConfigError(UserError):
    """A hardware configuration or preset is invalid or unknown."""


class UnsupportedModelError(UserError):
    """The network holds nodes that the accelerator cannot run; all of them are listed."""


class ModelFileError(UserError):
    """A model, image or weight file is missing, damaged or made for other hardware."""


class CapacityError(UserError):
    """The network does not fit the memories of the target; the message says by how much."""


class PictureError(UserError):
    """A picture is missing or unreadable."""


class ToolNotFoundError(UserError):
    """A program that is needed (compiler, simulator, make) is not installed."""


class BuildError(UserError):
    """A stage of a bitstream's build failed: timing, a tool's error, a file that is not there."""


class DeviceError(UserError):
    """An accelerator cannot be used: missing, other than expected, or busy; the message says what to do."""


class DeviceFault(DeviceError):
    """An accelerator reports an error or does not answer in time; the next call starts afresh."""


class DeviceTimeout(DeviceFault):
    """An accelerator has not answered in time; the message says what it was doing."""


class TensorError(UserError):
    """An array has another type or shape than the network takes."""


class VerificationMismatch(EspalierError):
    """Two executions that must agree bit for bit do not; names the first difference."""

    exit_code = 1


class InternalError(EspalierError):
    """A bug in Espalier itself; please report it with the message."""

    exit_code = 70
