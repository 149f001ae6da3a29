import { ipOf, type Mac } from "../../core/address.ts";
import { isPodnetError } from "../../core/errors.ts";
import { decodeUtf8 } from "../../core/utf8.ts";
import { type Ack, parseAck } from "../../linux/rtnetlink/ack.ts";
import { getAddresses, parseAddress, scopeOfAddress } from "../../linux/rtnetlink/address.ts";
import { RTM_NEWLINK } from "../../linux/rtnetlink/constants.ts";
import { errnoName } from "../../linux/rtnetlink/errno.ts";
import { getLink } from "../../linux/rtnetlink/links/link-requests.ts";
import { type LinkState, parseLinkState } from "../../linux/rtnetlink/links/link.ts";
import {
  encodeRequest,
  NLMSG_DONE,
  NLMSG_ERROR,
  NLM_F_DUMP_INTR,
  type NetlinkMessage,
  parseMessages,
  type Request,
} from "../../linux/rtnetlink/message.ts";
import { replaceNeighbour } from "../../linux/rtnetlink/neighbour.ts";
import { getRoutes } from "../../linux/rtnetlink/route-requests.ts";
import { parseRoute } from "../../linux/rtnetlink/route.ts";
import { announcement } from "../network/announcement.ts";
import {
  type Change,
  directFirst,
  linkChanges,
  routeChange,
  usesIpv6,
} from "../network/changes.ts";
import { guestRoutes, isGlobal, observedInterface } from "../network/observed.ts";
import { asksAttributes } from "../protocol/attributes.ts";
import { hexBytes, joinBytes } from "../protocol/bytes.ts";
import type {
  Awakening,
  GuestConfig,
  GuestInterface,
  ObservedGuest,
} from "../protocol/configure.ts";
import { encodeObservedGuest, parseObservedGuest } from "../protocol/extension-messages.ts";
import { given, malformed } from "../protocol/fields.ts";
import { parseResolver, renderResolver } from "../protocol/resolver.ts";
import type { Step, StepResults } from "../protocol/steps.ts";

/**
 * The NIC of a guest whose links are all down: what the guest's kernel must be asked to configure
 * it needs no look at the guest.
 */
export interface ParkedNic {
  readonly index: number;
  readonly name: string;
  readonly mac: Mac;
  readonly mtu: number;
}

/** RT_TABLE_MAIN. */
const mainTable = 254;
/** Requests sent together: their acks have room in the agent's socket many times over. */
const together = 60;
/** Pages are 4 KiB on x86_64 and in Debian's arm64 kernels. */
const pageKib = 4;

/**
 * The NIC that a configuration has parked, when the guest shows no other and `before` was about it,
 * too: lo is up then, and IPv6 off.
 */
export function parkedNicOf(
  before: GuestConfig | undefined,
  { interfaces: [wanted] }: GuestConfig,
  observed: ObservedGuest,
): ParkedNic | undefined {
  const there = aloneParkedNicOf(observed);
  const [was] = before?.interfaces ?? [];
  if (there === undefined || was === undefined || wanted?.parked !== true) return undefined;
  const isKnown = was.parked !== true && was.mac === wanted.pluggedAs && there.mac === wanted.mac;
  if (before?.interfaces.length !== 1 || !isKnown || usesIpv6(was)) return undefined;
  return there;
}

/** The NIC that an agent with the feature `twins` has parked, when the guest shows no other. */
export function aloneParkedNicOf({ interfaces, routes }: ObservedGuest): ParkedNic | undefined {
  const [there] = interfaces;
  if (there === undefined || interfaces.length > 1 || routes.length > 0) return undefined;
  if (there.up || there.addresses.length > 0) return undefined;
  const { index, name, mac, mtu } = there;
  return { index, name, mac, mtu };
}

/** A configuration of a parked NIC, as steps for the agent. */
export interface SteppedConfiguration {
  readonly steps: readonly Step[];
  /**
   * What the guest shows afterwards; undefined when the guest did not do all of it, and has to be
   * configured as any other. Throws `AGENT_PROTOCOL`.
   */
  observed(results: StepResults): ObservedGuest | undefined;
}

/**
 * What a clone is sent before it runs, where AWAKE is not. Randomness comes first: whatever is
 * drawn before, its twins draw too.
 */
export const stepsOfTwin = (
  { entropy, clockMs }: Awakening,
  names: Omit<Extract<Step, { readonly kind: "twin" }>, "kind">,
): readonly Step[] => [
  { kind: "entropy", bytes: hexBytes(entropy) },
  { kind: "clock", ms: clockMs },
  { kind: "twin", ...names },
];

