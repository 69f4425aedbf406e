"""module.py: the user's module: loaded, called with its inputs, and exported at one size."""
import contextlib
import importlib.util
import inspect
import io
import logging
import os
import sys
import traceback

import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.nn.modules import transformer

from failure import BAD_DATA, NO_INPUT, Failure
from graph import Graph, kind_of
from inputs import IGNORED, example, of_token_files
from refusal import Refusal, Refused, innermost, is_users
from rewrite import rewrite

PREFIX = "module."  # of the names in a graph


class UsersError(Exception):
    """An exception of the user's code, with its traceback."""


@contextlib.contextmanager
def users_code():
    """What goes wrong in it is said by the traceback."""
    try:
        yield
    except (KeyboardInterrupt, Failure, Refused):
        raise
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        first = next((index for index, frame in enumerate(frames) if is_users(frame.filename)), 0)
        lines = traceback.format_list(frames[first:]) + traceback.format_exception_only(error)
        raise UsersError("".join(lines).rstrip()) from None


def load(path):
    """The module of a file. Its imports find what lies beside it, and not this program's files."""
    if not os.path.isfile(path):
        raise Failure(NO_INPUT, f"{path}: no such file")
    own = os.path.dirname(os.path.abspath(__file__))
    for name, module in list(sys.modules.items()):
        if os.path.dirname(os.path.abspath(getattr(module, "__file__", None) or "/")) == own and name != "__main__":
            del sys.modules[name]
    sys.path = [os.path.dirname(os.path.abspath(path))] + [folder for folder in sys.path if os.path.abspath(folder) != own]
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    with users_code():
        spec.loader.exec_module(loaded)
    return loaded


def function_of(loaded, path, name):
    found = getattr(loaded, name, None)
    if not callable(found):
        raise Failure(NO_INPUT, f"{path}: {name}: no function of that name")
    return found


@contextlib.contextmanager
def parameters_on_meta():
    """Modules that are made in it have buffers, but no memory for parameters."""
    register = torch.nn.Module.register_parameter

    def register_on_meta(self, name, parameter):
        if parameter is not None and not parameter.is_meta:
            parameter = torch.nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
        register(self, name, parameter)

    torch.nn.Module.register_parameter = register_on_meta
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


def build_on_meta(make):
    """The module without memory, and the values of its buffers, by name. `make` makes the module."""
    with torch.device("meta"):
        module = make()
    with parameters_on_meta():
        buffers = dict(make().named_buffers())
    return module, buffers


def build(loaded, path, name):
    function = function_of(loaded, path, name)
    with users_code():
        module = function()
    if not isinstance(module, torch.nn.Module):
        raise Failure(BAD_DATA, f"{path}: {name}() returns {type(module).__name__}, not an nn.Module")
    return module.train()


