import { closeSync } from "node:fs";
import { perform } from "../../core/effect.ts";
import { recv, send, socket } from "../ffi/libc.ts";
import { checked } from "../syscall-error.ts";

// include/uapi/linux/netlink.h, linux/netfilter/nfnetlink.h, linux/netfilter/nf_tables.h (Linux
// 6.1)
const AF_NETLINK = 16;
const SOCK_RAW = 3;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
const NETLINK_NETFILTER = 12;
const NFNL_SUBSYS_NFTABLES = 10;
const NFT_MSG_NEWGEN = 15;
const NFT_MSG_GETGEN = 16;
const NFTA_GEN_ID = 1;
const NLM_F_REQUEST = 1;
const headerSize = 16;
/** struct nfgenmsg { u8 family; u8 version; be16 res_id; } */
const genmsgSize = 4;

/**
 * Counts the transactions that nf_tables has committed in the network namespace it was opened in.
 */
export interface GenerationCounter {
  /**
   * The number, modulo 2^32: it changes with every change of a rule, chain, set or table, by any
   * program, and costs a hundredth of listing the rules. Undefined where the kernel does not report
   * it: without nf_tables, or without CAP_NET_ADMIN.
   */
  read(): number | undefined;
  close(): void;
}

/**
 * Opens the counter of the calling thread's network namespace. Keep it open for repeated reads:
 * closing a socket of nf_tables waits until previously deleted objects are freed, some 10 ms
 * (nft_rcv_nl_event, Linux 6.1). Throws `SYSCALL_FAILED` when the socket cannot be opened.
 */
export function openGenerationCounter(): GenerationCounter {
  const what = "Cannot ask for the generation of nf_tables";
  const fd = perform("socket", "nfnetlink", () =>
    checked(
      socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_NETFILTER),
      "socket",
      what,
    ),
  );
  const request = getGeneration();
  const answer = new Uint8Array(4096);
  return {
    read() {
      perform("netlink", "nftables generation", () =>
        checked(send(fd, request, request.length, 0), "send", what),
      );
      // The kernel answers before send returns.
      const size = recv(fd, answer, answer.length, 0);
      return size < 0 ? undefined : parseGeneration(answer.subarray(0, size));
    },
    close: () => closeSync(fd),
  };
}

/** The generation, asked for once. */
export function nftablesGeneration(): number | undefined {
  const counter = openGenerationCounter();
  try {
    return counter.read();
  } finally {
    counter.close();
  }
}

function getGeneration(): Uint8Array {
  const bytes = new Uint8Array(headerSize + genmsgSize);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, bytes.length, true);
  view.setUint16(4, (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_GETGEN, true);
  view.setUint16(6, NLM_F_REQUEST, true);
  return bytes;
}

/** Reads the answer; undefined for an error, and for other messages. Pure. */
export function parseGeneration(bytes: Uint8Array): number | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (bytes.length < headerSize + genmsgSize) return undefined;
  if (view.getUint16(4, true) !== ((NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_NEWGEN)) return undefined;
  for (let at = headerSize + genmsgSize; at + 8 <= bytes.length; ) {
    const length = view.getUint16(at, true);
    if (length < 4) return undefined;
    // Netfilter's attributes are in network byte order; the top bits of the type are flags.
    if ((view.getUint16(at + 2, true) & 0x3fff) === NFTA_GEN_ID && length === 8)
      return view.getUint32(at + 4, false);
    at += (length + 3) & ~3;
  }
  return undefined;
}
