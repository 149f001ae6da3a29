import type { Architecture } from "../../../hypervisor/architecture.ts";
import { systemCalls } from "./system-calls.ts";

/** What the kernel does about a system call: seccomp(2)'s own numbers. */
export const answer = {
  allow: 0x7fff0000,
  log: 0x7ffc0000,
  trap: 0x00030000,
  killThread: 0,
  killProcess: 0x80000000,
  /** Fails with this error number. */
  fail: (errno: number): number => 0x00050000 | errno,
} as const;

const enosys = 38;

export type Comparison = "==" | "!=" | "<" | "<=" | ">=" | ">" | "masked";

/** What an argument of a system call must be, 64 bits. */
export interface Argument {
  readonly index: number;
  readonly is: Comparison;
  readonly value: bigint;
  /** With "masked": the bits of the argument that are compared. */
  readonly mask?: bigint;
}

export interface Rule {
  readonly names: readonly string[];
  readonly answer: number;
  /** All must agree. */
  readonly args?: readonly Argument[];
}

/** The first rule that agrees decides. */
export interface Profile {
  readonly otherwise: number;
  readonly rules: readonly Rule[];
  /** About calls of a kernel that is newer than podnet. */
  readonly unknown: number;
}

/** One instruction of the kernel's (struct sock_filter). */
interface Instruction {
  readonly code: number;
  readonly yes?: number;
  readonly no?: number;
  readonly k: number;
}

/** Codes of classic BPF. */
const op = {
  load: 0x20,
  and: 0x54,
  jump: 0x05,
  equal: 0x15,
  above: 0x25,
  atLeast: 0x35,
  end: 0x06,
} as const;
/** Places in struct seccomp_data. */
const at = { number: 0, architecture: 4, arguments: 16 } as const;
/** AUDIT_ARCH_* of audit(7). */
const audit: Readonly<Record<Architecture, number>> = { x86_64: 0xc000003e, arm64: 0xc00000b7 };
/** Second names of x86_64's calls, with 32 bits. */
const firstOfX32 = 0x40000000;
const instructionLength = 8;

const end = (k: number): Instruction => ({ code: op.end, k });
const high = (value: bigint): number => Number((value >> 32n) & 0xffffffffn);
const low = (value: bigint): number => Number(value & 0xffffffffn);

/**
 * The instructions of a profile for one architecture; names that it does not have are left out. A
 * program of another one, of 32 bits say, finds no calls at all (ENOSYS). Pure.
 */
export function filterOf(profile: Profile, architecture: Architecture): Uint8Array {
  const numbers = systemCalls[architecture];
  const rules = new Map<number, Rule[]>();
  for (const rule of profile.rules)
    for (const name of rule.names) {
      const number = numbers.get(name);
      if (number === undefined) continue;
      const ofNumber = rules.get(number);
      if (ofNumber === undefined) rules.set(number, [rule]);
      else ofNumber.push(rule);
    }
  const newest = Math.max(...numbers.values());
  const instructions: Instruction[] = [
    { code: op.load, k: at.architecture },
    { code: op.equal, k: audit[architecture], yes: 1 },
    end(answer.fail(enosys)),
    { code: op.load, k: at.number },
    { code: op.atLeast, k: firstOfX32, no: 1 },
    end(answer.fail(enosys)),
    { code: op.above, k: newest, no: 1 },
    end(profile.unknown),
  ];
  const plain: [number, number][] = [];
  for (const number of [...numbers.values()].toSorted((a, b) => a - b)) {
    const ofNumber = rules.get(number) ?? [];
    const [first] = ofNumber;
    if (ofNumber.some(({ args = [] }) => args.length > 0) && (first?.args ?? []).length > 0)
      instructions.push(...conditional(number, ofNumber, profile.otherwise));
    else plain.push([number, first?.answer ?? profile.otherwise]);
  }
  instructions.push(...ranges(plain, profile.otherwise), end(profile.otherwise));
  return encode(instructions);
}

/** Neighbours with one answer are compared as one, and numbers between them that no call has. */
function ranges(plain: readonly [number, number][], otherwise: number): Instruction[] {
  const all: { from: number; to: number; answer: number }[] = [];
  for (const [number, wanted] of plain) {
    const last = all.at(-1);
    if (last?.answer === wanted) last.to = number;
    else all.push({ from: number, to: number, answer: wanted });
  }
  return all
    .filter((range) => range.answer !== otherwise)
    .flatMap(({ from, to, answer: wanted }) => [
      { code: op.atLeast, k: from, no: 2 },
      { code: op.above, k: to, yes: 1 },
      end(wanted),
    ]);
}

/** The rules of one call, of which some look at its arguments. */
function conditional(number: number, rules: readonly Rule[], otherwise: number): Instruction[] {
  const body = [
    ...rules.flatMap(({ args = [], answer: wanted }) => [...compared(args), end(wanted)]),
    end(otherwise),
  ];
  return [{ code: op.equal, k: number, yes: 1 }, { code: op.jump, k: body.length }, ...body];
}

/** Goes on behind the next instruction but these when one does not agree. */
function compared(args: readonly Argument[]): Instruction[] {
  let rest: Instruction[] = [];
  // From the last on: how far it is to the end is known then.
  for (const arg of args.toReversed()) rest = [...comparison(arg, rest.length), ...rest];
  return rest;
}

/** One argument; `after` instructions follow until the rule's answer. */
function comparison({ index, is, value, mask }: Argument, after: number): Instruction[] {
  const place = at.arguments + 8 * index;
  const [loadHigh, loadLow] = [place + 4, place].map((k) => ({ code: op.load, k }));
  if (loadHigh === undefined || loadLow === undefined) return [];
  /** To behind the rule's answer, with so many instructions of this argument left. */
  const past = (left: number): number => left + after + 1;
  const [h, l] = [high(value), low(value)];
  switch (is) {
    case "==":
      return [
        loadHigh,
        { code: op.equal, k: h, no: past(2) },
        loadLow,
        { code: op.equal, k: l, no: past(0) },
      ];
    case "!=":
      return [
        loadHigh,
        { code: op.equal, k: h, no: 2 },
        loadLow,
        { code: op.equal, k: l, yes: past(0) },
      ];
    case ">":
    case ">=":
      return [
        loadHigh,
        { code: op.above, k: h, yes: 3 },
        { code: op.equal, k: h, no: past(2) },
        loadLow,
        { code: is === ">" ? op.above : op.atLeast, k: l, no: past(0) },
      ];
    case "<":
    case "<=":
      return [
        loadHigh,
        { code: op.above, k: h, yes: past(3) },
        { code: op.equal, k: h, no: 2 },
        loadLow,
        { code: is === "<" ? op.atLeast : op.above, k: l, yes: past(0) },
      ];
    default: {
      const bits = mask ?? 0n;
      return [
        loadHigh,
        { code: op.and, k: high(bits) },
        { code: op.equal, k: h, no: past(3) },
        loadLow,
        { code: op.and, k: low(bits) },
        { code: op.equal, k: l, no: past(0) },
      ];
    }
  }
}

/** As both architectures have it: the lowest byte first. */
function encode(instructions: readonly Instruction[]): Uint8Array {
  const bytes = new Uint8Array(instructions.length * instructionLength);
  const view = new DataView(bytes.buffer);
  for (const [i, { code, yes = 0, no = 0, k }] of instructions.entries()) {
    const from = i * instructionLength;
    view.setUint16(from, code, true);
    view.setUint8(from + 2, yes);
    view.setUint8(from + 3, no);
    view.setUint32(from + 4, k >>> 0, true);
  }
  return bytes;
}
