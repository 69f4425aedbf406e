"""patterns.py: which nodes of the graph are which row of ops.def: one entry each. A new op is an entry here and a formula in formulas.py.

An entry has the row, the expression of its nodes (match.py), what the row reads, in its order, and the function of layout.py that says what of
the user's value lies where. Entries are tried in this order, from the last node of an expression."""
from dataclasses import dataclass, field
from typing import Callable

import layout
from match import Either, Part, Word


@dataclass(frozen=True)
class Pattern:
    row: str
    expression: tuple | None
    operands: str  # names of the expression; "-": absent
    make: Callable
    attributes: str = ""
    others: dict = field(default_factory=dict)  # attributes of which the expression does not say the value
    when: Callable = lambda bound: True  # whether it is the row, of what the names stand for


# ---- norms ----
SQUARE = Either(("pow", "x", 2), ("square", "x"), ("mul", "x", "x"))
MEAN = ("add", ("mean", SQUARE, {"dim": -1, "keepdim": True, "dtype": "_"}), "#epsilon")
NORMED = Either(
    ("mul", "x", Either(("rsqrt", MEAN), ("pow", MEAN, -0.5), ("reciprocal", ("sqrt", MEAN)))),
    ("div", "x", Either(("sqrt", MEAN), ("pow", MEAN, 0.5))),
)

# ---- activations ----
TANH_PART = ("mul", ("add", "x", ("mul", ("pow", "x", 3), 0.044715)), 0.7978845608)
ONE_AND_TANH = ("add", ("tanh", TANH_PART), 1.0)
GELU_TANH = Either(
    ("gelu", "x", {"approximate": Word("tanh")}),
    ("mul", ("mul", "x", 0.5), ONE_AND_TANH),
    ("mul", ("mul", "x", ONE_AND_TANH), 0.5),
    ("mul", ("mul", ONE_AND_TANH, 0.5), "x"),
)
GELU = Either(
    ("gelu", "x", {"approximate": Word("none")}),
    ("mul", ("mul", "x", 0.5), ("add", ("erf", Either(("div", "x", 1.4142135624), ("mul", "x", 0.7071067812))), 1.0)),
)
SILU = Either(("silu", "x"), ("mul", "x", ("sigmoid", "x")))


def of_gate(activation):
    """The same expression of the name gate."""
    if isinstance(activation, Either):
        return Either(*map(of_gate, activation.expressions))
    if isinstance(activation, tuple):
        return tuple(map(of_gate, activation))
    return "gate" if activation == "x" else activation


# ---- positions ----
TURNED = ("cat", [("neg", Part(1, 2, "x")), Part(0, 2, "x")], -1)
ROTATED = ("add", ("mul", "x", "@cos"), ("mul", TURNED, "@sin"))
ROTATED_HALVES = ("cat", [("sub", ("mul", Part(0, 2, "x"), "@cos"), ("mul", Part(1, 2, "x"), "@sin")),
                          ("add", ("mul", Part(1, 2, "x"), "@cos"), ("mul", Part(0, 2, "x"), "@sin"))], -1)

# ---- attention, written out ----
PRODUCT = ("matmul|bmm", "q", "k")
SCALED_PRODUCT = ("bmm", ("mul", "q", "#scale"), "k")  # of nn.MultiheadAttention, as ADDED
ADDED = ("baddbmm", Either("@mask", "%mask"), Either(("mul", "q", "#scale"), "q"), "k")
SCORES = Either(("mul", PRODUCT, "#scale"), ("div", PRODUCT, "#divisor"), SCALED_PRODUCT, PRODUCT)
MASKED = Either(ADDED, ("add", SCORES, Either("@mask", "%mask")), ("masked_fill", SCORES, "@hidden", "#least"), ("where", "@shown", SCORES, "#least"), SCORES)
ATTENTION = ("matmul|bmm", ("softmax", MASKED, -1, {"dtype": "_"}), "v")
FUSED_ATTENTION = ("scaled_dot_product_attention", "q", "k", "v",
                   {"attn_mask": Either("@mask?", "%mask"), "is_causal": "_", "scale": "#scale?", "enable_gqa": "_"})

# ---- keys and values that several heads read ----
REPEATED = Either(("reshape|view|_unsafe_view", ("expand", ("unsqueeze", "x", "_"), "_"), "_"), ("repeat_interleave", "x", "_", "_"))

# ---- products ----
TRANSPOSED = Either(("t|numpy_T", ".w"), ("transpose", ".w", "_", "_"), ("permute", ".w", [1, 0]))

