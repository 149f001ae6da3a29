import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { type OwnerId, ownerFromBytes } from "../../../overlay/owner.ts";

/**
 * Which podnet host this is: of its machine id, its hardware (a clone has another) and where its
 * state is kept, none of which a reboot or a lost state changes.
 */
export function ownerId(stateDir: string): OwnerId {
  const known = ["/etc/machine-id", "/sys/class/dmi/id/product_uuid"].map(textOf);
  const text = ["podnet overlay", ...known, stateDir].join("\0");
  return ownerFromBytes(createHash("sha256").update(text).digest());
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "latin1").trim();
  } catch {
    return "";
  }
}
