"""Sends one IPv6 router advertisement, of a default route alone, out of the named link."""
import socket
import struct
import sys

raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
index = socket.if_nametoindex(sys.argv[1])
# Type, code, checksum (the kernel's), hop limit, flags, lifetime of the router, reachable time, retransmission time.
raw.sendto(struct.pack(">BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0), ("ff02::1", 0, 0, index))
