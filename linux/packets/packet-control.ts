/** A frame as it passed, of which `bytes` were kept. */
export interface Frame {
  /** Nanoseconds since 1970. */
  readonly timeNs: bigint;
  readonly bytes: Uint8Array;
  /** Bytes it had. */
  readonly length: number;
}

/** Metadata of a frame from the kernel, in addition to its bytes. */
export interface FrameControl {
  readonly timeNs: bigint | undefined;
  /** A VLAN tag that the kernel took out of the frame. */
  readonly tag: { readonly protocol: number; readonly control: number } | undefined;
}

// include/uapi/asm-generic/socket.h, include/uapi/linux/if_packet.h (Linux 6.1)
const SOL_SOCKET = 1;
const SCM_TIMESTAMPNS = 35;
const SOL_PACKET = 263;
const PACKET_AUXDATA = 8;
const TP_STATUS_VLAN_VALID = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID = 1 << 6;
const ETH_P_8021Q = 0x8100;
/** struct cmsghdr { size_t len; int level; int type; } */
const headerSize = 16;
/** Both addresses; the tag follows. */
const addressesSize = 12;

/**
 * Reads the control messages of one `recvmsg` on a packet socket. Unknown and truncated messages
 * are ignored.
 */
export function parseControl(control: Uint8Array): FrameControl {
  const view = new DataView(control.buffer, control.byteOffset, control.byteLength);
  let timeNs: bigint | undefined;
  let tag: FrameControl["tag"];
  for (let at = 0; at + headerSize <= control.length; ) {
    const size = Number(view.getBigUint64(at, true));
    if (size < headerSize || at + size > control.length) break;
    const level = view.getInt32(at + 8, true);
    const type = view.getInt32(at + 12, true);
    const data = at + headerSize;
    const length = size - headerSize;
    // struct timespec { s64 sec; s64 nsec; }
    if (level === SOL_SOCKET && type === SCM_TIMESTAMPNS && length >= 16)
      timeNs =
        BigInt.asUintN(63, view.getBigInt64(data, true)) * 1_000_000_000n +
        BigInt.asUintN(30, view.getBigInt64(data + 8, true));
    // struct tpacket_auxdata { u32 status, len, snaplen; u16 mac, net, vlan_tci, vlan_tpid; }
    if (level === SOL_PACKET && type === PACKET_AUXDATA && length >= 20) {
      const status = view.getUint32(data, true);
      const named = (status & TP_STATUS_VLAN_TPID_VALID) !== 0;
      const protocol = named ? view.getUint16(data + 18, true) : ETH_P_8021Q;
      if ((status & TP_STATUS_VLAN_VALID) !== 0)
        tag = { protocol, control: view.getUint16(data + 16, true) };
    }
    at += (size + 7) & ~7;
  }
  return { timeNs, tag };
}

/**
 * The frame as it was on the wire: with its VLAN tag in its place, cut to the number of bytes to
 * keep.
 */
export function withTag(
  kept: Uint8Array,
  length: number,
  { timeNs = BigInt(Date.now()) * 1_000_000n, tag }: FrameControl,
): Frame {
  if (tag === undefined || kept.length < addressesSize)
    return { timeNs, bytes: kept.slice(), length };
  const whole = new Uint8Array(kept.length + 4);
  whole.set(kept.subarray(0, addressesSize));
  const view = new DataView(whole.buffer);
  view.setUint16(addressesSize, tag.protocol);
  view.setUint16(addressesSize + 2, tag.control);
  whole.set(kept.subarray(addressesSize), addressesSize + 4);
  // A frame that was cut stays cut where it was to be.
  const cut = kept.length < length;
  return { timeNs, bytes: cut ? whole.subarray(0, kept.length) : whole, length: length + 4 };
}
