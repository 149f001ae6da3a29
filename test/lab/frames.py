"""Frames of one's own making, and all that pass a link: `send LINK JSON...`, `hear LINK`.

A frame to send: dst, src (MACs), saddr, daddr, and `udp` [sport, dport] with `text`, or `icmp` [type, code] with `text`.
`vlans` are its tags. `raw` is a frame as it is, in hexadecimal digits. With `sources` it is sent so many times, from one MAC after the other.
What is heard is printed a line each, as hexadecimal digits, after the line "listening".
"""
import json
import socket
import struct
import sys

ALL = 0x0003


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(frame):
    six = ":" in frame["saddr"]
    family = socket.AF_INET6 if six else socket.AF_INET
    source, destination = (socket.inet_pton(family, frame[key]) for key in ("saddr", "daddr"))
    text = frame.get("text", "").encode()
    if "udp" in frame:
        number = 17
        inner = struct.pack(">HHHH", *frame["udp"], 8 + len(text), 0) + text
        at = 6
    else:
        number = 58 if six else 1
        inner = struct.pack(">BBH", *frame["icmp"], 0) + text
        at = 2
    pseudo = b"" if number == 1 else source + destination + struct.pack(">II", len(inner), number)
    inner = inner[:at] + struct.pack(">H", checksum(pseudo + inner) or 0xFFFF) + inner[at + 2 :]
    if six:
        return 0x86DD, struct.pack(">IHBB", 6 << 28, len(inner), number, 255) + source + destination + inner
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(inner), 1, 0, 64, number, 0) + source + destination
    return 0x0800, head[:10] + struct.pack(">H", checksum(head)) + head[12:] + inner


def mac(text):
    return bytes.fromhex(text.replace(":", ""))


link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
link.bind((sys.argv[2], 0 if sys.argv[1] == "send" else ALL))
if sys.argv[1] == "send":
    for frame in map(json.loads, sys.argv[3:]):
        if "raw" in frame:
            link.send(bytes.fromhex(frame["raw"]))
            continue
        kind, rest = packet(frame)
        source = mac(frame["src"])
        tags = b"".join(struct.pack(">HH", 0x8100, vlan) for vlan in frame.get("vlans", []))
        for i in range(frame.get("sources", 1)):
            link.send(mac(frame["dst"]) + source + tags + struct.pack(">H", kind) + rest)
            source = (int.from_bytes(source, "big") + 1).to_bytes(6, "big")
else:
    print("listening", flush=True)
    while True:
        print(link.recv(65535).hex(), flush=True)
