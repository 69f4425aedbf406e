"""patterns.py: which nodes of the graph are which row of ops.def: one entry each. A new op is an entry here and a formula in formulas.py.

An entry has the row, the expression of its nodes (match.py), what the row reads, in its order, and the function of layout.py that says what of
the user's value lies where. Entries are tried in this order, from the last node of an expression."""
from dataclasses import dataclass, field
from typing import Callable

import attention
import experts
import layout
import parts
from constants import OF_OTHER_VALUES
from inputs import IGNORED
from match import Behind, Column, Either, Every, Leading, Named, Pairs, Part, Result, SUMS, Terms, Trailing, Word


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

SQUARES = ("add", ("sum", SQUARE, {"dim": -1, "keepdim": True, "dtype": "_"}), "#epsilon")
OF_LENGTH_ONE = Either(("mul", "x", Either(("rsqrt", SQUARES), ("pow", SQUARES, -0.5))), ("div", "x", Either(("sqrt", SQUARES), ("pow", SQUARES, 0.5))))

LENGTH = ("linalg_vector_norm|norm", "x", 2, {"dim": -1, "keepdim": True})
AT_LEAST = ("clamp_min|clamp", LENGTH, "#least")
NORMALIZED = ("div", "x", Either(LENGTH, AT_LEAST, ("expand_as|expand", Either(LENGTH, AT_LEAST), "_")))

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


def of(other, expression):
    """The same expression of another value than x."""
    if isinstance(expression, Either):
        return Either(*(of(other, each) for each in expression.expressions))
    if isinstance(expression, (tuple, list)):
        return type(expression)(of(other, each) for each in expression)
    if isinstance(expression, Part):
        return Part(expression.index, expression.count, of(other, expression.source))
    if isinstance(expression, Every):
        return Every(expression.first, of(other, expression.source))
    if isinstance(expression, Pairs):
        return Pairs(of(other, expression.source))
    return other if expression == "x" else expression


# ---- positions ----
TURNED = ("cat", [("neg", Part(1, 2, "x")), Part(0, 2, "x")], -1)
ROTATED = ("add", ("mul", "x", "@cos"), ("mul", TURNED, "@sin"))
ROTATED_HALVES = ("cat", [("sub", ("mul", Part(0, 2, "x"), "@cos"), ("mul", Part(1, 2, "x"), "@sin")),
                          ("add", ("mul", Part(1, 2, "x"), "@cos"), ("mul", Part(0, 2, "x"), "@sin"))], -1)


def flat(pairs):
    return Either(("reshape|view|_unsafe_view|reshape_as|view_as", pairs, "_"), ("flatten", pairs, "_", "_"))


def stacked(one, other):
    return flat(("stack", [one, other], -1))


ROTATED_PAIRS = Either(
    ("add", ("mul", "x", "@cos"), ("mul", stacked(("neg", Every(1, "x")), Every(0, "x")), "@sin")),
    stacked(("sub", ("mul", Every(0, "x"), "@cos"), ("mul", Every(1, "x"), "@sin")), ("add", ("mul", Every(1, "x"), "@cos"), ("mul", Every(0, "x"), "@sin"))),
    flat(("view_as_real", ("mul", ("view_as_complex", Pairs("x")), "@turn"))),
)


def of_part(rotated):
    """Of the first elements of each head, with the others after them."""
    return ("cat", [of(Leading("x"), rotated), Trailing("x")], -1)


ROTATED_PART = Either(of_part(ROTATED), of_part(ROTATED_HALVES), ("cat", [*of(Leading("x"), ROTATED_HALVES)[1], Trailing("x")], -1))

