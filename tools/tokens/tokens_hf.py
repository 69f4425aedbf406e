#!/usr/bin/env python3
"""tokens_hf.py: token files from text, JSON lines, Parquet or Arrow files, by any tokenizer.json of Hugging Face's tokenizers package.

    tools/tokens/tokens_hf.py tokenizer.json [--field text] [--pack TOKENS ...] -o OUT FILE...
    tools/tokens/tokens_hf.py tokenizer.json --prompt-field prompt --field completion ... -o OUT FILE...
    tools/tokens/tokens_hf.py tokenizer.json --messages ... -o OUT FILE...     chats, by the chat template beside tokenizer.json
    tools/tokens/tokens_hf.py tokenizer.json --encode TEXT     the numbers that generate takes as --prompt
    tools/tokens/tokens_hf.py tokenizer.json --decode          standard input, lines of numbers as generate prints them, as text

The tokenizer makes ids; penstock-tokens makes the file, so that there is one writer of the format. Each file is a document, or,
with --field or --messages, each line. A document begins as the tokenizer's post-processor has it and ends with the end-of-text
token; a chat begins and ends as the chat template has it. With --prompt-field and --messages only the tokens of completions and of the assistant's messages count as targets."""

import argparse
import array
import itertools
import json
import os
import re
import struct
import subprocess
import sys

FOLDER = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [FOLDER, os.path.join(FOLDER, "tokens")]  # of tools/tokens_hf.py, where it is no link
import inputs  # noqa: E402

try:
    from tokenizers import Tokenizer
except ImportError as error:
    sys.exit(f"tokens_hf.py: needs Python's package tokenizers (pip install tokenizers): {error}")

VERSION = "0.1"
BATCH_DOCUMENTS = 1024
BATCH_BYTES = 1 << 22
MESSAGE_BYTES_MAX = 1490
# What well-known tokenizers call it.
END_OF_TEXT = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>"]
END_OF_TURN = END_OF_TEXT + ["<|eot_id|>", "<end_of_turn>", "<|end|>"]
ROLES = ["system", "developer", "user", "assistant", "tool"]
CHAT_FIELDS = ["messages", "conversations", "tools"]
SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant"}
# Characters for private use, which mark the assistant's text while a chat template is rendered.
BEGIN, PAST = "\U0010fffc", "\U0010fffd"


def fail(status, message):
    """Says it in one line, of bounded length, without what a terminal would act on."""
    line = re.sub("[^\x20-\x7e\xa0-\uffff]", "?", f"tokens_hf.py: {message}").encode("utf-8", "replace")
    print(line[:MESSAGE_BYTES_MAX].decode("utf-8", "ignore"), file=sys.stderr)
    sys.exit(status)


def documents(paths, fields, of_value):
    """What every document is made of, in order: a text, or, with fields, what of_value makes of the JSON object of a line or of a row of a table."""
    for path in paths:
        try:
            file, start = inputs.open_file(path)
            with file:
                if inputs.is_table(start) and not fields:
                    fail(64, f"{path}: a table: --field names the column of its texts, --messages is for chats")
                if inputs.is_table(start):
                    for number, row in enumerate(inputs.rows(path, start, fields), 1):
                        yield of_value(f"{path}: row {number}", row)
                    continue
                text = inputs.text(file, start)
                if not fields:
                    yield text.read()
                    continue
                for number, line in enumerate(text, 1):
                    if line.strip():
                        yield of_value(f"{path}:{number}", parse(f"{path}:{number}", line))
        except inputs.InputError as error:
            fail(error.status, error)
        except UnicodeDecodeError as error:
            fail(65, f"{path}: not UTF-8: {error}")
        except Exception as error:
            if inputs.damaged(error):
                fail(65, f"{path}: damaged: {error}")
            if not isinstance(error, OSError):
                raise
            fail(66, f"{path}: {error.strerror}")


def parse(where, line):
    try:
        return json.loads(line)
    except ValueError as error:
        fail(65, f"{where}: not JSON: {error}")


def text_of(where, value, field):
    if not isinstance(value, dict) or not isinstance(value.get(field), str):
        fail(65, f'{where}: no field "{field}" that is a string')
    return value[field]


