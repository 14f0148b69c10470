"""Families of kernels, few enough to be told apart in a plot."""

GEMM, ATTENTION, NORM, SOFTMAX = "GEMM", "attention", "normalisation", "softmax, cross-entropy"
ELEMENTS, OPTIMIZER, EXCHANGE = "GELU, residual, dropout, embedding", "optimizer", "sum, cast, quantise, pack"
OTHER = "other"

# By how a kernel's name begins; the longest beginning counts.
_BEGINNINGS = {
    "gemm": GEMM, "attention": ATTENTION,
    "layernorm": NORM, "rmsnorm": NORM, "residual_layernorm": NORM, "residual_rmsnorm": NORM,
    "softmax": SOFTMAX, "cross_entropy": SOFTMAX,
    "gelu": ELEMENTS, "residual_add": ELEMENTS, "dropout": ELEMENTS, "embedding": ELEMENTS,
    "adamw": OPTIMIZER, "sgd": OPTIMIZER, "sum_of_squares": OPTIMIZER, "clip": OPTIMIZER, "finite_check": OPTIMIZER,
    "cast": EXCHANGE, "quantize": EXCHANGE, "dequantize": EXCHANGE, "pack": EXCHANGE, "unpack": EXCHANGE,
    "reduc": EXCHANGE, "sum": EXCHANGE,
}
ORDER = [*dict.fromkeys(_BEGINNINGS.values()), OTHER]


def group_of(kernel: str) -> str:
    fitting = [beginning for beginning in _BEGINNINGS if kernel.startswith(beginning)]
    return _BEGINNINGS[max(fitting, key=len)] if fitting else OTHER
