"""decode.py: `make bench-decode`: a token of one text beside a read of the weights.

A model of 6.0 M weights on one rank of one thread continues one text. What it takes for a token at
least is a read of the weights: tools/bench/read_bytes reads as many bytes. Both run by turns, in
short runs; of each the fastest counts, since other work only makes them slower.

Runs at the top of the build folder, where penstock-bench_decode_DTYPE are. Writes
bench-decode.json.
"""
import argparse
import json
import os
import re
import subprocess

import tokens
from child import FOLDER, Run, fail

DATA = FOLDER + "/decode.bin"
BYTES = {"f32": 4, "bf16": 2}


def weights_of(binary):
    found = re.search(r"(\d+) parameters", subprocess.run([binary, "info"], capture_output=True, text=True).stdout)
    return int(found.group(1)) if found else fail("%s info: no number of parameters" % binary)


def token_ms(binary, folder, count):
    """Of one run, from the tokens/s that it prints at its end."""
    ran = subprocess.run([binary, "generate", "--checkpoint", folder, "--prompt", "a", "--tokens", str(count)],
                         capture_output=True, text=True, errors="replace")
    found = re.search(r"(\d+) tokens/s", ran.stderr)
    return 1e3 / int(found.group(1)) if found else fail("%s generate: %s" % (binary, ran.stderr))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    os.makedirs(FOLDER, exist_ok=True)
    tokens.write(DATA, 1025, 256)
    results = []
    print("%-6s %10s %10s %10s %8s" % ("", "bytes", "token, ms", "read, ms", "ratio"))
    for dtype in BYTES:
        binary, folder = "./penstock-bench_decode_" + dtype, FOLDER + "/decode_" + dtype
        size = weights_of(binary) * BYTES[dtype]
        Run([binary, "train", "--data", DATA, "--quiet", "--steps", "1", "--overwrite", "--checkpoint", folder])
        token, read = [], []
        for _ in range(options.turns):
            token.append(token_ms(binary, folder, options.tokens))
            read.append(float(Run(["tools/bench/read_bytes", str(size), "20"]).output))
        print("%-6s %10d %10.3f %10.3f %8.2f" % (dtype, size, min(token), min(read), min(token) / min(read)), flush=True)
        results.append({"dtype": dtype, "bytes": size, "token_ms": token, "read_ms": read})
    json.dump(results, open("bench-decode.json", "w"), indent=1)


main()
