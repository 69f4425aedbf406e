# peer.py [WORD]...: attention and products at the shapes of bench.c by PyTorch, counted the same way: scaled_dot_product_attention by cuDNN
# and by flash-attention, torch.matmul by cuBLAS. Rows whose "name shape" contains a WORD, whatever the case; all without one. Like there,
# operands alternate among sets that exceed the second-level cache.
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

CACHE_BYTES, SETS_MAX, WINDOW_S = 256 << 20, 16, 0.06
BACKENDS = (("cuDNN attention", SDPBackend.CUDNN_ATTENTION), ("flash attention", SDPBackend.FLASH_ATTENTION))
# model; batch, sequence, heads, kv_heads, head_dim
ATTENTIONS = [("llama_1b", 4, 2048, 32, 8, 64), ("gpt2_124m", 16, 1024, 12, 12, 64)]
ATTENTIONS += [("", 16384 // s, s, *heads) for s in (2048, 4096, 8192, 16384) for heads in ((12, 12, 64), (16, 4, 128))]
# model, with a bias; rows, in, out
PRODUCTS = [("llama_1b", False, 8192, i, o) for i, o in ((2048, 2048), (2048, 512), (2048, 3072), (2048, 8192), (2048, 16384), (8192, 2048))]
PRODUCTS += [("llama_1b", False, 2048, 2048, 128256)]
PRODUCTS += [("gpt2_124m", True, 16384, i, o) for i, o in ((768, 2304), (768, 768), (768, 3072), (3072, 768))]
PRODUCTS += [("gpt2_124m", False, 2048, 768, 50304), ("", False, 8192, 768, 3072), ("", False, 8192, 8192, 8192)]


def chosen(name, shape):
    return len(sys.argv) == 1 or any(word.lower() in f"{name} {shape}".lower() for word in sys.argv[1:])


# Seconds of each of `count` calls, one after the other; `work` gets the number of the call.
def call_seconds(work, count):
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for turn in range(count):
        work(turn)
        events[turn + 1].record()
    events[count].synchronize()
    return [before.elapsed_time(after) * 1e-3 for before, after in zip(events, events[1:])]


# The median of the calls in 60 ms, at least five, after two others.
def seconds_of(work):
    count = min(400, max(5, int(WINDOW_S / call_seconds(work, 2)[1])))
    return sorted(call_seconds(work, count))[count // 2]


# Measures, if the row is chosen; what PyTorch refuses is said in the row.
def show(name, shape, operations, work):
    if not chosen(name, shape):
        return
    try:
        seconds = seconds_of(work)
    except RuntimeError as error:
        print(f"{name:<22} {shape:<32} {str(error).splitlines()[0]}", flush=True)
        return
    print(f"{name:<22} {shape:<32} {seconds * 1e6:10.1f} us  {operations / seconds * 1e-12:7.1f} TFLOP/s", flush=True)


def numbers(*size, gradient=False):
    return torch.randn(*size, device="cuda", dtype=torch.bfloat16, requires_grad=gradient)


# Causal: half of the scores are counted, 2 products forward, 5 backward.
def attention(name, backend, model, batch, sequence, heads, kv_heads, head_dim):
    shape = f"{batch}x{sequence} h{heads}/{kv_heads} d{head_dim} {model}".strip()
    if not (chosen(name, shape) or chosen(name + ", back", shape)):
        return
    q, k, v = (numbers(batch, h, sequence, head_dim, gradient=True) for h in (heads, kv_heads, kv_heads))
    products = batch * heads * sequence * sequence * head_dim
    call = lambda turn: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
    with sdpa_kernel(backend):
        show(name, shape, 2 * products, call)
        try:
            o = call(0)
        except RuntimeError:
            return
        slope = torch.randn_like(o)
        show(name + ", back", shape, 5 * products, lambda turn: torch.autograd.grad(o, (q, k, v), slope, retain_graph=True))


# The weight gradient is in bf16 and alone: PyTorch adds it to the others afterwards.
def product(model, affine, rows, into, out):
    shape = f"{rows} x {into} x {out} {model}".strip()
    names = [f"torch {'AFFINE' if affine else 'LINEAR'}{part} bf16" for part in ("", "_DX", "_DW")]
    if not any(chosen(name, shape) for name in names):
        return
    bytes_of_set = 2 * (rows * into + into * out + 2 * rows * out)
    count = min(SETS_MAX, 1 + CACHE_BYTES // bytes_of_set)
    x, dy = ([numbers(rows, width) for _ in range(count)] for width in (into, out))
    w = [numbers(into, out) if affine else numbers(out, into) for _ in range(count)]
    bias = numbers(out)
    if affine:
        calls = (lambda s: torch.addmm(bias, x[s], w[s]), lambda s: dy[s] @ w[s].T, lambda s: x[s].T @ dy[s])
    else:
        calls = (lambda s: x[s] @ w[s].T, lambda s: dy[s] @ w[s], lambda s: dy[s].T @ x[s])
    for name, call in zip(names, calls):
        show(name, shape, 2 * rows * into * out, lambda turn: call(turn % count))


print(f"# PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}", flush=True)
for case in ATTENTIONS[:2]:
    for name, backend in BACKENDS:
        attention(name, backend, *case)
for case in PRODUCTS:
    product(*case)
for case in ATTENTIONS[2:]:
    for name, backend in BACKENDS:
        attention(name, backend, *case)
