#!/usr/bin/env python3
"""tokens_hf.py: token files from text or JSON lines, by any tokenizer.json of Hugging Face's tokenizers package.

    tools/tokens/tokens_hf.py tokenizer.json [--field text] [--pack TOKENS ...] -o OUT FILE...
    tools/tokens/tokens_hf.py tokenizer.json --encode TEXT     the numbers that generate takes as --prompt
    tools/tokens/tokens_hf.py tokenizer.json --decode          standard input, lines of numbers as generate prints them, as text

The tokenizer makes ids; penstock-tokens makes the file, so that there is one writer of the format. Each file is a document, or,
with --field, each line. A document ends with the end-of-text token."""

import argparse
import array
import json
import os
import subprocess
import sys

try:
    from tokenizers import Tokenizer
except ImportError as error:
    sys.exit(f"tokens_hf.py: needs Python's package tokenizers (pip install tokenizers): {error}")

BATCH_DOCUMENTS = 1024
BATCH_BYTES = 1 << 22
# What well-known tokenizers call it.
END_OF_TEXT = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>"]


def fail(status, message):
    sys.stderr.write("tokens_hf.py: " + message + "\n")
    sys.exit(status)


def documents(paths, field):
    """The text of every document, in order."""
    for path in paths:
        try:
            with open(0 if path == "-" else path, encoding="utf-8", newline="", closefd=path != "-") as file:
                if field is None:
                    yield file.read()
                    continue
                for number, line in enumerate(file, 1):
                    if line.strip():
                        yield text_of(path, number, line, field)
        except OSError as error:
            fail(66, f"{path}: {error.strerror}")
        except UnicodeDecodeError as error:
            fail(65, f"{path}: not UTF-8: {error}")


def text_of(path, number, line, field):
    try:
        value = json.loads(line)
    except ValueError as error:
        fail(65, f"{path}:{number}: not JSON: {error}")
    if not isinstance(value, dict) or not isinstance(value.get(field), str):
        fail(65, f'{path}:{number}: no field "{field}" that is a string')
    return value[field]


def batches(texts):
    """Lists of documents, large enough to keep all cores busy."""
    batch, size = [], 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if len(batch) == BATCH_DOCUMENTS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def end_of_text_of(tokenizer, name):
    for candidate in [name] if name else END_OF_TEXT:
        token = tokenizer.token_to_id(candidate)
        if token is not None:
            return token
    fail(64, f"--end-of-text {name}: the tokenizer has no such token" if name else
         "name the token that ends a document: --end-of-text TOKEN; the tokenizer has none of " + ", ".join(END_OF_TEXT))


def encode(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if not ids:
        fail(65, f"--encode {text!r}: no tokens")
    print(*ids)


def decode(tokenizer, lines):
    """A line of numbers becomes its text; the heading of a sample stays."""
    size = tokenizer.get_vocab_size()
    for number, line in enumerate(lines, 1):
        words = line.split()
        if words[:1] == ["---"]:
            print(line, end="", flush=True)
            continue
        for word in words:
            if not (word.isascii() and word.isdigit() and int(word) < size):
                fail(65, f"--decode: line {number}: {word!r}: must be a token id below {size}")
        print(tokenizer.decode([int(word) for word in words], skip_special_tokens=False), flush=True)


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="Other options are penstock-tokens' own.")
    parser.add_argument("tokenizer", help="tokenizer.json")
    parser.add_argument("inputs", nargs="*", metavar="FILE", help="text, or JSON lines; - is standard input")
    parser.add_argument("--field", help="inputs are JSON lines; a document is the text of this field")
    parser.add_argument("--end-of-text", metavar="TOKEN", help="the token that ends a document, as text [the first known one]")
    parser.add_argument("-o", "--output", metavar="OUT", help="the token file to write")
    parser.add_argument("--encode", metavar="TEXT", help="print the numbers of a text's tokens, and write no file")
    parser.add_argument("--decode", action="store_true", help="print the text of standard input's lines of numbers, and write no file")
    parser.add_argument("--pack", metavar="TOKENS")
    parser.add_argument("--pad-to", metavar="N")
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--program", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "penstock-tokens"),
                        help="penstock-tokens [the one beside this folder]")
    arguments = parser.parse_intermixed_args()
    ways = [arguments.encode is not None, arguments.decode, arguments.output is not None]
    if sum(ways) != 1 or (arguments.output is not None) != bool(arguments.inputs):
        fail(64, "choose one of -o OUT FILE..., --encode TEXT and --decode")
    return arguments


def main():
    arguments = read_arguments()
    try:
        tokenizer = Tokenizer.from_file(arguments.tokenizer)
    except Exception as error:  # the package raises nothing narrower
        fail(65, f"{arguments.tokenizer}: {error}")
    if arguments.encode is not None or arguments.decode:
        encode(tokenizer, arguments.encode) if arguments.encode is not None else decode(tokenizer, sys.stdin)
        return
    end = end_of_text_of(tokenizer, arguments.end_of_text)
    wide = tokenizer.get_vocab_size() > 65536
    command = [arguments.program, "--ids", "32" if wide else "16", "--end-of-text", str(end), "-o", arguments.output]
    command += ["--pack", arguments.pack] if arguments.pack else []
    command += ["--pad-to", arguments.pad_to] if arguments.pad_to else []
    command += ["--single"] if arguments.single else []
    writer = subprocess.Popen(command + ["-"], stdin=subprocess.PIPE)
    code = "I" if wide else "H"
    try:
        for batch in batches(documents(arguments.inputs, arguments.field)):
            for encoded in tokenizer.encode_batch(batch, add_special_tokens=False):
                ids = array.array(code, encoded.ids + [end])
                if sys.byteorder == "big":
                    ids.byteswap()
                writer.stdin.write(ids.tobytes())
        writer.stdin.close()
    except BrokenPipeError:
        pass  # the writer has said why
    except SystemExit:
        writer.terminate()  # which removes what is unfinished
        writer.wait()
        raise
    sys.exit(writer.wait())


if __name__ == "__main__":
    main()
