import { Writer } from "./writer.ts";

/** NDA_*, NTF_*, NUD_*: include/uapi/linux/neighbour.h (Linux 6.1). */
export const NDA_DST = 1;
export const NDA_LLADDR = 2;
export const NDA_VLAN = 5;
export const NDA_PORT = 6;
export const NDA_VNI = 7;
export const NDA_IFINDEX = 8;
export const NDA_MASTER = 9;
export const NDA_PROTOCOL = 12;

export const NTF_SELF = 0x02;
export const NTF_MASTER = 0x04;
export const NTF_PROXY = 0x08;
export const NTF_EXT_LEARNED = 0x10;
export const NTF_STICKY = 0x40;
export const NTF_ROUTER = 0x80;

export const NUD_PERMANENT = 0x80;
export const NUD_NOARP = 0x40;
export const NUD_REACHABLE = 0x02;

// struct ndmsg: u8 family, u8, u16, s32 index, u16 state, u8 flags, u8 type.
export const ndmsgSize = 12;

export function ndmsg(family: number, index: number, state: number, flags: number): Writer {
  return new Writer().u8(family).u8(0).u16(0).i32(index).u16(state).u8(flags).u8(0);
}
