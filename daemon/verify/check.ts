/** The independent check that observed it, which shares no code with podnet. */
export type Source = "netlink" | "qemu-qmp" | "iptables-save" | "nft" | "proc" | "guest" | "cni";

/** One thing looked at. */
export interface Check {
  /** The observed property, such as `link pn2abcdefghij0 master`. */
  readonly subject: string;
  readonly source: Source;
  readonly wanted: string;
  readonly found: string;
  readonly ok: boolean;
}

export const absent = "absent";

type Value = string | number | boolean | undefined;

const shown = (value: Value): string =>
  value === undefined || value === ""
    ? absent
    : value === true
      ? "yes"
      : value === false
        ? "no"
        : String(value);

/** Makes what one source saw a check. */
export function checker(source: Source): (subject: string, wanted: Value, found: Value) => Check {
  return (subject, wanted, found) => ({
    subject,
    source,
    wanted: shown(wanted),
    found: shown(found),
    ok: shown(wanted) === shown(found),
  });
}
