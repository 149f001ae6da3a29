/**
 * Selects the frames that a packet socket receives, as a program for the kernel (socket(7),
 * SO_ATTACH_FILTER; classic BPF as in Documentation/networking/filter.rst). Other frames cost this
 * process nothing. Pure.
 */
export type FilterLine =
  /** Where a jump leads. */
  | { readonly label: string }
  /** Loads a number: of the frame's bytes, or of what the kernel knows of it. */
  | { readonly load: "byte" | "half"; readonly at: number | keyof typeof known }
  /** Loads a half, `at` bytes after the IPv4 header that begins at 14. */
  | { readonly load: "half"; readonly afterIpv4: number }
  /** Goes on with the next line, or at `else`. */
  | { readonly equals: number; readonly else: string }
  | { readonly differs: number; readonly else: string }
  /** Continues when all of these bits are clear. */
  | { readonly lacks: number; readonly else: string }
  | { readonly goto: string }
  /** Accepts this many bytes of the frame; 0 rejects it. */
  | { readonly take: number };

// include/uapi/linux/filter.h (Linux 6.1): SKF_AD_OFF, SKF_AD_PKTTYPE, SKF_AD_VLAN_TAG_PRESENT
const ancillary = 0xffff_f000;
const known = { packetType: ancillary + 4, vlanTag: ancillary + 48 } as const;

// include/uapi/linux/bpf_common.h: class | size or operation | mode
const LD_H_ABS = 0x28;
const LD_B_ABS = 0x30;
const LD_H_IND = 0x48;
const LDX_B_MSH = 0xb1;
const JMP_JA = 0x05;
const JMP_JEQ_K = 0x15;
const JMP_JSET_K = 0x45;
const RET_K = 0x06;

/** Kind of a frame that leaves by the link: include/uapi/linux/if_packet.h. */
export const PACKET_OUTGOING = 4;

/**
 * Instructions: struct sock_filter { u16 code; u8 jt, jf; u32 k; }. Throws `RangeError` for a label
 * that is not there.
 */
export function assembleFilter(lines: readonly FilterLine[]): Uint8Array {
  const labels = new Map<string, number>();
  let count = 0;
  for (const line of lines) {
    if ("label" in line) labels.set(line.label, count);
    else count += "afterIpv4" in line ? 2 : 1;
  }
  const bytes = new Uint8Array(count * 8);
  const view = new DataView(bytes.buffer);
  let at = 0;
  const put = (code: number, k: number, jumps: readonly [number, number] = [0, 0]): void => {
    view.setUint16(at * 8, code, true);
    bytes.set(jumps, at * 8 + 2);
    view.setUint32(at * 8 + 4, k, true);
    at++;
  };
  const to = (label: string): number => {
    const target = labels.get(label);
    if (target === undefined || target <= at) throw new RangeError(`No label ${label} follows`);
    return target - at - 1;
  };
  for (const line of lines) {
    if ("afterIpv4" in line) {
      put(LDX_B_MSH, 14);
      put(LD_H_IND, 14 + line.afterIpv4);
    } else if ("load" in line) {
      const from = typeof line.at === "number" ? line.at : known[line.at];
      put(line.load === "byte" ? LD_B_ABS : LD_H_ABS, from);
    } else if ("equals" in line) put(JMP_JEQ_K, line.equals, [0, to(line.else)]);
    else if ("differs" in line) put(JMP_JEQ_K, line.differs, [to(line.else), 0]);
    else if ("lacks" in line) put(JMP_JSET_K, line.lacks, [to(line.else), 0]);
    else if ("goto" in line) put(JMP_JA, to(line.goto));
    else if ("take" in line) put(RET_K, line.take);
  }
  return bytes;
}