# ---- attention, written out ----
PRODUCT = ("matmul|bmm", "q", "k")
SCALED_PRODUCT = ("bmm", ("mul", "q", "#scale"), "k")  # of nn.MultiheadAttention, as ADDED
ADDED = ("baddbmm", Either("@mask", "%mask"), Either(("mul", "q", "#scale"), "q"), "k")
PLAIN_SCORES = Either(("mul", PRODUCT, "#scale"), ("div", PRODUCT, "#divisor"), SCALED_PRODUCT, ("baddbmm", "@zeros", "q", "k", {"beta": "_", "alpha": "#scale"}), PRODUCT)
SCORES = Either(("mul", ("tanh", ("div", PLAIN_SCORES, "#cap")), "#cap"), PLAIN_SCORES)
HIDDEN = Either(("masked_fill", SCORES, Either("@hidden", "%hidden"), "#least"), ("where", Either("@shown", "%shown"), SCORES, "#least"), ("add", ("mul", SCORES, "@factor"), "@mask"))
OF_HEADS = ("add", ("reshape|view|_unsafe_view", SCORES, "_"), Either("@mask", "%mask"))  # of batch and heads as two dims, where the products have one
HIDDEN_BEFORE = ("masked_fill", PRODUCT, Either("@hidden", "%hidden"), "#least")  # before scores are scaled
SCALED_AFTERWARDS = Either(("div", HIDDEN_BEFORE, "#divisor"), ("mul", HIDDEN_BEFORE, "#scale"))
MASKED = Either(ADDED, ("add", SCORES, Either("@mask", "%mask")), OF_HEADS, ("reshape|view|_unsafe_view", OF_HEADS, "_"), ("add", HIDDEN, "@mask"), HIDDEN, SCALED_AFTERWARDS, SCORES)
ATTENTION = ("matmul|bmm", ("softmax", MASKED, -1, {"dtype": "_"}), "v")
FUSED_ATTENTION = ("scaled_dot_product_attention", "q", "k", "v",
                   {"attn_mask": Either("@mask?", "%mask"), "is_causal": "_", "scale": "#scale?", "enable_gqa": "_"})

# ---- log-probabilities ----
LOG_SOFTMAX = ("log_softmax", "logits", -1, {"dtype": "_"})
LOG_PROBABILITIES = Either(LOG_SOFTMAX, ("view|reshape|_unsafe_view", LOG_SOFTMAX, "_"), ("flatten", LOG_SOFTMAX, "_", "_"),
                           ("transpose", LOG_SOFTMAX, -1, -2), ("transpose", LOG_SOFTMAX, -2, -1), ("permute", LOG_SOFTMAX, [0, 2, 1]))
PICKED = ("gather", "logits", -1, "ids")
LOG_SUM = ("logsumexp", "logits", [-1], {"keepdim": "_"})

# ---- keys and values that several heads read ----
REPEATED = Either(("reshape|view|_unsafe_view", ("expand", ("unsqueeze", "x", "_"), "_"), "_"), ("repeat_interleave", "x", "_", "_"))

# ---- products ----

def transposed(weight):
    return Either(("t|numpy_T", weight), ("transpose", weight, "_", "_"), ("permute", weight, [1, 0]))


# ---- experts ----
# A router's scores, the choice of experts, and what weights these have. All of a block reads one topk.
ROUTED = Either(("linear", "routed", ".router"), ("matmul|mm", "routed", transposed(".router")))
ROUTER_SCORES = Either(("softmax", ROUTED, -1, {"dtype": "_"}), Named("$sigmoid", ("sigmoid", ROUTED)))
CHOICE = Either(("add", ROUTER_SCORES, "&bias"), ROUTER_SCORES)


def chosen(scores):
    return Named("$chosen", ("topk", scores, "#choices", -1, True, {"sorted": "_"}))


SUMS_OF_GROUPS = ("sum", Result(0, ("topk", Named("$groups", Either(("reshape|view|_unsafe_view", CHOICE, "_"), ("unflatten", CHOICE, -1, "_"))), 2, -1, True, {"sorted": "_"})), [-1])
FIRST_GROUPS = Result(1, ("topk", SUMS_OF_GROUPS, "#best_groups", -1, True, {"sorted": "_"}))
ONES_OF_GROUPS = Behind(("scatter", "@none", -1, FIRST_GROUPS, 1.0))
IN_GROUPS = Either(ONES_OF_GROUPS, ("to|_to_copy", ONES_OF_GROUPS, {"dtype": "_"}))
CHOICE_IN_GROUPS = Either(("masked_fill", CHOICE, ("bitwise_not|logical_not", IN_GROUPS), "#least"), ("where", IN_GROUPS, CHOICE, "#least"))
BEST = Either(chosen(CHOICE_IN_GROUPS), chosen(CHOICE))
OF_CHOSEN = Either(("gather", ROUTER_SCORES, -1, Result(1, BEST)), Result(0, chosen(ROUTER_SCORES)))
SUM = ("sum", OF_CHOSEN, [-1], {"keepdim": True})
SHARES = Either(
    Named("$normalized", ("div", OF_CHOSEN, Either(("add", SUM, "#epsilon"), ("clamp|clamp_min", SUM, "#epsilon"), SUM))),
    Named("$normalized", ("softmax", Result(0, chosen(ROUTED)), -1, {"dtype": "_"})),
    Named("$sigmoid", ("sigmoid", Result(0, chosen(ROUTED)))),
    OF_CHOSEN,
)
WEIGHTS = Either(("mul", SHARES, "#scale"), SHARES)
IDS = Result(1, Named("$chosen", "_"))

