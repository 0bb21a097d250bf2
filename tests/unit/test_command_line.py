"""What command lines make of errors: exit code and message."""

import pytest

from espalier.arch.config import PRESET_FOLDER
from espalier.cli.compile_command import compile_model
from espalier.cli.handling import run_command
from espalier.errors import CapacityError, InternalError, UserError, VerificationMismatch


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("wrong file"), 2, "error: wrong file\n"),
        (VerificationMismatch("layer 1"), 1, "error: layer 1\n"),
        (InternalError("bug"), 70, "error: bug\n"),
        (
            PermissionError(13, "Permission denied", "/x"),
            2,
            "error: cannot read or write /x: Permission denied\n",
        ),
        (OSError(28, "No space left"), 2, "error: cannot read or write: No space left\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_errors_become_messages_and_exit_codes(error, code, message, capsys):
    def command():
        raise error

    with pytest.raises(SystemExit) as caught:
        run_command(command)
    assert caught.value.code == code
    assert capsys.readouterr().err == message


def test_bugs_keep_their_traceback():
    with pytest.raises(ZeroDivisionError):
        run_command(lambda: print(1 // 0))


def test_configurations_beyond_their_device_are_refused(tmp_path):
    text = (PRESET_FOLDER / "zcu104.yaml").read_text(encoding="utf-8").replace("lut_pes: 16", "lut_pes: 24")
    path = tmp_path / "large.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CapacityError, match=r"'zcu104' needs more than 80% of xczu7ev.*LUT"):
        compile_model("resnet18", tmp_path / "net.image", str(path))
    assert not (tmp_path / "net.image").exists()


def test_networks_are_compressed_before_they_are_compiled(tmp_path):
    with pytest.raises(UserError, match=r"net\.onnx is not compressed yet: run `espalier compress`"):
        compile_model("net.onnx", tmp_path / "net.image", "tiny")
