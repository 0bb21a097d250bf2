"""What to do about an ONNX node that is refused; the reasons themselves are the front end's."""

from __future__ import annotations

_ACTIVATION = "replace it by Relu and fine-tune the network"
_NORM = "replace it by BatchNormalization, whose statistics are fixed, and fine-tune the network"
_HOST = "run the network up to it on the accelerator and the rest on the host (cut the ONNX graph here)"
_RECURRENT = (
    "recurrent and attention layers have no place on this accelerator: give it the convolutional part alone"
)
_UPSAMPLE = (
    "maps cannot grow: cut the network before it and run the rest on the host, or export a network without it"
)

_FLOAT = "give the float network: `espalier compress` quantises it"

_FAMILIES = (
    (
        _ACTIVATION,
        "Celu, Elu, Erf, Gelu, HardSigmoid, HardSwish, LeakyRelu, Mish, PRelu, Selu, Sigmoid, Softplus",
    ),
    (_ACTIVATION, "Softsign, Swish, Tanh, ThresholdedRelu"),
    ("replace it by Relu (ReLU6 too) and fine-tune the network", "Clip"),
    (_NORM, "GroupNormalization, InstanceNormalization, LayerNormalization, LRN, LpNormalization"),
    (_NORM, "MeanVarianceNormalization, RMSNormalization"),
    (_RECURRENT, "LSTM, GRU, RNN, Attention, MultiHeadAttention, Einsum"),
    (_UPSAMPLE, "Resize, Upsample, ConvTranspose, DepthToSpace, GridSample, MaxUnpool"),
    ("add maps instead of concatenating them (Add is fused), or cut the network here", "Concat"),
    (_FLOAT, "QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, QLinearConv, QLinearMatMul"),
    (_FLOAT, "ConvInteger, MatMulInteger"),
    ("export the network without control flow", "If, Loop, Scan"),
    ("export the network in inference mode, or change the layer", "BatchNormalization"),
    ("change the layer to what is supported and train it again, or choose another variant", "Conv"),
)
_ADVICE = {operator: todo for todo, operators in _FAMILIES for operator in operators.split(", ")}


def advice(operator: str, domain: str, reasons: tuple[str, ...]) -> str:
    """Say what to do about a refused node, in words."""
    if domain:
        return f"export the network with standard operators instead of those of '{domain}'"
    if any("groups;" in reason for reason in reasons):
        return "use dense convolutions (groups 1), or choose a network without grouped or depthwise layers"
    if operator in _ADVICE:
        return _ADVICE[operator]
    if any("not supported" in reason for reason in reasons):
        return _HOST
    return "change the node to what is supported, or cut the network before it"
