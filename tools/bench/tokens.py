"""tokens.py: the text that a benchmark trains on, made by a seeded generator.

The text has what makes text learnable: a few tokens are frequent, and most follow from the one
before. Token i+1 is one of four successors of token i, the first of them with probability 1/2, the
second 1/4, ...; one token in 16 is drawn from all, low numbers first.
"""
import array
import struct

MAGIC, VERSION, HEADER_INTS = 20240520, 1, 256


def generate(count, vocab, seed=1):
    state, token = seed, 0
    tokens = array.array("H")
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64  # Knuth's MMIX
        draw = state >> 33
        if draw % 16 == 0:
            token = (draw >> 4) % vocab * ((draw >> 20) % 64) // 64
        else:
            rank = [0, 0, 0, 0, 1, 1, 2, 3][(draw >> 4) % 8]
            token = (token * 4 + rank) * 2654435761 % 2**32 % vocab
        tokens.append(token)
    return tokens


def write(path, count, vocab):
    """Writes a token file (docs/contracts.md section 9) of `count` tokens below `vocab`."""
    with open(path, "wb") as out:
        out.write(struct.pack("<%di" % HEADER_INTS, MAGIC, VERSION, count,
                              *[0] * (HEADER_INTS - 3)))
        generate(count, vocab).tofile(out)
