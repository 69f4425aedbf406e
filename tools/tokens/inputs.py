"""inputs.py: what tokens_hf.py reads: text, also compressed by gzip or zstd, and the rows of Parquet and Arrow files. The first bytes of a file
say what it is; a folder is its Parquet and Arrow files."""
import gzip
import io
import json
import os
import zlib

GZIP, ZSTD = b"\x1f\x8b\x08", (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18")
PARQUET, ARROW_FILE, ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
START_BYTES = 8
BATCH_ROWS = 1024
WINDOW_BYTES_MAX = 1 << 31  # as zstd --long=31 makes them


class InputError(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def package(name, what):
    """A module that only some inputs need."""
    try:
        return __import__(name, fromlist=["*"])
    except ImportError as error:
        raise InputError(1, f"{what} needs Python's package {name.split('.')[0]} (pip install {name.split('.')[0]}): {error}") from error


def read_names(path, of_value):
    """A list of names that a file of JSON has."""
    try:
        with open(path, encoding="utf-8") as file:
            names = of_value(json.load(file))
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return names
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(65, f"{path}: not that of a data set: {error}") from error
    raise InputError(65, f"{path}: not that of a data set")


def has_splits(path):
    """Whether datasets' save_to_disk wrote several data sets there, each in the folder of its name."""
    return os.path.exists(os.path.join(path, "dataset_dict.json"))


def folder_of(path, split):
    """The folder of a split, or else of train; of a path without splits itself."""
    if not has_splits(path):
        return path
    names = read_names(os.path.join(path, "dataset_dict.json"), lambda value: value["splits"])
    chosen = "train" if split is None else split
    if chosen not in names:
        wrong = f"{path}: no split train" if split is None else f"--split {split}: {path} has no such split"
        raise InputError(64, f"{wrong}; choose one by --split: {', '.join(names)}")
    return os.path.join(path, chosen)


def files_of(path):
    """The files of a folder: those of a data set that datasets' save_to_disk wrote, or its Parquet and Arrow files by name. Of a file: it."""
    if not os.path.isdir(path):
        return [path]
    state = os.path.join(path, "state.json")
    if os.path.exists(state):
        names = read_names(state, lambda value: [one["filename"] for one in value["_data_files"]])
    else:
        names = sorted(os.listdir(path), key=os.fsencode)
        names = [name for name in names if name.endswith((".parquet", ".arrow")) and not name.startswith((".", "cache-"))]
    if not names:
        folders = sorted(name for name in os.listdir(path) if os.path.isdir(os.path.join(path, name)))
        raise InputError(66, f"{path}: no Parquet or Arrow files in this folder" + (f"; name one of its folders: {', '.join(folders)}" if folders else ""))
    return [os.path.join(path, name) for name in names]


def open_file(path):
    """A file, or standard input, and its first bytes, which are read again."""
    file = open(0 if path == "-" else path, "rb", closefd=path != "-")
    return file, file.peek(START_BYTES)[:START_BYTES]


def is_table(start):
    return start.startswith((PARQUET, ARROW_FILE, ARROW_STREAM))


def text(file, start):
    """The text of a file, decompressed."""
    if start.startswith(GZIP):
        file = gzip.GzipFile(fileobj=file)
    elif start.startswith(ZSTD):
        zstandard = package("zstandard", "text that zstd compressed")
        file = io.BufferedReader(zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX).stream_reader(file, read_across_frames=True))
    return io.TextIOWrapper(file, encoding="utf-8", newline="")


def damaged(error):
    """Whether an error of a reader of text says that its compressed bytes are damaged."""
    return isinstance(error, (EOFError, zlib.error)) or type(error).__name__ == "ZstdError" or (isinstance(error, OSError) and error.strerror is None)


def batches(path, start, wanted):
    """The rows of a table, in batches of its own, with those of the wanted columns that it has."""
    arrow = package("pyarrow", "a Parquet or Arrow file")
    if start.startswith(PARQUET):
        table = package("pyarrow.parquet", "a Parquet file").ParquetFile(path, memory_map=True)
        yield from table.iter_batches(BATCH_ROWS, columns=columns_of(path, table.schema_arrow, wanted))
        return
    is_file = start.startswith(ARROW_FILE)
    with arrow.memory_map(path) as memory:
        table = (arrow.ipc.open_file if is_file else arrow.ipc.open_stream)(memory)
        columns = columns_of(path, table.schema, wanted)
        for batch in (table.get_batch(index) for index in range(table.num_record_batches)) if is_file else table:
            yield batch.select(columns)


def columns_of(path, schema, wanted):
    found = [name for name in wanted if name in schema.names]
    if not found:
        raise InputError(65, f"{path}: no column {' or '.join(wanted)}; it has {', '.join(schema.names)}")
    return found


def rows(path, start, wanted):
    """The rows of a table as objects, like lines of JSON: what is null is absent."""
    if path == "-":
        raise InputError(66, "-: a Parquet or Arrow file is read by its name, not as standard input")
    try:
        for batch in batches(path, start, wanted):
            for row in batch.to_pylist():
                yield without_nulls(row)
    except (ValueError, OSError) as error:  # ArrowInvalid is a ValueError
        raise InputError(65, f"{path}: damaged: {str(error).splitlines()[0]}") from error


def without_nulls(value):
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value
