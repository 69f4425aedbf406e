# peer.py: attention by cuDNN, through PyTorch, at the shapes of bench.c, counted the same way; and a plain copy and a product.
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def seconds_of(work):
    for _ in range(3):
        work()
    times = []
    while len(times) < 5 or (sum(times) < 0.06 and len(times) < 400):
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        work()
        after.record()
        after.synchronize()
        times.append(before.elapsed_time(after) * 1e-3)
    return sorted(times)[len(times) // 2]


def show(name, shape, seconds, operations):
    print(f"{name:<22} {shape:<28} {seconds * 1e6:10.1f} us  {operations / seconds * 1e-12:7.1f} TFLOP/s", flush=True)


def attention(sequence, heads, kv_heads, head_dim):
    batch = 16384 // sequence
    shape = f"{batch}x{sequence} h{heads}/{kv_heads} d{head_dim}"
    make = lambda h: torch.randn(batch, h, sequence, head_dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    q, k, v = make(heads), make(kv_heads), make(kv_heads)
    scores = batch * heads * sequence * sequence / 2
    call = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        show("cuDNN attention", shape, seconds_of(call), 4 * scores * head_dim)
        o = call()
        slope = torch.randn_like(o)
        backward = lambda: torch.autograd.grad(o, (q, k, v), slope, retain_graph=True)
        show("cuDNN attention, back", shape, seconds_of(backward), 10 * scores * head_dim)


a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
show("torch product bf16", "8192 x 8192 x 8192", seconds_of(lambda: a @ b), 2 * 8192**3)
sequence = 2048
while sequence <= 16384:
    for heads, kv_heads, head_dim in ((12, 12, 64), (16, 4, 128)):
        try:
            attention(sequence, heads, kv_heads, head_dim)
        except RuntimeError as error:
            print(f"cuDNN attention {sequence} {heads} {head_dim}: {str(error).splitlines()[0]}")
    sequence *= 2
