"""One TCP flow, as iperf3 makes it: `tcp-flow.py serve ADDRESS` receives one and prints its bit/s; `tcp-flow.py send ADDRESS SECONDS`."""
import socket
import sys
import time

PORT = 5201
BLOCK = 1 << 20

if sys.argv[1] == "serve":
    listener = socket.create_server((sys.argv[2], PORT))
    print("ready", flush=True)
    connection, _ = listener.accept()
    buffer = bytearray(BLOCK)
    total = connection.recv_into(buffer)
    begin = time.monotonic()
    while size := connection.recv_into(buffer):
        total += size
    print(total * 8 / (time.monotonic() - begin), flush=True)
else:
    connection = socket.create_connection((sys.argv[2], PORT))
    block = bytes(BLOCK)
    end = time.monotonic() + float(sys.argv[3])
    while time.monotonic() < end:
        connection.sendall(block)
    connection.close()
