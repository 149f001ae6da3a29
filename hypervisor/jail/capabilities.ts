/**
 * The capabilities that podnetd itself needs for jails, by the numbers of linux/capability.h. Each
 * was found by leaving it out, as test/vm/jail-privileges.test.ts still does.
 */
export const jailCapabilities = {
  /** The run directory gets the machine's group. */
  CAP_CHOWN: 0,
  /** QEMU is another user. */
  CAP_KILL: 5,
  CAP_SETGID: 6,
  CAP_SETUID: 7,
  /** To empty the bounding set. */
  CAP_SETPCAP: 8,
  /** Namespaces and mounts. */
  CAP_SYS_ADMIN: 21,
} as const;

/**
 * The capabilities of `wanted` that programs started from here would not have, by the text of
 * /proc/self/status: those of root are the bounding set's, those of any other user the ambient
 * ones. Pure.
 */
export function missingCapabilities(
  status: string,
  wanted: Readonly<Record<string, number>> = jailCapabilities,
): readonly string[] {
  const root = /^Uid:\s+\d+\s+0\s/m.test(status);
  const effective = maskOf(status, "CapEff");
  const inherited = maskOf(status, root ? "CapBnd" : "CapAmb");
  return Object.entries(wanted)
    .filter(([, bit]) => (((effective & inherited) >> BigInt(bit)) & 1n) === 0n)
    .map(([name]) => name);
}

function maskOf(status: string, set: string): bigint {
  const digits = new RegExp(`^${set}:\\s*([0-9a-f]+)$`, "m").exec(status)?.[1];
  return digits === undefined ? 0n : BigInt(`0x${digits}`);
}