class Step(torch.nn.Module):
    """The inputs to the loss."""

    def __init__(self, module, loss, inputs=None):
        """`inputs`: by name; None: tokens and targets of token files, the first two parameters of forward."""
        super().__init__()
        self.module, self.loss, self.group = module, loss, 1  # `group`: samples that the loss takes together
        parameters = inspect.signature(module.forward).parameters
        self.options = {"use_cache": False} if "use_cache" in parameters else {}
        names = [name for name, parameter in parameters.items() if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
                 and (inputs is not None or parameter.default in (parameter.empty, None))]  # a parameter with a value of its own is no input
        if inputs is not None:
            self.inputs, self.passed = inputs, [each.name for each in inputs if each.name in names or self.takes(each.name, parameters)]
            return
        if not names:
            raise Refused("forward has no parameter for the tokens")
        # a model of transformers has a mask where others have the targets
        takes_targets = len(names) > 1 and not hasattr(module, "main_input_name") and names[1] != "attention_mask"
        names = names[:2] if takes_targets else [names[0], "targets" if names[0] != "targets" else "labels"]
        self.inputs, self.passed = of_token_files(names), names if takes_targets else names[:1]

    def takes(self, name, parameters):
        """Whether forward gets an input that it does not name: by **, but not what the loss names, nor in a model of transformers, which documents
        its inputs by name."""
        takes_any = any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values())
        return takes_any and not hasattr(self.module, "main_input_name") and not (self.loss and name in inspect.signature(self.loss).parameters)

    def forward(self, *tensors):
        """The logits, if there are any, and the loss."""
        given = self.by_name(tensors)
        output = self.output_of(given)
        logits = self.parts_of(output)[1]
        return (*([logits] if isinstance(logits, torch.Tensor) else []), self.loss_of(output, given))

    def by_name(self, tensors):
        return {each.name: tensor for each, tensor in zip(self.inputs, tensors)}

    def output_of(self, given):
        return self.module(**{name: given[name] for name in self.passed}, **self.options)

    def loss_of(self, output, given):
        if self.loss:
            named = inspect.signature(self.loss).parameters
            return self.loss(output, **{name: value for name, value in given.items() if name in named})
        loss, logits = self.parts_of(output)
        if loss is not None:
            return loss
        targets = next((given[each.name] for each in self.inputs if each.source == "targets" or each.name in ("targets", "labels")), None)
        if targets is None or logits is None or logits.dim() not in (2, 3) or logits.numel() // logits.shape[-1] != targets.numel():
            raise Refused("forward returns neither a loss, a tensor of no dims, nor logits of (batch, sequence, vocabulary)")
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=IGNORED)

    @staticmethod
    def parts_of(output):
        """The loss, and the logits, of what forward returns."""
        if isinstance(output, torch.Tensor):
            return (output, None) if output.dim() == 0 else (None, output)
        if isinstance(output, dict):
            return output.get("loss"), output.get("logits")
        if isinstance(output, (tuple, list)):
            losses = [each for each in output if isinstance(each, torch.Tensor) and each.dim() == 0]
            logits = [each for each in output if isinstance(each, torch.Tensor) and each.dim() > 1]
            return losses[0] if losses else None, logits[0] if logits else None
        return getattr(output, "loss", None), getattr(output, "logits", None)


@contextlib.contextmanager
def without_dropout(noted):
    """Functions that drop values drop none. `noted`: a list that gets the greatest probability."""
    dropout, attention = F.dropout, F.scaled_dot_product_attention

    def note(p):
        if p > 0:
            noted.append(p)

    def drop_nothing(input, p=0.5, training=True, inplace=False):
        note(p if training else 0)
        return input

    def attend(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **others):
        note(dropout_p)
        return attention(query, key, value, attn_mask, 0.0, is_causal, **others)

    F.dropout, F.scaled_dot_product_attention = drop_nothing, attend
    detect = getattr(transformer, "_detect_is_causal_mask", None)  # looks at values to find what the mask says anyway
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    try:
        yield
    finally:
        F.dropout, F.scaled_dot_product_attention = dropout, attention
        transformer._detect_is_causal_mask = detect


@contextlib.contextmanager
def without_custom_gradients(refusals):
    """Notes the user's own autograd functions: their gradient is no part of the graph."""
    apply = torch.autograd.Function.__dict__["apply"]

    def noting(cls, *arguments, **named):
        if not cls.__module__.startswith("torch."):
            frames = [(frame.filename, frame.lineno, frame.line) for frame in traceback.extract_stack()]
            refusals.append(Refusal(innermost(frames), f"a gradient of its own, of {cls.__name__}"))
        return apply.__get__(None, cls)(*arguments, **named)

    torch.autograd.Function.apply = classmethod(noting)
    try:
        yield
    finally:
        torch.autograd.Function.apply = apply


@contextlib.contextmanager
def whole_stacks():
    """Nodes know each function that led to them, not forward alone, where PyTorch can be told so."""
    tracer = torch.fx.proxy.TracerBase
    usual = getattr(tracer, "_filter_traceback_frames", None)

    def innermost_frame(self, frames):
        first = next((index for index, frame in enumerate(frames) if frame.name == "forward"), len(frames))
        found = next((frame for frame in reversed(frames[first:]) if is_users(frame.filename)), None)
        return traceback.StackSummary.from_list([found] if found else [])

    if usual:
        tracer._filter_traceback_frames = innermost_frame
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        if usual:
            tracer._filter_traceback_frames = usual


@contextlib.contextmanager
def products_of_experts(step):
    """Modules of transformers multiply each token with copies of its experts' matrices, which depends on no count of tokens."""
    configs = {id(config): config for module in step.modules() if hasattr(config := getattr(module, "config", None), "_experts_implementation")}
    kept = {key: config._experts_implementation for key, config in configs.items()}
    for config in configs.values():
        config._experts_implementation = "batched_mm"
    try:
        yield
    finally:
        for key, config in configs.items():
            config._experts_implementation = kept[key]


