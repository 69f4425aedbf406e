"""penstock-chat: text in and out of a deployed binary, by the tokenizer that its checkpoint keeps.

    command.py      the command line, the prompt or the turns of a chat
    generation.py   the binary's generate, which reads and writes token ids
    text.py         the tokenizer, its chat template and what ends a reply
    failure.py, command_line.py    penstock-report's (tools/report)

It needs Python's package tokenizers, and for chats jinja2."""
import sys

from command import main

sys.exit(main(sys.argv[1:]))
