"""rounded.py F32 BF16: whether each value of the second safetensors file is the first one's, rounded to the nearest bf16, ties to even."""
import json
import struct
import sys


def load(path):
    raw = open(path, "rb").read()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (entry, raw[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]]) for name, entry in header.items()}


def value(upper):
    return struct.unpack("<f", struct.pack("<I", upper << 16))[0]


wide, narrow = load(sys.argv[1]), load(sys.argv[2])
assert wide.keys() == narrow.keys(), "other tensors"
count = 0
for name, (entry, data) in narrow.items():
    assert entry["dtype"] == "BF16" and entry["shape"] == wide[name][0]["shape"], name
    for x, y in zip(struct.unpack("<%df" % (len(data) // 2), wide[name][1]), struct.unpack("<%dH" % (len(data) // 2), data)):
        best = min((y - 1, y, y + 1) if y & 0x7fff else (y, y + 1), key=lambda other: (abs(value(other) - x), other & 1))
        assert best == y, (name, x, y)
        count += best & 1
assert count > 100, "values that are all even"