# Products with the matrices that each token has chosen.
OF_EACH = Behind(("repeat_interleave", "x", "#choices", -2))


def with_chosen(matrices, rows):
    return Behind(("bmm", ("index", matrices, [Behind(IDS)]), Behind(rows)))


def activated(gate, up):
    return ("mul", of(gate, SILU), up)


BOTH = with_chosen(".both", OF_EACH)
ACTIVATED = Either(activated(Part(0, 2, BOTH), Part(1, 2, BOTH)), activated(with_chosen(".gate", OF_EACH), with_chosen(".up", OF_EACH)))
CHOSEN_EXPERTS = ("sum", Behind(("mul", with_chosen(".down", ACTIVATED), Behind(WEIGHTS))), [-2])

# A loop over all experts, with weights that are 0 where an expert is not chosen.
HAS_CHOSEN = Behind(("eq", IDS, "#expert"))
OF_ALL = Either(
    ("scatter", "@none", -1, IDS, WEIGHTS),
    Named("$normalized", ("softmax", ("scatter", "@least", -1, IDS, Result(0, chosen(ROUTED))), -1, {"dtype": "_"})),
)
OF_EXPERT = Either(
    ("sum", Either(("mul", WEIGHTS, HAS_CHOSEN), ("where", HAS_CHOSEN, WEIGHTS, 0.0)), [-1], {"keepdim": "_"}),
    Column("#expert", OF_ALL),
)


def expert(rows):
    """Of two matrices and one, or of one that has gate and up, and one."""
    both = ("linear", rows, ".both")
    return ("linear", Either(activated(Part(0, 2, both), Part(1, 2, both)), activated(("linear", rows, ".gate"), ("linear", rows, ".up"))), ".down")


# A loop over all experts, each of the tokens that have chosen it.
ONE_HOT = ("one_hot", IDS, "_")
PLACES_FIRST, TOKENS_FIRST = (("permute", ONE_HOT, [-1, *order]) for order in ((-2, -3), (-3, -2)))


def pairs(mask):
    return Named("$pairs", ("where", Behind(mask)))


def of_number(masks):
    return Either(("index", masks, ["#expert"]), ("select", masks, -3, "#expert"))


def tokens_and_places(tokens, places):
    """The numbers of the tokens, and where among their choices the expert is."""
    rows = Behind(Either(("index", Behind("x"), [tokens]), ("index", Behind("x"), [None, tokens])))
    return [("mul", expert(rows), Behind(("index", Behind(WEIGHTS), [tokens, places]))), tokens]


BY_TOKEN = pairs(Either(("eq", IDS, "#expert"), of_number(TOKENS_FIRST)))
BY_PLACE = pairs(of_number(PLACES_FIRST))
PLACED = Either(tokens_and_places(Result(0, BY_TOKEN), Result(1, BY_TOKEN)), tokens_and_places(Result(1, BY_PLACE), Result(0, BY_PLACE)))
ALL_EXPERTS = Terms(("mul", expert("x"), Behind(OF_EXPERT)), PLACED, ".both .gate .up .down #expert $pairs")

FIRST_ROWS = ("slice", Either(".table", ("unsqueeze", ".table", -2)), {"dim": Either(-2, -3), "start": "#first?", "end": "_"})
PARTS_MOST = 16  # that are joined

