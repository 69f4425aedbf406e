"""command.py: the command line of penstock-chat."""
import argparse
import os
import sys

from command_line import Once, Parser, say_as
from failure import CANNOT_WRITE, INTERRUPTED, USAGE, Failure
from generation import Generation, launcher_of, model_of
from version import VERSION

NAME = "penstock-chat"
DESCRIPTION = "Continue a text, or chat, with the model of a deployed binary and the tokenizer of its checkpoint."

# Options of generate that are passed on: the name, how help names the value ("": it takes none), and what it does.
PASSED = [
    ("--tokens", "N", "the most tokens of a reply [200]"),
    ("--temperature", "T", "divide the logits by T; 0 takes the most likely token [0.8]"),
    ("--top-k", "N", "draw from the N most likely tokens [all]"),
    ("--top-p", "P", "draw from the fewest tokens whose probabilities add up to P [1]"),
    ("--min-p", "P", "draw from tokens at least P times as likely as the most likely one [0]"),
    ("--repetition-penalty", "R", "divide the logits of tokens that the text has by R [1]"),
    ("--seed", "N", "the seed of the draws [0]"),
    ("--ignore", "KEY", "accept another value of KEY in config.json; may be given more than once"),
    ("--timeout", "SECONDS", "end when a rank makes no progress for this time [30]"),
    ("--host", "NAME", "with several hosts, which penstock-launch starts: run the ranks of that host alone"),
    ("--rank", "N", "with several hosts: run only rank N"),
    ("--secret-file", "FILE", "with several hosts: the secret of the run"),
    ("--no-secret", "", "with several hosts: take part without a secret"),
]
SEVERAL = ["--ignore"]

say = say_as(NAME)


class Passed(argparse.Action):
    """Collects an option of generate, with its value."""

    def __call__(self, parser, options, value, word=None):
        if word in options.passed and word not in SEVERAL:
            parser.error(f"{word}: given twice")
        options.passed += [word] if self.nargs == 0 else [word, value]


def parse(arguments):
    parser = Parser(prog=NAME, description=DESCRIPTION, allow_abbrev=False)
    parser.set_defaults(passed=[])
    parser.add_argument("binary", metavar="BINARY", help="the deployed binary, penstock-NAME")
    parser.add_argument("--checkpoint", metavar="DIR", action=Once, help="the checkpoint, or the folder whose latest one is taken")
    parser.add_argument("--init", metavar="PATH", action=Once, help="in its place a folder of weights, as transformers stores models")
    parser.add_argument("--tokenizer", metavar="DIR", action=Once, help="the folder of the tokenizer's files [that of the weights]")
    parser.add_argument("--prompt", metavar="TEXT", action=Once, help="print what continues TEXT, and end [read lines from standard input]")
    parser.add_argument("--chat", action=Once, nargs=0, default=False, help="with --prompt: TEXT is a message, for the chat template")
    parser.add_argument("--plain", action=Once, nargs=0, default=False, help="without --prompt: each line is a text to continue [a message, if there is a chat template]")
    parser.add_argument("--system", metavar="TEXT", action=Once, help="the message of the system at the start of a chat")
    parser.add_argument("--stop", metavar="IDS", action=Once, help="token ids, separated by commas, that end a reply as well")
    parser.add_argument("--ssh", metavar="COMMAND", action=Once, help="with several hosts: passed to penstock-launch")
    for name, value, meaning in PASSED:
        if value:
            parser.add_argument(name, metavar=value, action=Passed, dest="passed", default=argparse.SUPPRESS, help=meaning)
        else:
            parser.add_argument(name, nargs=0, action=Passed, dest="passed", default=argparse.SUPPRESS, help=meaning)
    parser.add_argument("-V", "--version", action="version", version=f"{NAME} {VERSION}")
    options = parser.parse_args(arguments)
    if (options.checkpoint is None) == (options.init is None):
        parser.error("choose one of --checkpoint DIR and --init PATH: where the weights are")
    if options.chat and options.prompt is None:
        parser.error("--chat needs --prompt TEXT")
    if options.plain and options.prompt is not None:
        parser.error("--plain: TEXT of --prompt is plain unless --chat is given")
    if options.prompt == "":
        parser.error("--prompt: a text that is not empty")
    return options


def show(piece):
    sys.stdout.write(piece)
    sys.stdout.flush()


def reply(generation, text, ids, starts):
    """Prints what continues the ids, as it comes, and returns it. `starts`: white space before its first word is left out."""
    whole = ""
    for piece in continuation(generation, text.stream(ids), ids):
        piece = piece.lstrip() if starts and not whole else piece
        whole += piece
        show(piece)
    show("\n")
    return whole


def continuation(generation, stream, ids):
    for token in generation.continue_ids(ids):
        yield stream.add(token)
    yield stream.end()


def lines():
    """The lines of standard input, without their ends; of a terminal after a mark."""
    terminal = sys.stdin.isatty()
    while True:
        if terminal:
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\r\n")


def answer_lines(generation, text, options):
    """Each line is a message of one chat, or a text by itself."""
    chat = [{"role": "system", "content": options.system}] if options.system else []
    for line in lines():
        if options.plain or not text.has_template():
            reply(generation, text, text.ids_of(line), False)
            continue
        chat.append({"role": "user", "content": line})
        chat.append({"role": "assistant", "content": reply(generation, text, text.ids_of_chat(chat), True)})


def answer(options):
    from text import Text, find_folder  # which needs a package

    model = model_of(options.binary)
    folder = options.tokenizer or find_folder(options.checkpoint or options.init)
    text = Text(folder)
    weights = ["--checkpoint", options.checkpoint] if options.checkpoint else ["--init", options.init]
    if options.prompt is None and (options.plain or not text.has_template()) and options.system:
        raise Failure(USAGE, "--system: there is no chat: the lines are plain texts")
    if options.prompt is not None and options.system and not options.chat:
        raise Failure(USAGE, "--system needs --chat: the prompt is a plain text")
    launcher = [] if {"--host", "--rank"} & set(options.passed) else launcher_of(model, options.ssh)
    if options.ssh and not launcher:
        raise Failure(USAGE, "--ssh: the binary is not started by penstock-launch: it has no hosts, or --host or --rank is given")
    with Generation(options.binary, launcher, model, weights + options.passed, text.stop_ids(), options.stop, say) as generation:
        answer_all(generation, text, options)


def answer_all(generation, text, options):
    if options.prompt is None:
        answer_lines(generation, text, options)
    elif options.chat:
        chat = [{"role": "system", "content": options.system}] if options.system else []
        reply(generation, text, text.ids_of_chat(chat + [{"role": "user", "content": options.prompt}]), True)
    else:
        reply(generation, text, text.ids_of(options.prompt), False)


def main(arguments):
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        answer(parse(arguments))
        sys.stdout.flush()
    except Failure as failure:
        if str(failure):
            say(failure)
        return failure.status
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        say(f"cannot write to standard output: {error.strerror}")
        return CANNOT_WRITE
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0
