"""failure.py: how a command ends that cannot do what it was asked to."""

USAGE, BAD_DATA, NO_INPUT, NO_LIBRARY, NO_MEMORY, CANNOT_CREATE, CANNOT_WRITE, INTERRUPTED = 64, 65, 66, 69, 71, 73, 74, 130


class Failure(Exception):
    """Ends the command with a status of sysexits.h and a message."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status
