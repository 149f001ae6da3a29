import type { Ip } from "../../../core/address.ts";
import { encodeUtf8 } from "../../../core/utf8.ts";
import { makeDirectories, replaceFile } from "../files.ts";
import { SysError, sys } from "../sys.ts";

/** The lines of /etc/hosts that container runtimes write. */
const usual = [
  "127.0.0.1\tlocalhost",
  "::1\tlocalhost ip6-localhost ip6-loopback",
  "fe00::\tip6-localnet",
  "ff00::\tip6-mcastprefix",
  "ff02::1\tip6-allnodes",
  "ff02::2\tip6-allrouters",
] as const;

/** The content of /etc/hosts: a pod finds its own name at its addresses. */
export const hostsText = (name: string, addresses: readonly Ip[]): string =>
  [...usual, ...addresses.map((address) => `${address}\t${name}`), ""].join("\n");

/** Writes /etc/hosts and /etc/hostname over those of the image; failures are on the console. */
export function writeHostFiles(name: string, addresses: readonly Ip[]): void {
  for (const [path, text] of [
    ["/etc/hosts", hostsText(name, addresses)],
    ["/etc/hostname", `${name}\n`],
  ] as const) {
    try {
      makeDirectories("/etc");
      replaceFile(path, encodeUtf8(text));
    } catch (thrown) {
      if (!(thrown instanceof SysError)) throw thrown;
      sys.log(thrown.message);
    }
  }
}