class Chat:
    """The messages of a line, as templates take them, its tools, and which of the assistant's messages count as targets."""

    def __init__(self, where, value):
        value = value if isinstance(value, dict) else {}
        field = "conversations" if "messages" not in value and "conversations" in value else "messages"
        if not isinstance(value.get(field), list) or not value[field]:
            fail(65, f'{where}: no field "{field}" that is a list of messages')
        self.tools = value.get("tools") or None
        self.messages, self.counts = [], []
        for index, given in enumerate(value[field]):
            message, counts = message_of(f"{where}: {field}[{index}]", given, field == "conversations")
            self.messages.append(message)
            self.counts += [counts] if message["role"] == "assistant" else []


def message_of(where, given, is_sharegpt):
    """A message as templates take it, and whether it counts as a target, by OpenAI's weight."""
    role = text_of(where, given, "from" if is_sharegpt else "role")
    role = SHAREGPT_ROLES.get(role, role) if is_sharegpt else role
    if role not in ROLES:
        fail(65, f'{where}: role "{role}": {", ".join(ROLES[:-1])} or {ROLES[-1]}')
    weight = given.get("weight", 1 if role == "assistant" else 0)
    if weight not in (0, 1) or (weight == 1 and role != "assistant"):
        fail(65, f'{where}: "weight": {json.dumps(weight)}: 0 or 1, of the assistant\'s messages')
    if is_sharegpt:
        return {"role": role, "content": text_of(where, given, "value")}, weight == 1
    message = {name: value for name, value in given.items() if name != "weight"}
    if isinstance(message.get("content"), list):
        message["content"] = "".join(part_text(where, part) for part in message["content"])
    if message.get("tool_calls") and message.get("content") is None:
        message["content"] = ""
    text_of(where, message, "content")
    if message.get("tool_calls"):
        message["tool_calls"] = [with_arguments(where, call) for call in message["tool_calls"]]
    return message, weight == 1


def part_text(where, part):
    if isinstance(part, dict) and part.get("type", "text") != "text":
        fail(65, f'{where}: a part of type {json.dumps(part["type"])}: text alone is supported')
    return text_of(where, part, "text")


def with_arguments(where, call):
    """A tool call whose arguments are an object, which templates take, and not the JSON text that OpenAI has."""
    function = call.get("function") if isinstance(call, dict) else None
    if isinstance(function, dict) and isinstance(function.get("arguments"), str):
        return dict(call, function=dict(function, arguments=parse(f"{where}: arguments", function["arguments"])))
    return call


