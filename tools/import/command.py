"""command.py: the command line of penstock-import."""
import argparse
import json
import os
import re
import sys
import traceback
import warnings

from command_line import Once, Parser, say_as
from failure import BAD_DATA, INTERRUPTED, NO_LIBRARY, Failure
from version import VERSION

NAME = "penstock-import"
DESCRIPTION = "Describe a PyTorch module, so that penstock-gen makes a deployment of it."
TORCH = (2, 9)
SMALL_SEQUENCE = 16  # of the small copy of a model without memory
SEQUENCE_LEAST, SEQUENCE_MOST = 4, 1 << 20
GROUP_MOST = 64
INTERNAL = 70
PRINTS = ("ops", "units", "refused")

say = say_as(NAME)


def sequence(text):
    value = int(text) if re.fullmatch(r"\d{1,9}", text) else 0
    if not SEQUENCE_LEAST <= value <= SEQUENCE_MOST:
        raise argparse.ArgumentTypeError(f"{text}: a number of tokens from {SEQUENCE_LEAST} to {SEQUENCE_MOST}")
    return value


def group(text):
    value = int(text) if re.fullmatch(r"\d{1,5}", text) else 0
    if not 1 <= value <= GROUP_MOST:
        raise argparse.ArgumentTypeError(f"{text}: a number of samples from 1 to {GROUP_MOST}")
    return value


