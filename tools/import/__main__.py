"""penstock-import: a PyTorch module to a description that family described reads (docs/contracts.md, "Descriptions").

    command.py      the command line, its messages and statuses
    importer.py     the steps
    module.py       the user's module, and its export
    hf.py           models of transformers by their folder
    inputs.py       the inputs of a step, and their values in comparisons
    losses.py       a loss as a sum of terms, and their shares
    graph.py        the graph of an export: constants, what is seen through
    match.py        expressions of nodes
    patterns.py     which expression is which row of ops.def
    elementwise.py  element-wise ops as steps of POINTWISE
    steps.py        programs of steps while they are made
    layout.py       what the rows read of values whose axes the user has transposed
    parts.py        parts of the columns, split or joined
    views.py        transpositions and views
    constants.py    masks and tables of rotations
    scaling.py      rotary frequencies of models of transformers
    program.py      from matches to ops
    passes.py       residuals, the order of products, the comparison of sizes
    fuse.py         programs that include others
    units.py        layers, cuts, names of weights
    describe.py     the description
    formulas.py     a description run by PyTorch
    check.py        its comparison with the module
    write.py        the files
    ops.py, refusal.py, failure.py, command_line.py    what these share; the last two are penstock-report's (tools/report)

It needs torch, and for models of transformers that package. Neither is part of a deployment."""
import sys

from command import main

sys.exit(main(sys.argv[1:]))
