# Sends datagrams, each of them from another port, and so the first of another flow:
# flows.py TO COUNT FIRST_PORT
import socket
import sys

to, count, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
family = socket.AF_INET6 if ":" in to else socket.AF_INET
for port in range(first, first + count):
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        one.bind(("", port))
        try:
            one.sendto(b"flow", (to, 9))
        except OSError:
            pass  # What was sent before may have been refused.