class ChatTemplate:
    """The chat template of a tokenizer: the tokens of chats, and which of them the assistant writes."""

    def __init__(self, path, end_of_text):
        try:
            import transformers
        except ImportError as error:
            sys.exit(f"tokens_hf.py: --messages needs Python's package transformers (pip install transformers): {error}")
        transformers.utils.logging.set_verbosity_error()
        if os.path.basename(path) != "tokenizer.json":
            fail(64, f"{path}: with --messages it must be named tokenizer.json: the chat template is read from its folder")
        try:
            self.tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(os.path.dirname(os.path.abspath(path)))
        except Exception as error:  # of many kinds
            fail(65, f"{path}: {error}")
        template = self.tokenizer.chat_template
        self.template = template.get("default") if isinstance(template, dict) else template
        if self.template is None:
            fail(65, f"{path}: no chat template beside it, in tokenizer_config.json or chat_template.jinja")
        known = self.tokenizer.get_vocab()
        self.ends = [token for token in [end_of_text, self.tokenizer.eos_token] + END_OF_TURN if token in known]
        # The template with marks around what it calls the assistant's, if it does. An if in place of each tag keeps the white space.
        self.marked, tags = re.subn(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}", lambda tag:
                                    f"{{%{tag[1]} if true %}}{PAST if tag[2] else BEGIN}{{% endif {tag[3]}%}}", self.template)
        self.marks_answers = tags > 0

    def render(self, messages, tools, template=None, **options):
        return self.tokenizer.apply_chat_template(messages, tools=tools, chat_template=template or self.template, tokenize=False, **options)

    def answers_after_prompts(self, messages, tools, text):
        """What each answer adds to the text of the messages before it with a generation prompt. None: the text does not grow so."""
        spans = []
        for index, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            if index == 0:
                return None
            try:
                bare, prompt = self.render(messages[:index], tools), self.render(messages[:index], tools, add_generation_prompt=True)
                whole = self.render(messages[:index + 1], tools)
            except Exception:  # some templates refuse parts of a chat
                return None
            if prompt == bare or not whole.startswith(prompt) or not text.startswith(whole):
                return None
            spans.append((len(prompt), max(len(prompt), len(whole.rstrip()))))
        return spans

    def contents(self, messages, tools, text):
        """Where the contents of answers are. None: the template changes them, or writes tool calls beside them."""
        if any(message.get("tool_calls") for message in messages):
            return None
        for strip in (lambda content: content, str.strip):
            marked = [dict(message, content=BEGIN + strip(message["content"]) + PAST) if message["role"] == "assistant" else message
                      for message in messages]
            found, spans = without_marks(self.render(marked, tools))
            if found == text and len(spans) == sum(message["role"] == "assistant" for message in messages):
                return spans
        return None

    def encode(self, where, chat):
        """The ids of a chat, and for each whether it counts: the answers, and the token that ends each."""
        messages, tools = chat.messages, chat.tools
        try:
            if self.marks_answers:
                text, spans = without_marks(self.render(messages, tools, self.marked))
            else:
                text = self.render(messages, tools)
                spans = self.answers_after_prompts(messages, tools, text)
                spans = self.contents(messages, tools, text) if spans is None else spans
        except Exception as error:  # the template's own, and those of its language
            fail(65, f"{where}: the chat template: {error}")
        if spans is None:
            fail(65, f"{where}: the chat template changes the assistant's messages: mark them in it by {{% generation %}}")
        if not all(chat.counts):
            if len(spans) != len(chat.counts):
                fail(65, f'{where}: "weight": the chat template marks {len(spans)} answers of {len(chat.counts)}')
            spans = [span for span, counts in zip(spans, chat.counts) if counts]
        spans = [(first, past + max([len(end) for end in self.ends if text.startswith(end, past)], default=0)) for first, past in spans]
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return encoded["input_ids"], [any(first < end and begin < past for first, past in spans) for begin, end in encoded["offset_mapping"]]


def without_marks(marked):
    """A text without its marks, and the parts between them as (first, past)."""
    text, spans, first = "", [], None
    for piece in re.split(f"([{BEGIN}{PAST}])", marked):
        if piece == BEGIN:
            first = len(text)
        elif piece == PAST and first is not None:
            spans.append((first, len(text)))
            first = None
        elif piece != PAST:
            text += piece
    return text, spans


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


def configured_end(path):
    """The token that ends a document, as the tokenizer_config.json beside the tokenizer has it. None: it has none."""
    path = os.path.join(os.path.dirname(path), "tokenizer_config.json")
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        fail(66, f"{path}: {error.strerror}")
    except (ValueError, RecursionError) as error:
        fail(65, f"{path}: not JSON: {error}")
    token = config.get("eos_token") if isinstance(config, dict) else None
    return token.get("content") if isinstance(token, dict) else token


def end_of_text_of(tokenizer, name, path):
    """The id that ends a document: of the token NAME, or of the one that tokenizer_config.json names, or of a well-known one."""
    if name:
        names, missing = [name], (64, f"--end-of-text {name}: the tokenizer has no such token")
    elif configured_end(path):
        names = [configured_end(path)]
        missing = 65, f"{path}: no token {json.dumps(names[0])}, which the tokenizer_config.json beside it names as eos_token; --end-of-text TOKEN names another"
    else:
        names = END_OF_TEXT
        missing = 64, "name the token that ends a document: --end-of-text TOKEN; the tokenizer has none of " + ", ".join(END_OF_TEXT)
    for token in (tokenizer.token_to_id(one) for one in names if isinstance(one, str)):
        if token is not None:
            return token
    fail(*missing)


