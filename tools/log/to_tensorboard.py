"""to_tensorboard.py: TensorBoard's event files, by the writer of its package, which needs neither TensorFlow nor PyTorch."""
import re

from failure import CANNOT_CREATE, NO_LIBRARY, Failure

try:
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
except ImportError as error:
    raise Failure(NO_LIBRARY, f"--tensorboard needs Python's package tensorboard (pip install tensorboard): {error}") from error


class TensorBoard:
    def __init__(self, folder):
        self.begun = False
        try:
            self.writer = EventFileWriter(folder)
        except OSError as error:
            raise Failure(CANNOT_CREATE, f"--tensorboard {folder}: {error.strerror}") from error

    def again_from(self, step, seconds=0.0):
        """What is there of this step and later ones is dropped by who reads the files."""
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self.writer.add_event(event_pb2.Event(wall_time=seconds, step=step, session_log=start))

    def put(self, record, seconds):
        if not self.begun:  # a former penstock-log may have written there
            self.begun = True
            self.again_from(record.step, seconds)
        summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=name, simple_value=value) for name, value in record.values.items()])
        for name, text in record.texts.items():
            summary.MergeFrom(text_pb(name, text if name == "memory" else plain(text)))
        if summary.value:
            self.writer.add_event(event_pb2.Event(wall_time=seconds, step=record.step, summary=summary))

    def flush(self):
        self.writer.flush()

    def close(self):
        self.writer.close()


def plain(text):
    """As Markdown that shows the text as it is."""
    return re.sub("^", "    ", text, flags=re.MULTILINE)
