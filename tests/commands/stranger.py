"""stranger.py MODE PORT [ARGUMENT]: what the control port of a run must refuse (tests/commands/secret.t). STRANGER_HOST: at which address
[127.0.0.1].

garbage       sends bytes that are no handshake
silent        connects and says nothing until it is refused; prints the seconds
flood         opens 40 connections and holds them until they are refused
reflect       sends the first host's own proof back
record FILE   passes one connection on to PORT, listens at PORT + 1, and keeps what the connecting side sends
replay FILE   sends what was kept
random SECONDS SEED   sends handshakes that are mutated, cut or followed by frames of random bytes
fabric SECONDS SEED   sends to a port of libfabric bytes that are random, or begin as its own messages do
"""
import os
import random
import socket
import struct
import sys
import threading
import time

HELLO, PROOF = 96, 32
host = os.environ.get("STRANGER_HOST", "127.0.0.1")
mode, port = sys.argv[1], int(sys.argv[2])


def connect():
    for _ in range(200):
        try:
            return socket.create_connection((host, port), timeout=20)
        except OSError:
            time.sleep(0.05)
    sys.exit("nothing listens at the port")


def receive(link, count):
    got = b""
    while len(got) < count:
        part = link.recv(count - len(got))
        if not part:
            break
        got += part
    return got


def until_refused(link):
    try:
        while link.recv(4096):
            pass
    except ConnectionError:
        pass


def garbage():
    link = connect()
    link.sendall(bytes(range(256)) * 16)
    until_refused(link)


def silent():
    link, start = connect(), time.monotonic()
    until_refused(link)
    print("%.1f" % (time.monotonic() - start))


def flood():
    links = [connect() for _ in range(40)]
    for link in links[:20]:
        until_refused(link)


def reflect():
    link = connect()
    link.sendall(b"x" * HELLO)
    answer = receive(link, HELLO + PROOF)
    link.sendall(answer[HELLO:])
    until_refused(link)


def forward(source, target, kept):
    try:
        while data := source.recv(65536):
            if kept:
                kept.write(data)
                kept.flush()
            target.sendall(data)
    except OSError:
        pass
    target.close()


def record():
    server = socket.create_server(("", port + 1))
    client, _ = server.accept()
    link = connect()
    link.settimeout(None)
    with open(sys.argv[3], "wb") as kept:
        back = threading.Thread(target=forward, args=(link, client, None), daemon=True)
        back.start()
        forward(client, link, kept)


def replay():
    with open(sys.argv[3], "rb") as kept:
        data = kept.read()
    link = connect()
    try:
        link.sendall(data)
    except ConnectionError:
        pass
    until_refused(link)


def random_bytes():
    choose, end = random.Random(int(sys.argv[4])), time.monotonic() + float(sys.argv[3])
    count = 0
    while time.monotonic() < end:
        link = connect()
        link.settimeout(0.05)
        hello = bytearray(b"penstock" + bytes(choose.choices(range(256), k=HELLO - 8)))
        parts = [hello, choose.randbytes(PROOF), choose.randbytes(choose.randrange(400))]
        data = b"".join(parts)[: choose.choice((0, 1, HELLO - 1, HELLO, HELLO + PROOF - 1, HELLO + PROOF, 500))]
        try:
            at = choose.randrange(len(data) + 1)
            link.sendall(data[:at])
            if choose.random() < 0.3:
                link.recv(64)
            link.sendall(data[at:])
            if choose.random() < 0.3:
                link.recv(4096)
            if choose.random() < 0.2:
                link.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        if choose.random() < 0.2:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        link.close()
        count += 1
    print(count)


def fabric():
    choose, end = random.Random(int(sys.argv[4])), time.monotonic() + float(sys.argv[3])
    count = 0
    while time.monotonic() < end:
        try:
            link = socket.create_connection((host, port), timeout=1)
        except OSError:
            break
        header = struct.pack("!BBH", choose.choice((3, choose.randrange(256))), choose.randrange(8), choose.choice((0, 16, 64, 65535)))
        try:
            link.sendall(choose.choice((b"", header)) + choose.randbytes(choose.choice((0, 1, 16, 100, 5000))))
            link.settimeout(0.02)
            if choose.random() < 0.5:
                link.recv(4096)
                link.sendall(choose.randbytes(choose.randrange(2000)))
        except OSError:
            pass
        if choose.random() < 0.3:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        link.close()
        count += 1
        time.sleep(0.01)
    print(count)


{"garbage": garbage, "fabric": fabric, "silent": silent, "flood": flood, "reflect": reflect, "record": record, "replay": replay,
 "random": random_bytes}[mode]()
