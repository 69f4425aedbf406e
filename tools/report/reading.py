"""reading.py: files and JSON that may be damaged or hostile: bounded, and with an error that says where."""
import json

from failure import BAD_DATA, NO_INPUT, Failure

FILE_BYTES_MAX = 1 << 30
COUNT_MAX = 1 << 63
RANKS_MAX = 1 << 16  # of all replicas
VALUE_MAX, VALUE_LEAST = 1e300, 1e-300  # what is larger counts as not finite, what is smaller as 0
SHOWN_MAX = 100  # characters of a value in a message
MARK = b"\xef\xbb\xbf"  # the byte order mark of UTF-8


def read_file(path, option):
    """The bytes of a file; `option` names it in messages."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise Failure(NO_INPUT, f"{option}{path}: {error.strerror}") from error
    if len(data) > FILE_BYTES_MAX:
        raise Failure(BAD_DATA, f"{option}{path}: more than {FILE_BYTES_MAX >> 20} MiB, which is the limit")
    return data[len(MARK):] if data.startswith(MARK) else data


def parse_json(data):
    """The value of a JSON text. Raises ValueError, with `lineno` where it is known."""
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def shown(value):
    """A value in a message."""
    try:
        text = json.dumps(value)
    except (RecursionError, ValueError):
        return "a nested value"
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."


def is_count(value, least=0, most=COUNT_MAX):
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_finite(value):
    """Whether it is a number that can be drawn; one of too many digits is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= VALUE_MAX
