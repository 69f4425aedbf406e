"""pack.py: pack.py OUT VERSION FILE...: makes a program of one file, which Python runs, of Python files. The same files give the
same bytes."""
import io
import os
import sys
import zipfile


def main(out, version, paths):
    texts = {"version.py": f'VERSION = "{version}"\n'.encode()}
    for path in paths:
        with open(path, "rb") as file:
            texts[os.path.basename(path)] = file.read()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(texts):
            archive.writestr(zipfile.ZipInfo(name), texts[name], zipfile.ZIP_DEFLATED)
    with open(out + ".new", "wb") as file:
        file.write(b"#!/usr/bin/env python3\n" + packed.getvalue())  # offsets in the archive do not count the first line
    os.chmod(out + ".new", 0o755)
    os.replace(out + ".new", out)


main(sys.argv[1], sys.argv[2], sys.argv[3:])
