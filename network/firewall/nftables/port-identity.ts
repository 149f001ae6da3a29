/**
 * The priority of a packet that came in by a port of podnet: bits that no class of traffic control
 * has here, and thirty bits of a hash of the port's interface index. The guard at the ports writes
 * it, and tables of `inet`, which only see the bridge, read it. Unlike a mark, no routing rule and
 * no foreign chain looks at it; unlike a name, an index is not used again soon. The kernel clears
 * it where a packet is routed (IPv4) and where it enters another namespace.
 */
const bits = 0x4000_0000;
const mask = 0xc000_0000;
const seed = 0x706f_646e;

/** Matches packets that came in by a port of podnet. */
export const fromPort = `meta priority and 0x${mask.toString(16)} == 0x${bits.toString(16)}`;

/** Notes the port that a frame has come in by. */
export const notePort = `meta priority set jhash iif mod ${bits} seed 0x${seed.toString(16)} offset ${bits}`;

/** A queue, or another host, is not to see it. */
export const forgetPort = `${fromPort} meta priority set none`;

/**
 * The priority that `notePort` writes for a port with this index: Bob Jenkins' hash of four bytes
 * (jhash of include/linux/jhash.h), scaled to thirty bits. Pure.
 */
export function portIdentity(index: number): number {
  const rotated = (value: number, by: number): number => (value << by) | (value >>> (32 - by));
  const initial = (0xdead_beef + 4 + seed) | 0;
  let [a, b, c] = [(initial + index) | 0, initial, initial];
  c = ((c ^ b) - rotated(b, 14)) | 0;
  a = ((a ^ c) - rotated(c, 11)) | 0;
  b = ((b ^ a) - rotated(a, 25)) | 0;
  c = ((c ^ b) - rotated(b, 16)) | 0;
  a = ((a ^ c) - rotated(c, 4)) | 0;
  b = ((b ^ a) - rotated(a, 14)) | 0;
  c = ((c ^ b) - rotated(b, 24)) | 0;
  return bits + (c >>> 2);
}
