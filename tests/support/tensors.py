"""tensors.py FILE: the tensors of a safetensors file: name, dtype and shape, a line each.
tensors.py FILE NAME SCORED: whether the tensor NAME, of windows, has in its rows what a file of `score --logits` has for the token after each."""
import json
import struct
import sys


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def main(path, name=None, scored=None):
    header, data = read(path)
    if name is None:
        for key in sorted(header):
            print(key, header[key]["dtype"], header[key]["shape"])
        return
    shape, (first, _) = header[name]["shape"], header[name]["data_offsets"]
    row = shape[2] * 4
    wanted, of = read(scored)
    at = wanted["logits"]["data_offsets"][0]
    for n in range(shape[0] * shape[1]):
        if data[first + n * row : first + (n + 1) * row] != of[at + (n + 1) * row : at + (n + 2) * row]:
            sys.exit("row %d differs" % n)


main(*sys.argv[1:])
