"""failure.py: how a command ends that cannot do what it was asked to."""

USAGE, BAD_DATA, NO_INPUT, CANNOT_CREATE, CANNOT_WRITE = 64, 65, 66, 73, 74


class Failure(Exception):
    """Ends the command with a status of sysexits.h and a message."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def read_text(path, option):
    """The text of a file; `option` names it in messages."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise Failure(NO_INPUT, f"{option}{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Failure(BAD_DATA, f"{option}{path}: byte {error.start} is not UTF-8: expected text") from error