def beginning_of(tokenizer):
    """The ids that the tokenizer's post-processor puts before those of a text, of any that has some."""
    for text in itertools.chain(["a"], tokenizer.get_vocab()):
        encoded = tokenizer.encode(text)
        if 0 in encoded.special_tokens_mask:
            return encoded.ids[:encoded.special_tokens_mask.index(0)]
    return []


def say_ends(tokenizer, begin, end, put_begin):
    named = [f"{tokenizer.id_to_token(token)} ({token})" for token in begin + [end]]
    began = " ".join(named[:-1]) or "no token of their own"
    why = "--no-bos leaves it out" if begin else "the tokenizer's post-processor puts none there" if put_begin else "--no-bos"
    print(f"tokens_hf.py: documents begin with {began}, and end with {named[-1]}; {why}", file=sys.stderr)


def encode(tokenizer, begin, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if not begin + ids:
        fail(65, f"--encode {text!r}: no tokens")
    print(*begin, *ids)


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


def own_program():
    paths = [os.path.join(FOLDER, above, "penstock-tokens") for above in ("..", "../..")]
    return next(filter(os.path.exists, paths), "penstock-tokens")


class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(64, f"{message}; --help lists the options")


class Once(argparse.Action):
    """Stores the value of an option, or True, which may be given once."""

    def __call__(self, parser, arguments, value, word=None):
        given = arguments.__dict__.setdefault("given", set())
        if self.dest in given:
            parser.error(f"{word}: given twice")
        given.add(self.dest)
        setattr(arguments, self.dest, value if self.nargs is None else True)


def read_arguments():
    parser = Parser(allow_abbrev=False, description=__doc__.splitlines()[0], epilog="Other options are penstock-tokens' own.")
    parser.add_argument("tokenizer", help="tokenizer.json")
    parser.add_argument("-V", "--version", action="version", version=f"%(prog)s (penstock) {VERSION}")
    parser.add_argument("inputs", nargs="*", metavar="FILE", help="text, or JSON lines, also compressed by gzip or zstd; Parquet or Arrow files, or a folder of these; - is standard input")
    parser.add_argument("--split", action=Once, metavar="NAME", help="which split of a folder that has several, as DatasetDict.save_to_disk writes them [train]")
    parser.add_argument("--field", action=Once, help="inputs are JSON lines or tables; a document is the text of this field, or column")
    parser.add_argument("--prompt-field", action=Once, help="the text of this field comes before that of --field, and does not count as a target")
    parser.add_argument("--messages", action=Once, nargs=0, default=False, help="inputs are JSON lines or tables with chats, for the tokenizer's chat template")
    parser.add_argument("--end-of-text", action=Once, metavar="TOKEN", help="the token that ends a document, as text [that of tokenizer_config.json, else the first known one]")
    parser.add_argument("--no-bos", action=Once, nargs=0, default=False, help="documents begin without what the tokenizer's post-processor puts there")
    parser.add_argument("-o", "--output", action=Once, metavar="OUT", help="the token file to write")
    parser.add_argument("--encode", action=Once, metavar="TEXT", help="print the numbers of a text's tokens, and write no file")
    parser.add_argument("--decode", action=Once, nargs=0, default=False, help="print the text of standard input's lines of numbers, and write no file")
    parser.add_argument("--pack", action=Once, metavar="TOKENS")
    parser.add_argument("--pad-to", action=Once, metavar="N")
    parser.add_argument("--single", action=Once, nargs=0, default=False)
    parser.add_argument("--program", action=Once, default=own_program(), help="penstock-tokens [the one at the top of the tree that holds this file, or in PATH]")
    arguments = parser.parse_intermixed_args()
    ways = [arguments.encode is not None, arguments.decode, arguments.output is not None]
    if sum(ways) != 1 or (arguments.output is not None) != bool(arguments.inputs):
        fail(64, "choose one of -o OUT FILE..., --encode TEXT and --decode")
    if arguments.split is not None and not any(map(inputs.has_splits, arguments.inputs)):
        fail(64, f"--split {arguments.split}: no FILE is a folder with splits (dataset_dict.json)")
    try:
        arguments.inputs = [file for path in arguments.inputs for file in inputs.files_of(inputs.folder_of(path, arguments.split))]
    except inputs.InputError as error:
        fail(error.status, error)
    except OSError as error:
        fail(66, f"{error.filename}: {error.strerror}")
    for path in [arguments.tokenizer, *arguments.inputs] if arguments.output is not None else []:
        for written in (arguments.output, arguments.output + ".tmp"):
            if os.path.isfile(written) and os.path.exists(path) and os.path.samefile(written, path):
                fail(64, f"-o {arguments.output}: {'' if written == arguments.output else 'its temporary file is '}the same file as {path}")
    if arguments.messages and arguments.field is not None:
        fail(64, "choose one of --field and --messages")
    if arguments.messages and arguments.no_bos:
        fail(64, "--no-bos: of chats the chat template says how they begin")
    if arguments.prompt_field is not None and arguments.field is None:
        fail(64, "--prompt-field: the prompt of what --field names: it needs --field")
    return arguments


def texts(arguments, tokenizer, begin, end):
    """The ids of each document."""
    field = arguments.field
    for batch in batches(documents(arguments.inputs, [field] if field is not None else [], lambda where, value: text_of(where, value, field))):
        for encoded in tokenizer.encode_batch(batch, add_special_tokens=False):
            yield begin + encoded.ids + [end], []


def chats(arguments, template):
    """The ids and the mask of each chat."""
    return documents(arguments.inputs, CHAT_FIELDS, lambda where, value: template.encode(where, Chat(where, value)))


def completions(arguments, tokenizer, begin, end):
    """The ids and the mask of each prompt with its completion."""
    def encode(where, value):
        prompt, completion = (tokenizer.encode(text_of(where, value, field), add_special_tokens=False).ids
                              for field in (arguments.prompt_field, arguments.field))
        return begin + prompt + completion + [end], [0] * len(begin + prompt) + [1] * (len(completion) + 1)

    return documents(arguments.inputs, [arguments.prompt_field, arguments.field], encode)


def little_endian(ids, wide):
    numbers = array.array("I" if wide else "H", ids)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def main():
    arguments = read_arguments()
    try:
        tokenizer = Tokenizer.from_file(arguments.tokenizer)
    except Exception as error:  # the package raises nothing narrower
        fail(65, f"{arguments.tokenizer}: {error}")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    begin = [] if arguments.no_bos or arguments.messages else beginning_of(tokenizer)
    if arguments.encode is not None or arguments.decode:
        encode(tokenizer, begin, arguments.encode) if arguments.encode is not None else decode(tokenizer, sys.stdin)
        return
    template = ChatTemplate(arguments.tokenizer, arguments.end_of_text) if arguments.messages else None
    end = end_of_text_of(tokenizer, arguments.end_of_text or (template and template.tokenizer.eos_token), arguments.tokenizer)
    wide = max(tokenizer.get_vocab_size(), len(template.tokenizer) if template else 0) > 65536
    command = [arguments.program, "--ids", "32" if wide else "16", "--end-of-text", str(end), "-o", arguments.output]
    command += ["--pack", arguments.pack] if arguments.pack else []
    command += ["--pad-to", arguments.pad_to] if arguments.pad_to else []
    command += ["--single"] if arguments.single else []
    masked = arguments.messages or arguments.prompt_field is not None
    if end in begin and arguments.pack and not masked:
        fail(64, f"documents begin with {tokenizer.id_to_token(end)}, which ends them: --pack needs --no-bos, or another --end-of-text")
    command += ["--masks"] if masked else []
    try:
        writer = subprocess.Popen(command + ["-"], stdin=subprocess.PIPE)
    except OSError as error:
        fail(66, f"--program {arguments.program}: {error.strerror}")
    try:
        if not template:
            say_ends(tokenizer, begin, end, not arguments.no_bos)
        encoded = chats(arguments, template) if template else (completions if masked else texts)(arguments, tokenizer, begin, end)
        for ids, mask in encoded:
            counted = struct.pack("<I", len(ids)) if masked else b""
            writer.stdin.write(counted + little_endian(ids, wide) + bytes(mask))
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
