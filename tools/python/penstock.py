"""Trains with a deployment of Penstock in a loop of one's own: `make lib TOPOLOGY=NAME` builds libpenstock-NAME.so.

    run = penstock.open("./libpenstock-NAME.so", seed=7)
    for tokens, targets in loader:                      # int32 or int64, (samples, sequence)
        step = run.step({"tokens": tokens, "targets": targets})
        print(step["loss"], step["grad_norm"])
    run.save("checkpoints")
    run.close()

penstock.h says what each call does. An error is a penstock.Error with the status and the message that train would end with.
"""
import ctypes
import math
import os
import re
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import numpy

Path = Union[str, "os.PathLike[str]"]
Samples = Mapping[str, Any]  # what numpy.asarray takes, and tensors of PyTorch in host memory
MESSAGE_BYTES = 1501
USES = {"step": 0, "evaluate": 1, "score": 2}
DTYPES = {"int32": b"I32", "int64": b"I64", "float32": b"F32", "uint8": b"U8", "bool": b"U8", "bfloat16": b"BF16"}


class Error(Exception):
    """Has `status`, what train would exit with (docs/contracts.md, section 10), and `message`."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status, self.message = status, message


class _Samples(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("dim_count", ctypes.c_uint32),
        ("dim", ctypes.POINTER(ctypes.c_uint64)),
        ("data", ctypes.c_void_p),
    ]


class _Step(ctypes.Structure):
    _fields_ = [
        ("loss", ctypes.c_double),
        ("grad_norm", ctypes.c_double),
        ("learning_rate", ctypes.c_double),
        ("step", ctypes.c_uint64),
        ("targets", ctypes.c_uint64),
    ]


class _Generation(ctypes.Structure):
    _fields_ = [
        ("tokens", ctypes.c_uint64),
        ("temperature", ctypes.c_double),
        ("top_k", ctypes.c_uint64),
        ("top_p", ctypes.c_double),
        ("min_p", ctypes.c_double),
        ("repetition_penalty", ctypes.c_double),
        ("seed", ctypes.c_uint64),
        ("end_of_text", ctypes.c_int64),
    ]


class _Text(ctypes.Structure):
    _fields_ = [("token", ctypes.c_void_p), ("count", ctypes.c_uint64)]


_SESSION = ctypes.c_void_p
_FLOATS, _DOUBLES = ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_double)
_WORDS = ctypes.POINTER(ctypes.c_char_p)
_FUNCTIONS = {  # of penstock.h: the result, then the parameters
    "open": [ctypes.c_int, ctypes.c_void_p, _WORDS, ctypes.POINTER(_SESSION), ctypes.c_char_p],
    "close": [None, _SESSION],
    "message": [ctypes.c_char_p, _SESSION],
    "samples": [ctypes.c_uint64, _SESSION, ctypes.c_int],
    "input": [ctypes.c_char_p, _SESSION, ctypes.c_uint32, _WORDS],
    "step": [ctypes.c_int, _SESSION, ctypes.POINTER(_Samples), ctypes.c_uint32, ctypes.POINTER(_Step)],
    "evaluate": [ctypes.c_int, _SESSION, ctypes.POINTER(_Samples), ctypes.c_uint32, ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_uint64)],
    "score": [ctypes.c_int, _SESSION, ctypes.POINTER(_Samples), ctypes.c_uint32, _DOUBLES, ctypes.c_uint64],
    "output": [ctypes.c_char_p, _SESSION, ctypes.c_uint32, ctypes.POINTER(_Samples)],
    "generate": [ctypes.c_int, _SESSION, ctypes.POINTER(_Generation), ctypes.POINTER(_Text), ctypes.c_uint32],
    "set_learning_rate": [ctypes.c_int, _SESSION, ctypes.c_double],
    "weight": [ctypes.c_char_p, _SESSION, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.POINTER(ctypes.c_uint64))],
    "read_weight": [ctypes.c_int, _SESSION, ctypes.c_char_p, _FLOATS, ctypes.c_uint64],
    "write_weight": [ctypes.c_int, _SESSION, ctypes.c_char_p, _FLOATS, ctypes.c_uint64],
    "save": [ctypes.c_int, _SESSION, ctypes.c_char_p],
    "load": [ctypes.c_int, _SESSION, ctypes.c_char_p],
}


def _load(path):
    try:
        library = ctypes.CDLL(os.path.abspath(path))
    except OSError as error:
        raise Error(66, "penstock: %s: %s" % (path, error)) from None
    for name, (result, *parameters) in _FUNCTIONS.items():
        function = getattr(library, "pen_session_" + name)
        function.restype, function.argtypes = result, parameters
    return library


def _widened(bits):
    """bf16 as float32."""
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def _array(name, given):
    """What is given as a contiguous array in the host's byte order, and its dtype in the words of safetensors. A tensor of PyTorch shares its memory, if it
    can; NumPy has no bfloat16: its elements are uint16 then."""
    try:
        if hasattr(given, "detach"):
            given = given.detach()
        if str(getattr(given, "dtype", None)) == "torch.bfloat16":
            given, dtype = numpy.ascontiguousarray(given.view(sys.modules["torch"].int16)), "bfloat16"
            return given.view(numpy.uint16), DTYPES[dtype]
        array = numpy.ascontiguousarray(given)
    except (RuntimeError, TypeError, ValueError) as error:
        raise Error(65, "penstock: %s: no array of numbers in this process's memory: %s" % (name, error)) from None
    dtype = array.dtype.name
    return array.astype(array.dtype.newbyteorder("="), copy=False), DTYPES.get(dtype, dtype.encode())


def _whole(call, **numbers):
    for name, number in numbers.items():
        if number < 0:
            raise Error(64, "penstock: %s: %s %d: a number from 0 on" % (call, name, number))


def _word(call: str, text: Path) -> bytes:
    """As C has it, which ends at a byte of 0."""
    word = os.fsencode(text)
    if b"\0" in word:
        raise Error(64, "penstock: %s: %r: a text without a byte of 0" % (call, text))
    return word


class Run:
    """What open() returns. `shapes`: the extents of each parameter, by its name in files."""

    def __init__(self, path: Path, options: Sequence[Path]):
        path = os.fspath(path)
        name = re.fullmatch(r"libpenstock-(.*)\.so", os.path.basename(path))
        if name is None:
            raise Error(64, "penstock: %s: not the name of a library, libpenstock-NAME.so" % path)
        self._library, self._session = _load(path), _SESSION()
        try:
            place = ctypes.addressof(ctypes.c_char.in_dll(self._library, "pen_library_" + re.sub("[^A-Za-z0-9]", "_", name[1])))
        except ValueError:
            raise Error(64, "penstock: %s: has another name than `make lib` gave it" % path) from None
        words = (ctypes.c_char_p * (len(options) + 1))(*[_word("open", option) for option in options], None)
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        status = self._library.pen_session_open(place, words, ctypes.byref(self._session), message)
        if status != 0:
            raise Error(status, message.value.decode(errors="replace"))
        self._rate = math.nan
        self.shapes = self._shapes()

    def _call(self, name, *arguments):
        if self._session.value is None:
            raise Error(64, "penstock: %s: the run is closed" % name)
        status = getattr(self._library, "pen_session_" + name)(self._session, *arguments)
        if status != 0:
            raise Error(status, self._library.pen_session_message(self._session).decode(errors="replace"))

    def _shapes(self):
        shapes, count, dim = {}, ctypes.c_uint32(), ctypes.POINTER(ctypes.c_uint64)()
        while name := self._library.pen_session_weight(self._session, len(shapes), ctypes.byref(count), ctypes.byref(dim)):
            shapes[name.decode()] = tuple(dim[i] for i in range(count.value))
        return shapes

    def samples(self, use: str = "step") -> int:
        """How many samples a step, or with "evaluate" an evaluation, reads, over all microbatches and replicas; with "score", how many log-probabilities
        score() returns."""
        if use not in USES:
            raise Error(64, "penstock: samples: %r: one of %s" % (use, ", ".join(USES)))
        return self._library.pen_session_samples(self._session, USES[use])

    def _with_samples(self, name, arrays, *results):
        kept = {key: _array("samples: input %s" % key, array) for key, array in arrays.items()}
        given = (_Samples * len(kept))()
        for to, (key, (array, dtype)) in zip(given, kept.items()):
            dims = (ctypes.c_uint64 * array.ndim)(*array.shape)
            to.name, to.dtype, to.dim_count, to.dim, to.data = key.encode(), dtype, array.ndim, dims, array.ctypes.data
        self._call(name, given, len(kept), *results)

    def _outputs(self):
        """Of the last step or evaluation, by name: (samples, tokens, width), those of bf16 as float32."""
        outputs, found = {}, _Samples()
        while name := self._library.pen_session_output(self._session, len(outputs), ctypes.byref(found)):
            is_bf16 = found.dtype == b"BF16"
            array = numpy.empty([found.dim[i] for i in range(found.dim_count)], numpy.uint16 if is_bf16 else numpy.float32)
            ctypes.memmove(array.ctypes.data, found.data, array.nbytes)
            outputs[name.decode()] = _widened(array) if is_bf16 else array
        return outputs

    def step(self, samples: Samples) -> Dict[str, Any]:
        """Forward, backward and optimizer step. `samples`: an array of each input, (samples, ...). Returns "loss", "grad_norm" and, by their names, what
        model.outputs lists, (samples, sequence, width)."""
        step = _Step()
        self._with_samples("step", samples, ctypes.byref(step))
        self._rate = step.learning_rate
        return {"loss": step.loss, "grad_norm": step.grad_norm, **self._outputs()}

    def evaluate(self, samples: Samples) -> Dict[str, Any]:
        """Forward alone; no weight changes. Returns "loss", "tokens" (targets that count) and the outputs."""
        loss, targets = ctypes.c_double(), ctypes.c_uint64()
        self._with_samples("evaluate", samples, ctypes.byref(loss), ctypes.byref(targets))
        return {"loss": loss.value, "tokens": targets.value, **self._outputs()}

    def score(self, samples: Samples) -> numpy.ndarray:
        """log-softmax of the logits at the targets, float64 (samples, sequence), whatever the loss; nan where a target is -100. Inputs that only the loss
        reads may be left out."""
        count = self.samples("evaluate")
        found = numpy.empty((count, self.samples("score") // max(count, 1)), numpy.float64)
        self._with_samples("score", samples, found.ctypes.data_as(_DOUBLES), found.size)
        return found

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        tokens: int,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1,
        min_p: float = 0,
        repetition_penalty: float = 1,
        seed: int = 0,
        end_of_text: Optional[int] = None,
    ) -> List[numpy.ndarray]:
        """Continues each prompt, a list of token ids, by at most `tokens` new ones, which are returned, uint32. Temperature 0: the most likely one."""
        _whole("generate", tokens=tokens, top_k=top_k, seed=seed, end_of_text=end_of_text or 0)
        by = _Generation(tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed, -1 if end_of_text is None else end_of_text)
        room = numpy.zeros(tokens, numpy.uint32)
        ids = [numpy.clip(numpy.asarray(prompt, numpy.int64), -1, 2**32 - 1).astype(numpy.uint32) for prompt in prompts]
        arrays = [numpy.concatenate([prompt, room]) for prompt in ids]
        texts = (_Text * len(arrays))(*[(array.ctypes.data, len(array) - tokens) for array in arrays])
        self._call("generate", ctypes.byref(by), texts, len(arrays))
        return [array[len(array) - tokens : text.count] for array, text in zip(arrays, texts)]

    @property
    def learning_rate(self) -> float:
        """That of the last step; assign the one of the next steps, or None for that of the topology."""
        return self._rate

    @learning_rate.setter
    def learning_rate(self, rate: Optional[float]):
        self._call("set_learning_rate", math.nan if rate is None else rate)
        self._rate = math.nan if rate is None else rate

    def weights(self, name: str) -> numpy.ndarray:
        """A copy of the parameter of that name (one of `shapes`), float32."""
        values = numpy.empty(self.shapes.get(name, (0,)), numpy.float32)
        self._call("read_weight", _word("weights", name), values.ctypes.data_as(_FLOATS), values.size)
        return values

    def set_weights(self, name: str, array: Any) -> None:
        """Copies the array into the parameter of that name; the state of the optimizer stays."""
        values, dtype = _array("weights: tensor %s" % name, array)
        values = _widened(values) if dtype == b"BF16" and values.dtype == numpy.uint16 else numpy.ascontiguousarray(values, numpy.float32)
        if name in self.shapes and values.shape != self.shapes[name]:
            raise Error(65, "penstock: weights: tensor %s: it is %s, and %s is wanted" % (name, list(values.shape), list(self.shapes[name])))
        self._call("write_weight", _word("weights", name), values.ctypes.data_as(_FLOATS), values.size)

    def save(self, folder: Path) -> None:
        """Saves weights and optimizer as FOLDER/step-NNNNNNNN, as train does."""
        self._call("save", _word("save", folder))

    def load(self, folder: Path) -> None:
        """Continues from the latest checkpoint there; also after a rank was lost."""
        self._call("load", _word("load", folder))

    def close(self) -> None:
        """Ends the ranks; a second call does nothing. Saves nothing."""
        session, self._session = self._session, _SESSION()
        if session.value is not None:
            self._library.pen_session_close(session)

    def __del__(self):
        if getattr(self, "_session", None):
            self.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


def open(library: Path, init: Optional[Path] = None, checkpoint: Optional[Path] = None, seed: int = 0, options: Sequence[str] = ()) -> Run:
    """Starts the ranks of libpenstock-NAME.so, with the weights of a file or folder `init`, the state of the latest checkpoint in the folder
    `checkpoint`, or weights by the seed. `options`: further words of train's command line. With ranks on several hosts a program on each of them opens
    its own, and all make the same calls with the same arrays."""
    words = ["--seed", str(seed)]
    words += ["--init", init] if init is not None else []
    words += ["--checkpoint", checkpoint, "--resume"] if checkpoint is not None else []
    return Run(library, words + list(options))
