import {
  encodeData,
  encodeGoAway,
  encodePing,
  encodeReply,
  encodeReset,
  SpdyDecoder,
  SpdyError,
  type SpdyFrame,
} from "../../../daemon/cri/streaming/spdy-frames.ts";
import {
  encodeClose,
  encodeFrame,
  WebSocketDecoder,
  WebSocketError,
} from "../../../daemon/cri/streaming/websocket-frames.ts";
import { choosing, chosen, type Target } from "../engine/target.ts";

const folder = "daemon/cri/streaming";

/** What a decoder makes of bytes that come in parts of this size; its refusal is the last. */
function decoded<T>(
  decoder: { push(bytes: Buffer): Iterable<T> },
  bytes: Uint8Array,
  size: number,
  textOf: (frame: T) => string,
): string[] {
  const found: string[] = [];
  try {
    for (let at = 0; at < bytes.length; at += size)
      for (const frame of decoder.push(Buffer.from(bytes.subarray(at, at + size))))
        found.push(textOf(frame));
  } catch (thrown) {
    if (!(thrown instanceof SpdyError) && !(thrown instanceof WebSocketError)) throw thrown;
    found.push(thrown.message);
  }
  return found;
}

function same(whole: readonly string[], parts: readonly string[]): void {
  if (whole.join("\n") !== parts.join("\n"))
    throw new Error(`Whole: ${whole.join("|")}. In parts: ${parts.join("|")}`);
}

/** Data comes in parts: only what they are together counts. */
function joined(texts: readonly string[]): string[] {
  const all: string[] = [];
  for (const text of texts) {
    const [head = "", data = ""] = text.split("=");
    const isData = text.startsWith("data ");
    if (isData && data === "" && !head.endsWith("fin")) continue;
    const last = all.at(-1);
    if (isData && last?.startsWith(`${head.replace(/ fin$/, "")}=`) === true)
      all[all.length - 1] = `${head}=${last.split("=")[1]}${data}`;
    else all.push(text);
  }
  return all;
}

function spdyText(frame: SpdyFrame): string {
  if (frame.kind === "data")
    return `data ${frame.stream}${frame.fin ? " fin" : ""}=${frame.data.toString("hex")}`;
  if (!("block" in frame)) return JSON.stringify(frame);
  return JSON.stringify({ ...frame, block: frame.block.toString("hex") });
}

/** A frame as a client sends it. */
function masked(frame: Buffer): Buffer {
  const head = frame.length > 127 ? 4 : 2;
  const bytes = Buffer.concat([frame.subarray(0, head), Buffer.alloc(4), frame.subarray(head)]);
  bytes[1] = (bytes[1] as number) | 0x80;
  return bytes;
}

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(" ", ""), "hex");

/** Frames of Kubernetes' streams: from kubelet, and whoever has a URL. */
export const streams: Target = {
  name: "streams",
  files: [`${folder}/spdy-frames.ts`, `${folder}/websocket-frames.ts`],
  except: [
    "encodeControl",
    "numbers",
    "encodeData",
    "encodeReply",
    "encodeReset",
    "encodePing",
    "encodeGoAway",
    "encodeFrame",
    "encodeClose",
  ],
  seeds: [
    chosen(0, hex("80030001 01000012 00000001 00000000 0000 78bbe3c6a7c20300")),
    chosen(0, hex("80030008 00000006 00000001 0102")),
    chosen(0, hex("80030004 00000008 00000000 00000000")),
    chosen(0, hex("80030009 00000008 00000001 00010000")),
    chosen(0, Buffer.concat([encodeReply(1, Buffer.from("x")), encodeReset(3, 1), encodePing(1)])),
    chosen(0, Buffer.concat([encodeData(1, Buffer.from("data"), true), encodeGoAway(1)])),
    chosen(0, hex("80030001 ffffffff")),
    chosen(0, hex("80020001 00000000")),
    chosen(0, hex("80030001 00000002 0001")),
    chosen(1, masked(encodeFrame(2, Buffer.from("\u0001data")))),
    chosen(1, masked(encodeFrame(2, Buffer.alloc(300, "x")))),
    chosen(1, masked(encodeClose(1000))),
    chosen(1, hex("82ff 0000000000000002 00000000 0102")),
    chosen(1, hex("82ff 0000000100000000 00000000")),
    chosen(1, hex("c281 00000000 00")),
    chosen(1, hex("8201 00")),
    chosen(1, hex("0980 00000000")),
  ],
  run: choosing([
    (bytes) => {
      const whole = joined(decoded(new SpdyDecoder(), bytes, bytes.length || 1, spdyText));
      same(whole, joined(decoded(new SpdyDecoder(), bytes, 1, spdyText)));
    },
    (bytes) => {
      const textOf = (frame: { opcode: number; fin: boolean; data: Buffer }): string =>
        `${frame.opcode} ${frame.fin} ${frame.data.toString("hex")}`;
      const whole = decoded(new WebSocketDecoder(), bytes, bytes.length || 1, textOf);
      same(whole, decoded(new WebSocketDecoder(), bytes, 1, textOf));
    },
  ]),
};
