"""tables.py: constants of several values beside a value, which are weights that stay: a row for all tokens, or a row for each position."""
from graph import BROADCASTS, CASTS, NO_OPS, VIEWS, kind_of
from ops import Weight, matrix

ROOT = "module"  # the path of what the user's function returns
SEEN_THROUGH = (*VIEWS, *BROADCASTS, *CASTS, *NO_OPS, "slice", "select")


def has_value(whole, value):
    """Whether a buffer has these elements, in this order."""
    return whole.numel() == value.numel() and bool((whole.flatten() == value.flatten()).all())


def begins_with(whole, value):
    """Whether rows are the first ones of a buffer of two dims, extents of 1 left out."""
    shape = matrix(whole.shape)
    return shape is not None and shape[1] == value.shape[-1] and has_value(whole.flatten()[: value.numel()], value)


def table_of(graph, node, value, path, reader, fits=has_value):
    """The weight that has the value of a constant node, as another node reads it: a buffer as a whole, where its own module does, else the value by
    itself. `fits`: whether a buffer may be the weight: it has the value, or, where the first rows of a weight are read, begins with it."""
    if (node, reader) in graph.table_names:
        return Weight(graph.table_names[node, reader])
    owner = "" if path == ROOT else path
    name, whole = buffer_of(graph, node)
    is_buffer = name is not None and name.rpartition(".")[0] == owner and name not in graph.tables and fits(whole, value) and not ends_another(graph, name)
    if not is_buffer:
        name = unused(graph, ".".join(filter(None, [owner, name.rpartition(".")[2] if name else "table"])))
    graph.table_names[node, reader] = name
    graph.tables[name] = whole.float() if is_buffer else value.float().contiguous()
    return Weight(name)


def buffer_of(graph, node):
    """(name, value) of the buffer of which a node has a part; (None, None): it is made otherwise."""
    node = graph.strip(node)
    while kind_of(node) in SEEN_THROUGH:
        node = node.args[0]
    return (graph.buffer_names[node], graph.constant[node]) if node in graph.buffer_names else (None, None)


def ends_another(graph, name):
    """Whether the module's parameter has a name with that ending: model.frozen would mean it, too."""
    return any(each.endswith(name) for each in graph.parameters.values())


def unused(graph, wanted):
    taken, name, number = {*graph.tables, *graph.parameters.values(), *graph.buffer_names.values()}, wanted, 2
    while name in taken or ends_another(graph, name):
        name, number = f"{wanted}_{number}", number + 1
    return name


def without_equal(value):
    """A value whose first dims, as far as all parts along them are equal, are 1."""
    for dim in range(value.dim() - 1):
        first = value.narrow(dim, 0, 1)
        if not bool((value == first).all()):
            break
        value = first
    return value