class Numbers(list):
    """Of all experts, each as a tensor of one number, with what is done to them before a loop."""

    def flatten(self, *dims):
        return Numbers(each.reshape(()) for each in self)

    squeeze = view = reshape = flatten

    def tolist(self):
        return [each.tolist() for each in self]


def is_of_counts(vector):
    """Whether a vector is true where a sum, as of an expert's tokens, is not 0."""
    tracer = getattr(get_proxy_mode(), "tracer", None)
    known = tracer and get_proxy_slot(vector, tracer, None)
    node = known.proxy.node if known else None
    return kind_of(node) in ("gt", "greater", "ne", "not_equal") and node.args[1] == 0 and kind_of(node.args[0]) == "sum"


@contextlib.contextmanager
def each_expert_with_tokens():
    """Of a mask, the places that are not 0 are taken to be some, and of counts all: as a loop over experts has them, which depends on how many tokens
    each has, but computes the same with none. What does not is found by the comparison."""
    where, nonzero = torch.where, torch.Tensor.nonzero

    def places(*arguments, **named):
        found = where(*arguments, **named)
        if isinstance(found, tuple) and not isinstance(found[0].shape[0], int):
            torch._check(found[0].shape[0] > 0)
        return found

    def numbers(self, *, as_tuple=False):
        is_loop = self.dim() == 1 and not as_tuple and is_of_counts(self)
        return Numbers(torch.tensor([number]) for number in range(len(self))) if is_loop else nonzero(self, as_tuple=as_tuple)

    torch.where, torch.Tensor.nonzero = places, numbers
    try:
        yield
    finally:
        torch.where, torch.Tensor.nonzero = where, nonzero


@contextlib.contextmanager
def without_memory():
    """On the device meta torch.tensor() of a number is torch.full(), which keeps the number in the graph; and torch.autocast, which older versions
    refuse there, is that of the CPU."""
    autocast, tensor = torch.autocast.__init__, torch.tensor

    def autocast_on_cpu(self, device_type, *arguments, **named):
        autocast(self, "cpu" if device_type == "meta" else device_type, *arguments, **named)

    def number(data, *, dtype=None, device=None, **named):
        if isinstance(data, (int, float)) and device is not None and torch.device(device).type == "meta" and not named:
            return torch.full((), data, dtype=dtype, device=device)
        return tensor(data, dtype=dtype, device=device, **named)

    torch.autocast.__init__, torch.tensor = autocast_on_cpu, number
    try:
        yield
    finally:
        torch.autocast.__init__, torch.tensor = autocast, tensor


def changes_in_place(exported):
    return any(node.op == "call_function" and hasattr(node.target, "_schema") and node.target._schema.is_mutable for node in exported.graph.nodes)


def run_once(step, batch, sequence):
    """What is wrong with the user's code itself shows here."""
    with users_code(), torch.no_grad():
        step(*example(step.inputs, batch, sequence))


def export(step, batch, sequence, noted, buffers):
    """The Graph at that size. `buffers`: of a module without memory; none: it has its own."""
    custom = []
    try:
        with without_dropout(noted), without_custom_gradients(custom), whole_stacks(), without_memory(), products_of_experts(step), each_expert_with_tokens(), contextlib.redirect_stderr(io.StringIO()):
            exported = torch.export.export(step, example(step.inputs, batch, sequence, device_of(step)), strict=False)
            if changes_in_place(exported):
                exported = exported.run_decompositions({})
    except Refused:
        raise
    except Exception as error:
        raise Refused([untraceable(error)]) from None
    rewrite(exported.graph)
    graph = Graph(exported, batch, sequence, PREFIX, {PREFIX + name: value for name, value in buffers.items()}, step.inputs, step.group)
    graph.refusals += custom
    return graph


def device_of(step):
    return next((parameter.device for parameter in step.parameters()), torch.device("cpu"))


def untraceable(error):
    """A module that torch.export does not take: it does not run by the values of tensors alone."""
    frames = [(frame.filename, frame.lineno, frame.line or "") for frame in traceback.extract_tb(error.__traceback__)]
    values = "DataDependent" in type(error).__name__ or "data-dependent" in str(error) or "Could not guard" in str(error)
    message = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    reason = "a branch, or a number, that depends on values" if values else f"torch.export refuses it: {message[:300]}"
    return Refusal(innermost(frames), reason)
