import path from "node:path";

const top = path.resolve(import.meta.dirname, "../..");
/** A user that no other test uses. */
export const user = 64_055;

/**
 * Runs podnetd as a user with so many capabilities. What that user has to reach is mounted where it
 * can.
 */
export const unprivilegedWith = (...capabilities: readonly string[]) => {
  const set = ["-all", ...capabilities.map((each) => `+${each}`)].join(",");
  return [
    "unshare",
    "--mount",
    "sh",
    "-ec",
    `mkdir -p /run/podnet-checkout && mount -n --bind "$1" /run/podnet-checkout
  [ -e /run/podnet-tun ] || mknod -m 666 /run/podnet-tun c 10 200
  mount -n --bind /run/podnet-tun /dev/net/tun
  shift 2
  exec setpriv --reuid ${user} --regid ${user} --clear-groups --no-new-privs --inh-caps=${set} \
    --ambient-caps=${set} --bounding-set=${set} /run/podnet-checkout/bin/podnetd "$@"`,
    "sh",
    top,
  ] as const;
};

/** With one of them. */
export const unprivileged = unprivilegedWith("net_admin");
