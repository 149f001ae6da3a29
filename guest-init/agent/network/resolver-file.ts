import { PodnetError } from "../../../core/errors.ts";
import { encodeUtf8 } from "../../../core/utf8.ts";
import { type ResolverWords, renderResolver } from "../../protocol/resolver.ts";
import { makeDirectories, readText, replaceFile } from "../files.ts";
import { forContainers, hyperDirectory } from "../machine.ts";
import { failedWith, SysError, sys } from "../sys.ts";

const file = "/etc/resolv.conf";
/** Where systemd-resolved keeps what it writes itself, again and again. */
const resolvedDirectory = "/run/systemd/resolve/";

/**
 * Writes /etc/resolv.conf, and hyperstart's copy. Answers why it could not where the image cannot
 * be written.
 */
export function setResolver(dns: ResolverWords): string | undefined {
  const words = [...dns.servers, ...dns.search, ...dns.options];
  if (words.some((word) => !/^[\x21-\x7e]+$/.test(word)))
    throw new PodnetError("INVALID_ARGUMENT", "A word for resolv.conf is not usable", {
      field: "dns",
    });
  const text = renderResolver(dns);
  writeForContainers(encodeUtf8(text));
  return readText(file) === text && !isLink() ? undefined : writeResolver(text);
}

function writeForContainers(content: Uint8Array): void {
  if (!forContainers()) return;
  makeDirectories(hyperDirectory);
  replaceFile(`${hyperDirectory}/resolv.conf`, content);
}

/**
 * A link is replaced by a file, wherever it leads: systemd-resolved, whose link it mostly is, reads
 * from then on whom to ask in what it did not write itself (systemd-resolved(8)). Where nothing can
 * be written next to the link, what it leads to is.
 */
function writeResolver(text: string): string | undefined {
  const content = encodeUtf8(text);
  try {
    makeDirectories("/etc");
    replaceFile(file, content);
    return undefined;
  } catch (thrown) {
    if (!(thrown instanceof SysError) || !failedWith(thrown, "EROFS", "EPERM")) throw thrown;
    return writeBehind(content) ? undefined : thrown.code;
  }
}

function writeBehind(content: Uint8Array): boolean {
  const target = isLink() ? resolvePath(sys.readlink(file)) : undefined;
  if (target === undefined || target.startsWith(resolvedDirectory)) return false;
  try {
    makeDirectories(target.slice(0, target.lastIndexOf("/")));
    replaceFile(target, content);
    return true;
  } catch (thrown) {
    if (thrown instanceof SysError) return false;
    throw thrown;
  }
}

/** As seen from /etc. */
function resolvePath(target: string): string {
  const parts: string[] = [];
  for (const part of (target.startsWith("/") ? target : `/etc/${target}`).split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}

function isLink(): boolean {
  try {
    sys.readlink(file);
    return true;
  } catch (thrown) {
    if (thrown instanceof SysError) return false;
    throw thrown;
  }
}
