import path from "node:path";

const top = path.resolve(import.meta.dirname, "../..");
/** A user who is nobody else. */
export const user = 64_055;

/** Runs podnetd as a user with one capability. What that user has to reach is mounted where it can. */
export const unprivileged = [
  "unshare",
  "--mount",
  "sh",
  "-ec",
  `mkdir -p /run/podnet-checkout && mount -n --bind "$1" /run/podnet-checkout
  [ -e /run/podnet-tun ] || mknod -m 666 /run/podnet-tun c 10 200
  mount -n --bind /run/podnet-tun /dev/net/tun
  shift 2
  exec setpriv --reuid ${user} --regid ${user} --clear-groups --no-new-privs --inh-caps=-all,+net_admin \
    --ambient-caps=-all,+net_admin --bounding-set=-all,+net_admin /run/podnet-checkout/bin/podnetd "$@"`,
  "sh",
  top,
] as const;
