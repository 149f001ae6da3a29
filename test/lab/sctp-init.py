"""SCTP without a kernel that has it: `send DST PORT...` sends INITs, `hear 4|6` prints where the next one came from."""
import socket
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def init(port):
    chunk = struct.pack(">BBHIIHHI", 1, 0, 20, 0x1234, 65536, 1, 1, 1)
    head = struct.pack(">HHI", 40000, port, 0)
    return head + struct.pack("<I", crc32c(head + bytes(4) + chunk)) + chunk


def family(text):
    return socket.AF_INET6 if ":" in text or text == "6" else socket.AF_INET


raw = socket.socket(family(sys.argv[2]), socket.SOCK_RAW, 132)
if sys.argv[1] == "send":
    for target, port in zip(sys.argv[2::2], sys.argv[3::2]):
        raw.sendto(init(int(port)), (target, 0))
else:
    raw.settimeout(30)
    print("listening", flush=True)
    try:
        packet, source = raw.recvfrom(2048)
        start = 0 if sys.argv[2] == "6" else (packet[0] & 15) * 4
        print(source[0], struct.unpack(">H", packet[start + 2 : start + 4])[0])
    except TimeoutError:
        print("silence")