PATTERNS = (
    Pattern("EMBEDDING", ("embedding", ".table", "ids"), "ids .table", layout.embedding),
    Pattern("POSITION", ("add", "x", ("embedding", ".table", "@positions")), "x .table", layout.position),
    Pattern("POSITION", ("add", "x", ("slice", ".table", {"dim": -2, "start": Either(0, None), "end": "_"})), "x .table", layout.position),
    Pattern("LINEAR", ("linear", "x", ".w", ".bias?"), "x .w", layout.product),
    Pattern("LINEAR", ("matmul|mm", "x", TRANSPOSED), "x .w", layout.product),
    Pattern("AFFINE", ("addmm", ".bias", "x", ".w"), "x .w .bias -", layout.rows),
    Pattern("AFFINE", ("add", ("matmul|mm", "x", ".w"), ".bias"), "x .w .bias -", layout.rows),
    Pattern("RMSNORM", ("mul", NORMED, ".gain"), "x .gain", layout.norm, "epsilon"),
    Pattern("RMSNORM", ("mul", NORMED, ("add", ".gain", "#offset")), "x .gain", layout.norm, "epsilon offset"),
    Pattern("RMSNORM", ("rms_norm", "x", "_", ".gain", "#epsilon?"), "x .gain", layout.norm, "epsilon", {"epsilon": layout.F32_EPSILON}),
    Pattern("LAYERNORM", ("layer_norm", "x", "_", ".gain", ".bias", "#epsilon"), "x .gain .bias", layout.norm, "epsilon"),
    Pattern("ROPE", ROTATED, "x", layout.rotation),
    Pattern("ROPE", ROTATED_HALVES, "x", layout.rotation),
    Pattern("ATTENTION", FUSED_ATTENTION, "q k v", layout.attention),
    Pattern("ATTENTION", ATTENTION, "q k v", layout.attention),
    Pattern("SWIGLU", ("mul", of_gate(SILU), "up"), "gate up", layout.elementwise),
    Pattern("GEGLU", ("mul", of_gate(GELU_TANH), "up"), "gate up", layout.elementwise),
    Pattern("GELU_TANH", GELU_TANH, "x", layout.elementwise),
    Pattern("GELU", GELU, "x", layout.elementwise),
    Pattern("SCALE", ("mul", "x", "#factor"), "x", layout.elementwise, "factor"),
    Pattern("SCALE", ("div", "x", "#divisor"), "x", layout.division),
    Pattern("BIAS", ("add", "x", ".bias"), "x .bias", layout.bias),
    Pattern("ADD", ("add", "x", "y"), "x y", layout.elementwise, when=layout.have_one_shape),
    Pattern("ROW_MEAN", ("mean", "x", {"dim": -1, "keepdim": "_", "dtype": "_"}), "x", layout.of_row),
    Pattern("ROW_SUM", ("linalg_vector_norm|norm", "x", 2, {"dim": -1, "keepdim": "_"}), "x", layout.length),
    Pattern("ROW_SUM", ("sum", "x", {"dim": -1, "keepdim": "_", "dtype": "_"}), "x", layout.of_row),
    Pattern("", REPEATED, "x", layout.repeated),
    Pattern("CROSS_ENTROPY", ("cross_entropy_loss", "logits", "targets", {"reduction": "#reduction", "ignore_index": "#ignored", "label_smoothing": "#smoothing"}),
            "logits targets", layout.cross_entropy),
    Pattern("CROSS_ENTROPY", ("nll_loss|nll_loss_nd", ("log_softmax", "logits", -1, {"dtype": "_"}), "targets",
                              {"reduction": "#reduction", "ignore_index": "#ignored"}), "logits targets", layout.cross_entropy),
    Pattern("LOGP", ("gather", ("log_softmax", "logits", -1, {"dtype": "_"}), -1, "ids"), "logits ids", layout.gathered),
    Pattern("LOGP", ("logsumexp", "logits", [-1], {"keepdim": "_"}), "logits", layout.log_sum),
)

POINTWISE = Pattern("POINTWISE", None, "", layout.pointwise)  # of nodes that elementwise.py reads


def kinds_of(expression):
    """The ATen ops that an expression's last node may be."""
    if isinstance(expression, Either):
        return [kind for each in expression.expressions for kind in kinds_of(each)]
    return expression[0].split("|")


BY_KIND = {}
for each in PATTERNS:
    for kind in dict.fromkeys(kinds_of(each.expression)):
        BY_KIND.setdefault(kind, []).append(each)