PATTERNS = (
    Pattern("EMBEDDING", ("embedding", ".table", "ids", "#padding"), "ids .table", layout.embedding),
    Pattern("POSITION", ("add", "x", ("embedding", ".table", "@positions", "#padding")), "x .table", layout.position),
    Pattern("POSITION", ("add", "x", Either(FIRST_ROWS, ("unsqueeze", FIRST_ROWS, -2), ("unsqueeze", ".table", -2))), "x .table", layout.position),
    Pattern("POSITION", ("add", "x", ("select", ".table", {"dim": -2, "index": "#row"})), "x .table", layout.position),
    Pattern("POSITION", ("add", "x", "@rows"), "x .table", layout.positions, when=layout.is_table),
    Pattern("LINEAR", ("linear", "x", ".w", ".bias?"), "x .w", layout.product),
    Pattern("LINEAR", ("matmul|mm", "x", transposed(".w")), "x .w", layout.product),
    Pattern("AFFINE", ("addmm", ".bias", "x", ".w"), "x .w .bias -", layout.rows),
    Pattern("AFFINE", ("add", ("matmul|mm", "x", ".w"), ".bias"), "x .w .bias -", layout.rows),
    Pattern("RMSNORM", ("mul", NORMED, ".gain"), "x .gain", layout.norm, "epsilon"),
    Pattern("RMSNORM", ("mul", NORMED, ("add", ".gain", "#offset")), "x .gain", layout.norm, "epsilon offset"),
    Pattern("RMSNORM", NORMED, "x .gain", layout.norm, "epsilon"),
    Pattern("RMSNORM", OF_LENGTH_ONE, "x", layout.length_one),
    Pattern("RMSNORM", NORMALIZED, "x", layout.normalized, when=layout.has_heads),
    Pattern("RMSNORM", ("rms_norm", "x", "_", ".gain?", "#epsilon?"), "x .gain", layout.norm, "epsilon", {"epsilon": layout.F32_EPSILON}),
    Pattern("LAYERNORM", ("layer_norm", "x", "_", ".gain?", ".bias?", "#epsilon"), "x .gain .bias", layout.norm, "epsilon"),
    Pattern("ROPE", ROTATED, "x", attention.rotation),
    Pattern("ROPE", ROTATED_HALVES, "x", attention.rotation),
    Pattern("ROPE_PART", ROTATED_PART, "x", attention.rotation),
    Pattern("ROPE_PART", ROTATED_PAIRS, "x", attention.rotation_of_pairs),
    Pattern("ROPE_PART", of_part(ROTATED_PAIRS), "x", attention.rotation_of_pairs),
    Pattern("MOE", CHOSEN_EXPERTS, "x", experts.of_stacks),
    Pattern("MOE", ALL_EXPERTS, "x", experts.of_loop),
    Pattern("JOIN_2", ("cat", ["x", "y"], "_"), "x y", parts.join),
    Pattern("JOIN_3", ("cat", ["x", "y", "z"], "_"), "x y z", parts.join),
    *(Pattern("COPY_BLOCKS", ("cat", [f"x{part}" for part in range(count)], "_"), " ".join(f"x{part}" for part in range(count)), parts.join) for count in range(4, PARTS_MOST + 1)),
    Pattern("ATTENTION", FUSED_ATTENTION, "q k v", attention.attention),
    Pattern("ATTENTION", ATTENTION, "q k v", attention.attention),
    Pattern("SWIGLU", ("mul", of("gate", SILU), "up"), "gate up", layout.elementwise),
    Pattern("GEGLU", ("mul", of("gate", GELU_TANH), "up"), "gate up", layout.elementwise),
    Pattern("GELU_TANH", GELU_TANH, "x", layout.elementwise),
    Pattern("GELU", GELU, "x", layout.elementwise),
    Pattern("SCALE", ("mul", "x", "#factor"), "x", layout.elementwise, "factor"),
    Pattern("SCALE", ("div", "x", "#divisor"), "x", layout.division),
    Pattern("BIAS", ("add", "x", ".bias"), "x .bias", layout.bias),
    Pattern("ADD", ("add", "x", "y"), "x y", layout.elementwise, when=layout.have_one_shape),
    Pattern("ROW_MEAN", ("mean", "x", {"dim": -1, "keepdim": "_", "dtype": "_"}), "x", layout.of_row),
    Pattern("ROW_MEAN", Either(("var|std", "x", -1, {"keepdim": "_", "correction": "_"}), ("var|std", "x", -1, {"keepdim": "_", "unbiased": "_"})), "x", layout.variance),
    Pattern("ROW_SUM", ("linalg_vector_norm|norm", "x", 2, {"dim": -1, "keepdim": "_"}), "x", layout.length),
    Pattern("SUM_TOKENS", ("sum|mean", "x", {"dim": Either(-2, -3, -4), "keepdim": "_", "dtype": "_"}), "x", layout.pooled),
    Pattern("ROW_SUM", ("sum", "x", {"dim": -1, "keepdim": "_", "dtype": "_"}), "x", layout.of_row),
    Pattern("", REPEATED, "x", attention.repeated),
    Pattern("CROSS_ENTROPY", ("cross_entropy_loss", "logits", "targets", {"reduction": "#reduction", "ignore_index": "#ignored", "label_smoothing": "#smoothing"}),
            "logits targets", layout.cross_entropy),
    Pattern("CROSS_ENTROPY", ("nll_loss|nll_loss_nd", LOG_PROBABILITIES, "targets",
                              {"reduction": "#reduction", "ignore_index": "#ignored"}), "logits targets", layout.cross_entropy),
    Pattern("LOGP", ("gather", LOG_SOFTMAX, -1, "ids"), "logits ids", layout.gathered),
    Pattern("LOGP", ("sub", Either(PICKED, ("squeeze", PICKED, -1)), LOG_SUM), "logits ids", layout.gathered),
    Pattern("POINTWISE", ("ne|not_equal", "ids", float(IGNORED)), "ids", layout.counts, when=layout.are_ids),
    Pattern("LOGP", LOG_SUM, "logits", layout.log_sum),
)