/** Undefined when it asks for more than a parked NIC needs. */
export function configurationOf(
  config: GuestConfig,
  nic: ParkedNic,
): SteppedConfiguration | undefined {
  const { interfaces, routes, neighbours, loopback, clockMs, entropy, hostname, dns } = config;
  const [wanted] = interfaces;
  if (wanted === undefined || interfaces.length > 1 || wanted.parked === true) return undefined;
  if (wanted.mac !== nic.mac && wanted.pluggedAs !== nic.mac) return undefined;
  if (loopback !== undefined) return undefined;
  if ([...routes, ...neighbours].some((each) => each.interface !== wanted.name)) return undefined;

  const changes = changesOf(config, wanted, nic);
  if (changes.length > together) return undefined;
  const { index } = nic;
  const asked = [...changes.map(({ request }) => request), getLink(index)];
  const steps = new Steps();
  // Randomness first: whatever is drawn before, its twins draw too.
  if (entropy !== undefined) steps.add({ kind: "entropy", bytes: hexBytes(entropy) });
  if (usesIpv6(wanted))
    steps.add({
      kind: "write-file",
      path: `/proc/sys/net/ipv6/conf/${nic.name}/disable_ipv6`,
      text: "0",
    });
  const changed = steps.add(netlinkStep(asked));
  for (const prefix of wanted.addresses)
    steps.add({ kind: "packet", ...announcement(index, wanted.mac, ipOf(prefix)) });
  const clock = steps.add({ kind: "clock", ...given("ms", clockMs) });
  if (hostname !== undefined) steps.add({ kind: "hostname", name: hostname });
  if (dns !== undefined) steps.add({ kind: "resolver", text: renderResolver(dns) });
  const addresses = steps.add(netlinkStep([getAddresses()]));
  const allRoutes = steps.add(netlinkStep([getRoutes({ table: mainTable })]));
  const name = steps.add({ kind: "read-file", path: "/proc/sys/kernel/hostname" });
  const resolver = steps.add({ kind: "read-file", path: "/etc/resolv.conf" });
  const memory = steps.add({ kind: "read-file", path: "/proc/self/statm" });

  const read = (done: readonly Uint8Array[]): ObservedGuest | undefined => {
    const at = (step: number): Uint8Array => done[step] as Uint8Array;
    const { acks, objects } = answersOf(at(changed), asked);
    const refused = acks.some((ack, i) => !isFine(ack, changes[i]?.fine));
    const link = objects.filter(({ type }) => type === RTM_NEWLINK).map(stateOf)[0];
    // A link without a carrier has lost its announcement.
    if (refused || link?.carrier !== true) return undefined;
    const [addressList, routeList] = [listOf(at(addresses)), listOf(at(allRoutes))];
    if (addressList === undefined || routeList === undefined) return undefined;
    const attributes = asksAttributes(config);
    const found = addressList
      .filter(({ payload }) => isGlobal(scopeOfAddress(payload)))
      .flatMap(({ payload }) => parseAddress(payload) ?? []);
    const inMain = routeList
      .flatMap(({ payload }) => parseRoute(payload) ?? [])
      .filter(({ table }) => table === mainTable);
    return {
      requestId: config.requestId,
      hostname: decodeUtf8(at(name)).trimEnd(),
      dns: parseResolver(decodeUtf8(at(resolver))),
      interfaces: observedInterface(link, found, attributes),
      routes: guestRoutes(inMain, [link], attributes),
      clockMs: Number(decodeUtf8(at(clock))),
      agentRssKib: Number(decodeUtf8(at(memory)).split(" ")[1]) * pageKib,
    };
  };
  return {
    steps: steps.all,
    observed({ done, errno }) {
      if (errno !== 0) return undefined;
      if (done.length !== steps.all.length)
        throw malformed(`${done.length} results of ${steps.all.length} steps`);
      const observed = readHostile(() => read(done));
      // As strict as with what an agent says itself.
      return observed && parseObservedGuest(encodeObservedGuest(observed));
    },
  };
}

/** Each step has a number, which is that of its result. */
class Steps {
  readonly all: Step[] = [];

  add(step: Step): number {
    return this.all.push(step) - 1;
  }
}

const changesOf = (
  { routes, neighbours }: GuestConfig,
  wanted: GuestInterface,
  nic: ParkedNic,
): Change[] => {
  const link: LinkState = { ...nic, up: false, carrier: false, loopback: false };
  return [
    ...linkChanges(wanted, link, wanted.addresses),
    ...directFirst(routes).map((route) => routeChange(route, nic.index)),
    ...neighbours.map(({ address, mac }) => ({
      request: replaceNeighbour({ index: nic.index, address, mac }),
    })),
  ];
};

/** Numbered from 1. */
const netlinkStep = (requests: readonly Request[]): Step => ({
  kind: "netlink",
  requests: joinBytes(requests.map((request, i) => encodeRequest(request, i + 1))),
});

const stateOf = ({ payload }: NetlinkMessage): LinkState => parseLinkState(payload);

const isFine = (ack: Ack | undefined, fine: readonly string[] = []): boolean =>
  ack !== undefined && (ack.errno === 0 || fine.includes(errnoName(ack.errno)));

interface Answers {
  /** Of each request; undefined without one. */
  readonly acks: readonly (Ack | undefined)[];
  readonly objects: readonly NetlinkMessage[];
}

function answersOf(bytes: Uint8Array, requests: readonly Request[]): Answers {
  const messages = parseMessages(bytes);
  const errors = messages.filter(({ type }) => type === NLMSG_ERROR);
  const bySeq = new Map(errors.map((message) => [message.seq, message]));
  return {
    acks: requests.map((_request, i) => {
      const ack = bySeq.get(i + 1);
      return ack && parseAck(ack);
    }),
    objects: messages.filter(({ type }) => type !== NLMSG_ERROR),
  };
}

/** The objects of a list; undefined when it is not whole, or changed while it was made. */
function listOf(bytes: Uint8Array): NetlinkMessage[] | undefined {
  const messages = parseMessages(bytes);
  const isWhole = messages.some((each) => each.type === NLMSG_DONE && parseAck(each).errno === 0);
  if (!isWhole || messages.some(({ flags }) => (flags & NLM_F_DUMP_INTR) !== 0)) return undefined;
  return messages.filter(({ type }) => type !== NLMSG_DONE && type !== NLMSG_ERROR);
}

/** What a guest hands on as its kernel's may be anything. */
function readHostile<T>(read: () => T): T {
  try {
    return read();
  } catch (thrown) {
    if (!isPodnetError(thrown)) throw thrown;
    throw malformed(
      `The guest's kernel cannot have said this: ${thrown.message}`,
      undefined,
      thrown,
    );
  }
}