def parse(arguments):
    parser = Parser(prog=NAME, description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("module", metavar="FILE.py:BUILD", nargs="?", help="the function of a file that returns the module")
    parser.add_argument("--hf", metavar="FOLDER", action=Once, help="in its place the folder of a model, as transformers stores it, whose weights train --init reads")
    parser.add_argument("-o", "--output", metavar="FILE.cfg", action=Once, help="write the topology, and the description FILE.json beside it")
    parser.add_argument("--sequence", metavar="N", type=sequence, action=Once, help="the tokens of a sequence; model.sequence is at most this")
    parser.add_argument("--inputs", metavar="FUNCTION", action=Once, help="a function of the file, of batch and sequence, that returns a dict of tensors: data have these inputs by name [tokens and targets of token files]")
    parser.add_argument("--loss", metavar="FUNCTION", action=Once, help="a function of the file, of the output and of inputs by name [what forward returns, or the cross entropy of its logits]")
    parser.add_argument("--loss-group", metavar="G", type=group, action=Once, help="consecutive samples that the loss takes together [the fewest with which it runs]")
    parser.add_argument("--loss-of", choices=("step", "microbatch"), action=Once, default="step", help="denominators of the loss are of a whole step, or of each microbatch, of whose losses a step has the mean [step]")
    parser.add_argument("--cut", metavar="NAME,...", action=Once, help="units begin at these modules [those with a number in their path]")
    parser.add_argument("--weights", metavar="FILE", action=Once, help="write the module's weights, for train --init")
    parser.add_argument("--meta", action=Once, nargs=0, default=False, help="parameters have no memory: for a model larger than this machine, which is not compared")
    parser.add_argument("--print", metavar="|".join(PRINTS), choices=PRINTS, action=Once, help="print what is found, and write nothing")
    parser.add_argument("-V", "--version", action="version", version=f"{NAME} {VERSION}")
    options = parser.parse_args(arguments)
    check_options(parser, options)
    return options


def check_options(parser, options):
    if (options.module is None) == (options.hf is None):
        parser.error("choose one of FILE.py:BUILD and --hf FOLDER")
    path, _, build = (options.module or "x:x").rpartition(":")
    if not path or not build:
        parser.error(f"{options.module}: FILE.py:BUILD, a file and a function of it")
    for name in ("inputs", "loss", "weights"):
        if options.hf and getattr(options, name):
            parser.error(f"--{name}: not with --hf")
    if options.sequence is None and not options.inputs:
        parser.error("--sequence N is missing")
    if options.inputs and options.meta:
        parser.error("--meta: not with --inputs")
    if (options.output is None) == (options.print is None):
        parser.error("choose one of -o FILE.cfg and --print")
    if options.output is not None and not options.output.endswith(".cfg"):
        parser.error(f"-o {options.output}: a name that ends in .cfg")
    if options.weights and (options.print or options.meta):
        parser.error(f"--weights: {'--print writes nothing' if options.print else 'with --meta there are none'}")
    options.cuts = options.cut.split(",") if options.cut else []


def need_torch():
    try:
        import torch
    except ImportError as error:
        raise Failure(NO_LIBRARY, f"Python's package torch is needed: {error}") from None
    found = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if found < TORCH:
        raise Failure(NO_LIBRARY, f"torch {torch.__version__}: at least {'.'.join(map(str, TORCH))} is needed")
    return torch.__version__


def import_module(options, torch_version):
    """The Import, complete."""
    import hf  # these need torch, and are there before the user's code is
    from importer import Import
    from inputs import Inputs, need_sequence
    from module import build, build_on_meta, function_of, load, users_code

    users = None
    if options.hf:
        source = os.path.basename(os.path.abspath(options.hf))
        make, loss, config = (lambda: hf.build_model(options.hf)), None, hf.read_config(options.hf)
    else:
        path, _, name = options.module.rpartition(":")
        loaded = load(path)
        make, config = (lambda: build(loaded, path, name)), None
        loss = function_of(loaded, path, options.loss) if options.loss else None
        users = Inputs(function_of(loaded, path, options.inputs), users_code) if options.inputs else None
        source = f"{os.path.basename(path)}:{name}"
    module, buffers = build_on_meta(make) if options.meta else (make(), None)
    names = hf.StoredNames(options.hf, module)
    sequence = need_sequence(options.sequence, users)
    imported = Import(module, loss, sequence, options.cuts, f"{source}, torch {torch_version}", config, names.stored, buffers, users, options.loss_group, options.loss_of)
    imported.balance = (config or {}).get("output_router_logits") and config.get("router_aux_loss_coef") or 0
    imported.stored_names, imported.counts_padding = names.names, bool(options.hf and hf.placed_modules(module))
    imported.small_copy = (lambda layers: Import(hf.build_model(options.hf, layers), None, SMALL_SEQUENCE, [], source)) if options.hf and options.meta else None
    return imported


def run(options):
    version = need_torch()
    warnings.filterwarnings("ignore")
    from module import UsersError
    from refusal import Refused
    import write

    try:
        imported = import_module(options, version)
        imported.trace()
        if options.print == "ops":
            return print_ops(imported)
        imported.divide()
        if options.print == "units":
            return print_units(imported)
        imported.describe()
        imported.check()
        check_small_copy(imported)
    except Refused as refused:
        return refuse(options, refused.reasons)
    except UsersError as error:
        print(error, file=sys.stderr)
        return BAD_DATA
    note(imported)
    if options.output:
        write_all(options, imported, write)
    return 0


def refuse(options, reasons):
    """All of them, with the user's lines."""
    for reason in reasons if isinstance(reasons, list) else [reasons]:
        if options.print == "refused":
            print(reason)
        else:
            say(reason)
    return BAD_DATA


def check_small_copy(imported):
    """Of a model of transformers without memory a small one of its class is compared, with one layer of each kind, if its kinds are the same."""
    if imported.small_copy is None:
        return
    from importer import have_same_kinds, layers_of_each_kind

    description = json.loads(imported.text)
    small = imported.small_copy(layers_of_each_kind(description))
    small.trace()
    small.divide()
    small.describe()
    if have_same_kinds(description, json.loads(small.text)):
        small.check()
        imported.is_compared = True
        say("compared with a small model of the class, with a layer of each kind")


def note(imported):
    if not imported.is_compared:
        say("not compared with the module")
    if imported.dropouts:
        say(f"dropout of {max(imported.dropouts):g} is left out: Penstock has none")
    if imported.step.group > 1:
        say(f"the loss takes {imported.step.group} samples together: batch.loss_group")
    if imported.fixed_sequence:
        say(f"the loss is over {imported.fixed_sequence} tokens of a sample: model.sequence stays {imported.fixed_sequence}")
    if imported.counts_padding:
        say("positions count padding tokens, too")
    for name in imported.tables_read():
        say(f"{name} is a constant of the module: a weight that stays, which --weights writes and train --init reads")
    if imported.balance:
        say(f"router_aux_loss_coef of {imported.balance:g} is left out: model.aux_loss of the topology is of each layer")
    for name in imported.unused_inputs():
        say(f"the input {name} is left out: nothing reads it")
    for name in imported.unused():
        say(f"{name} is left out: nothing reads it")
    described = [name for name, _ in imported.weights()]
    absent = [name for name in described if imported.stored_names and name not in imported.stored_names]
    whole = [name for stack in imported.program.stacks.values() for name in map(imported.stored, stack.sources) if name in imported.stored_names and len(stack.sources) == 1]
    if absent and whole:
        raise Failure(BAD_DATA, f"{whole[0]} of the folder has the matrices of all experts: Penstock's files have a tensor of each")
    if absent:
        raise Failure(BAD_DATA, f"the folder has no {absent[0]}{f', and {len(absent) - 1} others that the model has' if absent[1:] else ''}")
    for name in sorted(imported.stored_names - set(described)):
        say(f"{name} of the folder is left out: nothing reads it")


def write_all(options, imported, write):
    frozen = imported.frozen()
    text = write.topology_text(options.output, imported.source, imported.sequence, frozen, imported.program.loss_is_sum, imported.step.group)
    if options.weights:
        write.write_weights(options.weights, imported.weights())
    write.replace(write.description_path(options.output), lambda file: file.write(imported.text.encode()))
    write.replace(options.output, lambda file: file.write(text.encode()))


def print_ops(imported):
    number = {op: index for index, op in enumerate(imported.program.ops)}
    for op in imported.program.ops:
        operands = " ".join(operand_text(operand, number) for operand in op.operands)
        attributes = "".join(f" {name}={value}" for name, value in op.attributes.items())
        print(f"v{number[op]} = {op.row} {operands}{attributes}{f'  # {op.place}' if op.place else ''}")
    return 0


def operand_text(operand, number):
    if operand is None:
        return "-"
    if hasattr(operand, "op"):
        return f"v{number[operand.op]}" + (f"[{operand.index}]" if len(operand.op.widths) > 1 else "")
    return operand.name if hasattr(operand, "name") else f"table({', '.join(f'{name}={value}' for name, value in operand.attributes)})"


def print_units(imported):
    for unit in imported.units:
        weights = sum(hasattr(operand, "name") and operand.name in {**imported.tensors, **imported.tables} for op in unit.ops for operand in op.operands)
        print(f"{unit.label or '-'}: {len(unit.ops)} ops, {weights} weights")
    return 0


def main(arguments):
    try:
        return run(parse(arguments))
    except Failure as failure:
        say(failure)
        return failure.status
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        traceback.print_exc()
        say(f"internal error: {error}")
        return INTERNAL