# ---- what has no row: the reason, and the expression whose other nodes it stands for ----
OF_CONSTANTS = Either(("add", SCORES, "@bias"), ("baddbmm", "@bias", Either(("mul", "q", "#scale"), "q"), "k"))
BIASED = Either(("add", SCORES, "bias"), ("baddbmm", "bias", Either(("mul", "q", "#scale"), "q"), "k"))
WITH_SINKS = ("cat", [Either(SCORES, ("add", SCORES, Either("@mask", "%mask"))), "_"], -1)


def probabilities(scores):
    """Behind what users do to them before values are multiplied."""
    found = ("softmax", Either(scores, ("sub", scores, "_"), ("add", scores, Either("@mask", "%mask")), ("masked_fill", scores, "_", "_")), -1, {"dtype": "_"})
    return Either(found, ("slice", found, {"dim": -1, "start": "_", "end": "_"}))


TIMES = ("mul", PRODUCT, "factor")
WITHOUT_ROW = (
    (("matmul|mm", "x", ".w"), "a product by a matrix of (in, out) without a bias; with one, or x @ w.T of (out, in), it is taken"),
    (("matmul|bmm", probabilities(Either(TIMES, ("add", TIMES, Either("@mask", "%mask")), ("masked_fill", TIMES, "_", "_"))), "v"), "scores times a value or weights, as a temperature of each head; a number is taken"),
    (("matmul|bmm", probabilities(WITH_SINKS), "v"), "attention sinks: a score beside those of the keys; Penstock's attention has those of keys alone"),
    (("matmul|bmm", probabilities(OF_CONSTANTS), "v"), OF_OTHER_VALUES),
    (("matmul|bmm", probabilities(BIASED), "v"), "scores with a bias that depends on values or weights, as relative positions have; rotary positions, or a table that is added to the tokens, are taken"),
    (("scaled_dot_product_attention", "q", "k", "v", {"attn_mask": "bias", "dropout_p": "_", "is_causal": "_", "scale": "#scale?", "enable_gqa": "_"}),
     "scores with a bias that depends on values or weights, as relative positions have; rotary positions, or a table that is added to the tokens, are taken"),
)

POINTWISE = Pattern("POINTWISE", None, "", layout.pointwise)  # of nodes that elementwise.py reads


def kinds_of(expression):
    """The ATen ops that an expression's last node may be."""
    if isinstance(expression, Either):
        return [kind for each in expression.expressions for kind in kinds_of(each)]
    if isinstance(expression, Terms):
        return list(SUMS)
    return expression[0].split("|")


BY_KIND = {}
for each in PATTERNS:
    for kind in dict.fromkeys(kinds_of(each.expression)):
        BY_KIND.setdefault(kind, []).append(each)
