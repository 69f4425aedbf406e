"""samples.py OUT FIRST COUNT TOKENS SEQUENCE NAME:DTYPE:WHAT...: a safetensors file of COUNT samples, which are the windows of a token file of
llm.c's format from FIRST on: of each input a tensor. WHAT: `tokens`, `targets`, or extents of numbers from 0 to 3, "16x48", or none.
"nan:16x48", "97:tokens": the last number is that; "zeros:16x48": all are 0. Numbers that differ from name to name: "bits:16" are 0 or 1, "parts:16" from
0 to 1, "reals:16" from -2 to 2, "logs:16" from -5 to -1, "ids:16" from 0 to 10, or -100. "valid:16": 1 where the ids before are not -100, else 0; "signs:16": 1, of every other sample -1;
"last:16": 1 at the end of a sample, else 0."""
import struct
import sys

# From a number below 4096.
DRAWN = {"bits": lambda n: n >> 5 & 1, "parts": lambda n: n / 4096, "reals": lambda n: n / 1024 - 2, "logs": lambda n: -1 - n / 1024,
         "ids": lambda n: -100 if n % 5 == 0 else n % 11}
FORMATS = {"I32": "i", "I64": "q", "U8": "B", "F32": "f", "BF16": "H", "F64": "d"}


def encode(dtype, values):
    if dtype == "BF16":
        values = [struct.unpack("<I", struct.pack("<f", v))[0] >> 16 for v in values]
    elif dtype in ("I32", "I64", "U8"):
        values = [int(v) for v in values]
    return struct.pack("<%d%s" % (len(values), FORMATS[dtype]), *values)


def main(out, first, count, path, sequence, *inputs):
    first, count, sequence = int(first), int(count), int(sequence)
    with open(path, "rb") as file:
        data = file.read()
    tokens = struct.unpack("<%dH" % ((len(data) - 1024) // 2), data[1024:])
    header, parts, at, ids = [], [], 0, []
    for spec in inputs:
        name, dtype, what = spec.split(":", 2)
        spoil, _, extents = what.rpartition(":")
        shape = [count] + ([sequence] if extents in ("tokens", "targets") else [int(e) for e in extents.split("x") if e])
        if extents in ("tokens", "targets"):
            shift = extents == "targets"
            values = [tokens[w * sequence + t + shift] for w in range(first, first + count) for t in range(sequence)]
        else:
            elements = 1
            for extent in shape[1:]:
                elements *= extent
            values = [(w * 31 + e * 7 + e // 5) % 4 for w in range(first, first + count) for e in range(elements)]
        if spoil in DRAWN:
            salt = sum(map(ord, name))
            values = [DRAWN[spoil](((w * 7919 + e * 104729 + salt) * 2654435761 % 2**32) >> 20)
                      for w in range(first, first + count) for e in range(elements)]
            ids = values if spoil == "ids" else ids
        elif spoil == "valid":
            values = [id != -100 for id in ids]
        elif spoil == "signs":
            values = [1 - 2 * (w % 2) for w in range(first, first + count) for e in range(elements)]
        elif spoil == "last":
            values = [e + 1 == elements for w in range(first, first + count) for e in range(elements)]
        elif spoil == "zeros":
            values = [0] * len(values)
        elif spoil:
            values[-1] = float(spoil)
        parts.append(encode(dtype, values))
        header.append('"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}' % (name, dtype, shape, at, at + len(parts[-1])))
        at += len(parts[-1])
    text = ("{" + ",".join(header) + "}").encode()
    with open(out, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


main(*sys.argv[1:])
