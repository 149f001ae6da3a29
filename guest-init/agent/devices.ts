import { type Loop, readable } from "./loop.ts";
import { pollEvent, sys } from "./sys.ts";

const afNetlink = 16;
const sockRaw = 3;
const netlinkKobjectUevent = 15;

/** struct sockaddr_nl. */
function netlinkAddress(groups: number): Uint8Array {
  const address = new Uint8Array(12);
  const view = new DataView(address.buffer);
  view.setUint16(0, afNetlink, true);
  view.setUint32(8, groups, true);
  return address;
}

/** A netlink socket that listens to groups (a bit mask). */
export function netlinkSocket(protocol: number, groups: number): number {
  const fd = sys.socket(afNetlink, sockRaw, protocol);
  sys.bind(fd, netlinkAddress(groups));
  return fd;
}

/**
 * Calls `changed` now, and whenever the kernel adds, changes or removes a device. The answer ends
 * it.
 */
export function watchDevices(loop: Loop, changed: () => void): () => void {
  const fd = netlinkSocket(netlinkKobjectUevent, 1);
  const buffer = new Uint8Array(8192);
  let stopped = false;
  const watch = loop.watch(fd, pollEvent.in, (events) => {
    if (!readable(events)) return;
    // ENOBUFS means that events were lost: it triggers a scan like any event.
    try {
      while (sys.receive(fd, buffer) !== undefined);
    } catch {}
    if (!stopped) changed();
  });
  // The first look may come at the end already: after this round, when the caller holds the answer.
  loop.after(0, () => {
    if (!stopped) changed();
  });
  return () => {
    stopped = true;
    watch.stop();
    sys.close(fd);
  };
}
