"""generation.py: runs the binary's generate once for each reply.

Models with a vocabulary above BYTE_VOCAB read and write token ids as numbers, others as bytes."""
import json
import os
import subprocess

from failure import BAD_DATA, NO_INPUT, USAGE, Failure

BYTE_VOCAB = 256
PROMPT_BYTES_MAX = 120000  # Linux has a limit of 128 KiB for an argument
PART_BYTES = 1 << 16


def start(binary, arguments):
    path = binary if os.sep in binary or not os.path.exists(binary) else os.path.join(os.curdir, binary)
    try:
        return subprocess.Popen([path, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except OSError as error:
        raise Failure(NO_INPUT, f"{binary}: {error.strerror}") from error


def model_of(binary):
    """What info tells of the model."""
    with start(binary, ["info", "--json"]) as child:
        text = child.stdout.read()
    try:
        model = json.loads(text)
        if child.returncode == 0 and model["vocab"] > 0 and model["sequence"] > 0:
            return model
    except (ValueError, KeyError, TypeError):
        pass
    raise Failure(BAD_DATA, f"{binary}: no binary of a language model: info --json has no vocab and sequence")


class Generation:
    def __init__(self, binary, model, options, stops, more_stops, say):
        self.binary, self.vocab, self.sequence, self.say = binary, model["vocab"], model["sequence"], say
        ids = [str(token) for token in stops if token < self.vocab] + ([more_stops] if more_stops else [])
        self.options = options + (["--stop", ",".join(ids)] if ids else []) + ["--quiet"]
        self.is_long = False

    def prompt_of(self, ids):
        """The argument of --prompt."""
        for token in ids:
            if token >= self.vocab:
                raise Failure(BAD_DATA, f"token {token} of the prompt: the model's vocab is {self.vocab}: the tokenizer is another model's")
        if self.vocab <= BYTE_VOCAB and 0 in ids:
            raise Failure(BAD_DATA, "token 0 in the prompt: models with a vocabulary of at most 256 take no byte 0")
        prompt = bytes(ids) if self.vocab <= BYTE_VOCAB else " ".join(map(str, ids)).encode()
        if len(prompt) > PROMPT_BYTES_MAX:
            raise Failure(USAGE, f"a prompt of {len(ids)} tokens: their numbers take {len(prompt)} bytes, at most {PROMPT_BYTES_MAX}")
        return prompt

    def continue_ids(self, ids):
        """The ids of the reply, as they are drawn."""
        if len(ids) > self.sequence and not self.is_long:
            self.say(f"the text has {len(ids)} tokens: the model reads the last {self.sequence}")
            self.is_long = True
        child = start(self.binary, ["generate", "--prompt", self.prompt_of(ids), *self.options])
        try:
            read = read_bytes if self.vocab <= BYTE_VOCAB else read_numbers
            for index, token in enumerate(read(child.stdout.fileno())):
                if index >= len(ids):
                    yield token
        finally:
            child.stdout.close()
            status = child.wait()
        if status != 0:
            raise Failure(status if status > 0 else 128 - status, "")  # it has said why


def read_numbers(fd):
    rest = b""
    while True:
        part = os.read(fd, PART_BYTES)
        *whole, rest = (rest + part).split(b" ")
        yield from map(int, filter(bytes.strip, whole))
        if not part:
            return  # what is left is the end of the line


def read_bytes(fd):
    held = b""  # the last byte may be the end of the line
    while True:
        part = os.read(fd, PART_BYTES)
        if not part:
            return
        yield from (held + part)[:-1]
        held = part[-1:]
