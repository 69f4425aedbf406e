"""spoil_weights.py FROM TO: of a llama in f32, such that the logits after a token depend on that token alone:
after Q that of A is minus infinity, after R that of B is infinite, after S all are no numbers, and after any other all are finite."""
import json
import struct
import sys

MOST = 3e38


def main(source, target):
    data = bytearray(open(source, "rb").read())
    start = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = json.loads(data[8:start])
    tensors.pop("__metadata__", None)

    def put(name, row, column, value):
        struct.pack_into("<f", data, start + tensors[name]["data_offsets"][0] + 4 * (row * tensors[name]["shape"][1] + column), value)

    vocab, hidden = tensors["model.embed_tokens.weight"]["shape"]
    last = max(int(name.split(".")[2]) for name in tensors if name.startswith("model.layers."))
    for column, token in enumerate(b"QRS"):  # a column of the residual stream that this token alone has, and it has no other
        for row in range(vocab):
            put("model.embed_tokens.weight", row, column, 0)
            put("lm_head.weight", row, column, 0)
        for layer in range(last + 1):
            for name in ("self_attn.o_proj", "mlp.down_proj"):
                for k in range(tensors[f"model.layers.{layer}.{name}.weight"]["shape"][1]):
                    put(f"model.layers.{layer}.{name}.weight", column, k, 0)
        for k in range(hidden):
            put("model.embed_tokens.weight", token, k, k == column)
    put("lm_head.weight", ord("A"), 0, -MOST)
    put("lm_head.weight", ord("B"), 1, MOST)
    for name in ("gate_proj", "up_proj"):  # in the last layer: no attention after it carries this to other tokens
        for k in range(hidden):
            put(f"model.layers.{last}.mlp.{name}.weight", 0, k, MOST if k == 2 else 0)
    open(target, "wb").write(data)


main(*sys.argv[1:])
