import { assertNever } from "../../core/brand.ts";
import { encodeUtf8 } from "../../core/utf8.ts";
import { noBytes } from "../protocol/bytes.ts";
import { type Step, encodeStepResults, parseSteps } from "../protocol/steps.ts";
import { readFile, writeInto } from "./files.ts";
import { addRandomness, setHostname } from "./machine.ts";
import { sendPacket } from "./network/announce.ts";
import type { Netlink } from "./network/netlink.ts";
import { replaceResolver } from "./network/resolver-file.ts";
import type { Reply } from "./reply.ts";
import { SysError, failedWith, sys } from "./sys.ts";

/** The parts of the agent that steps act on. */
interface Actor {
  readonly netlink: Netlink;
  beTwin(epoch: string, machineId: string): void;
}

/** STEPS: does what the host has decided, until something fails. */
export function carryOut(payload: Uint8Array, actor: Actor): Reply {
  const done: Uint8Array[] = [];
  let errno = 0;
  try {
    for (const step of parseSteps(payload)) done.push(resultOf(step, actor));
  } catch (thrown) {
    if (!(thrown instanceof SysError)) throw thrown;
    errno = thrown.errno;
  }
  return { payload: encodeStepResults({ done, errno }) };
}

function resultOf(step: Step, { netlink, beTwin }: Actor): Uint8Array {
  switch (step.kind) {
    case "entropy":
      addRandomness(step.bytes);
      return noBytes;
    case "clock":
      if (step.ms !== undefined) sys.setClock(step.ms);
      return encodeUtf8(String(Math.floor(sys.clock())));
    case "hostname":
      setHostname(step.name);
      return noBytes;
    case "resolver":
      replaceResolver(step.text);
      return noBytes;
    case "write-file":
      writeInto(step.path, step.text);
      return noBytes;
    case "read-file":
      return contentOf(step.path);
    case "netlink":
      return netlink.passOn(step.requests);
    case "packet":
      sendPacket(step);
      return noBytes;
    case "twin":
      beTwin(step.epoch, step.machineId);
      return noBytes;
    default:
      return assertNever(step);
  }
}

function contentOf(path: string): Uint8Array {
  try {
    return readFile(path);
  } catch (thrown) {
    if (failedWith(thrown, "ENOENT")) return noBytes;
    throw thrown;
  }
}
