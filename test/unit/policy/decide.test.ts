import test from "ava";
import { parseIp } from "../../../core/address.ts";
import { compile, policiesOf, type Surroundings } from "../../../policy/compile.ts";
import { type Decision, decide, type Flow } from "../../../policy/decide.ts";
import { canonicalName, type DomainName } from "../../../policy/domain.ts";
import { readPolicy } from "../../../policy/read-policy.ts";
import type { PodFacts } from "../../../policy/selector.ts";

const named = (text: string): DomainName => canonicalName(text) as DomainName;
const pod = (name: string, ip: string, labels: Record<string, string> = {}): PodFacts => ({
  name,
  addresses: [parseIp(ip)],
  labels,
});

const surroundings: Surroundings = {
  pods: [pod("db", "10.0.0.5", { app: "db" }), pod("web", "10.0.0.6", { app: "web" })],
  host: [parseIp("10.0.0.1"), parseIp("fd00::1")],
  hostServices: [{ protocol: "udp", ports: { first: 53, last: 53 } }, { protocol: "icmp" }],
  cloudMetadata: false,
};

/** `tcp 192.0.2.1 443 name=a.example answered=b.example`; a name of `-` says that there is none. */
function flow(text: string): Flow {
  const [protocol, ip = "-", port = "-", ...rest] = text.split(" ");
  const given = Object.fromEntries(rest.map((one) => one.split("=") as [string, string]));
  const { name, answered } = given;
  return {
    protocol: protocol as Flow["protocol"],
    ...(ip === "-" ? {} : { ip: parseIp(ip) }),
    ...(port === "-" ? {} : { port: Number(port) }),
    ...(name === undefined ? {} : { name: name === "-" ? null : named(name) }),
    ...(answered === undefined ? {} : { answered: answered.split(",").map(named) }),
  };
}

const policy = (fields: object): ReturnType<typeof readPolicy> =>
  readPolicy({ name: "p", ...fields });
const egress = (fields: object, around = surroundings): ((text: string) => Decision) => {
  const { egress } = compile([policy(fields)], around);
  return (text) => decide(egress, flow(text));
};
const said = ({ verdict, policy, rule }: Decision): string => `${verdict} ${policy}/${rule}`;

test("the first rule that matches decides, by network, port and protocol", (t) => {
  const ask = egress({
    default: "allow",
    rules: [
      { name: "dns", action: "allow", cidrs: ["192.0.2.53"], protocol: "udp", ports: [53] },
      { name: "no-lan", reason: "The LAN is for people", action: "deny", cidrs: ["192.0.2.0/24"] },
      { name: "low", action: "deny", ports: ["1-1023"] },
    ],
  });
  t.is(said(ask("udp 192.0.2.53 53")), "allow p/dns");
  t.is(said(ask("tcp 192.0.2.53 53")), "deny p/no-lan");
  t.is(said(ask("icmp 192.0.2.9")), "deny p/no-lan");
  t.is(ask("icmp 192.0.2.9").reason, "The LAN is for people");
  t.is(said(ask("tcp 198.51.100.1 1023")), "deny p/low");
  t.is(said(ask("tcp 198.51.100.1 1024")), "allow p/default");
  t.is(said(ask("icmp 198.51.100.1")), "allow p/default");
  t.is(said(ask("tcp fd01::1 22")), "deny p/low");
});

test("no rule removes the floor: the host but for what it serves, and the cloud's metadata", (t) => {
  const everything = { default: "allow", rules: [{ name: "all", action: "allow" }] };
  const ask = egress(everything);
  t.is(said(ask("udp 10.0.0.1 53")), "allow podnet/host-services");
  t.is(said(ask("icmp fd00::1")), "allow podnet/host-services");
  t.is(said(ask("tcp 10.0.0.1 22")), "deny podnet/host");
  for (const ip of ["169.254.169.254", "169.254.0.1", "fd00:ec2::254", "fd20:ce::254"])
    t.is(said(ask(`tcp ${ip} 80 name=metadata.example`)), "deny podnet/metadata");
  t.is(said(ask("tcp 169.253.0.1 80")), "allow p/all");
  const granted = egress(everything, { ...surroundings, cloudMetadata: true });
  t.is(said(granted("tcp 169.254.169.254 80")), "allow p/all");
});

test("pods are chosen by label, and a rule for no pod matches nothing", (t) => {
  const ask = egress({
    rules: [
      {
        name: "db",
        action: "allow",
        pods: { labels: { app: "db" } },
        protocol: "tcp",
        ports: [5432],
      },
      { name: "ghosts", action: "allow", pods: { labels: { app: "gone" } } },
    ],
  });
  t.is(said(ask("tcp 10.0.0.5 5432")), "allow p/db");
  t.is(said(ask("tcp 10.0.0.6 5432")), "deny p/default");
  t.is(said(ask("tcp 198.51.100.1 80")), "deny p/default");
});

test("a domain decides by the name that a connection says, not by its address", (t) => {
  const ask = egress({ rules: [{ name: "api", action: "allow", domains: ["api.example.com"] }] });
  t.is(said(ask("tcp 198.51.100.1 443")), "relay p/api");
  t.is(said(ask("tcp 198.51.100.1 80 name=api.example.com")), "allow p/api");
  t.is(said(ask("tcp 198.51.100.1 443 name=other.example.com")), "deny p/default");
  t.is(said(ask("tcp 198.51.100.1 443 name=-")), "deny p/default");
  // On other ports the resolver's answers decide, since there is no name to read.
  t.is(said(ask("tcp 198.51.100.1 22")), "deny p/default");
  t.is(said(ask("tcp 198.51.100.1 22 answered=api.example.com")), "allow p/api");
  t.is(said(ask("tcp 198.51.100.1 22 answered=other.example.com")), "deny p/default");
  t.is(said(ask("icmp 198.51.100.1 - answered=api.example.com")), "allow p/api");
  t.is(said(ask("tcp - 22 name=api.example.com")), "allow p/api");
});

test("where a name is denied, what hides its name is denied with it", (t) => {
  const ask = egress({
    default: "allow",
    rules: [{ name: "bad", action: "deny", domains: ["*.bad.example"] }],
  });
  t.is(said(ask("tcp 198.51.100.1 443 name=a.bad.example")), "deny p/bad");
  t.is(said(ask("tcp 198.51.100.1 443 name=bad.example")), "allow p/default");
  t.is(said(ask("tcp 198.51.100.1 443 name=-")), "deny p/bad");
  t.is(said(ask("udp 198.51.100.1 443")), "deny p/bad");
  t.is(said(ask("tcp 198.51.100.1 22")), "deny p/bad");
  t.is(ask("tcp 198.51.100.1 22").reason, "the resolver never answered this address");
  t.is(said(ask("tcp 198.51.100.1 22 answered=good.example")), "allow p/default");
  t.is(said(ask("tcp 198.51.100.1 22 answered=good.example,x.bad.example")), "deny p/bad");
  // Public names never lead to addresses inside.
  t.is(said(ask("tcp 10.0.0.6 22")), "allow p/default");
});

test("QUIC is denied where only a name allows, and the reason says why", (t) => {
  const ask = egress({
    rules: [
      { name: "own", action: "allow", cidrs: ["203.0.113.0/24"] },
      { name: "api", action: "allow", domains: ["api.example.com"] },
    ],
  });
  t.is(said(ask("udp 203.0.113.1 443")), "allow p/own");
  t.is(said(ask("udp 198.51.100.1 443 answered=api.example.com")), "deny p/default");
  t.is(ask("udp 198.51.100.1 443").reason, "QUIC hides the name: use TCP");
  t.is(ask("udp 198.51.100.1 444").reason, "no rule allows it");
  t.is(said(ask("udp 198.51.100.1 444 answered=api.example.com")), "allow p/api");
});

test("where names decide, DNS goes to the resolver alone and encrypted DNS nowhere", (t) => {
  const rules = [{ name: "all", action: "allow", cidrs: ["0.0.0.0/0"] }];
  const domain = { name: "api", action: "allow", domains: ["api.example.com"] };
  const ask = egress({ rules: [...rules, domain] });
  t.is(said(ask("udp 9.9.9.9 53")), "resolver podnet/resolver");
  t.is(said(ask("tcp 9.9.9.9 853")), "deny podnet/encrypted-dns");
  t.is(said(ask("udp 10.0.0.1 53")), "allow podnet/host-services");
  t.is(said(egress({ rules })("udp 9.9.9.9 53")), "allow p/all");
});

test("names are for addresses outside: inside, cidrs and pods decide", (t) => {
  const ask = egress({
    rules: [
      { name: "api", action: "allow", domains: ["api.example.com"] },
      { name: "inside", action: "allow", cidrs: ["10.7.0.0/16"] },
    ],
  });
  t.is(said(ask("tcp 10.7.0.1 443")), "allow p/inside");
  t.is(said(ask("tcp 10.8.0.1 443")), "deny p/default");
  t.is(said(ask("tcp 10.8.0.1 443 name=api.example.com")), "deny p/default");
  t.is(said(ask("icmp 10.8.0.1 - answered=api.example.com")), "deny p/default");
});

test("an allowed address needs no name, and the decision says what it looked at", (t) => {
  const ask = egress({
    rules: [
      { name: "api", action: "allow", domains: ["api.example.com"] },
      { name: "own", action: "allow", cidrs: ["203.0.113.0/24"] },
    ],
  });
  t.is(ask("tcp 203.0.113.1 443").verdict, "relay");
  t.is(ask("tcp 203.0.113.1 443 name=-").by, "address");
  t.is(ask("tcp 203.0.113.1 443 name=api.example.com").by, "name");
  t.is(ask("tcp 198.51.100.1 443 name=-").verdict, "deny");
});

test("several policies stand one after the other, and one that denies by default closes the rest", (t) => {
  const open = policy({
    name: "open",
    default: "allow",
    rules: [{ name: "no-ssh", action: "deny", ports: [22] }],
  });
  const web = policy({ name: "web", rules: [{ name: "https", action: "allow", ports: [443] }] });
  const incoming = policy({ name: "in", ingress: {} });
  const { egress, ingress } = compile([open, web, incoming], surroundings);
  t.is(said(decide(egress, flow("tcp 198.51.100.1 22"))), "deny open/no-ssh");
  t.is(said(decide(egress, flow("tcp 198.51.100.1 443"))), "allow web/https");
  t.is(said(decide(egress, flow("tcp 198.51.100.1 80"))), "deny web/default");
  t.is(said(decide(ingress, flow("tcp 198.51.100.1 80"))), "deny in/default");
  t.is(said(decide(ingress, flow("tcp 10.0.0.1 80"))), "allow podnet/host");
  const none = compile([], surroundings);
  t.is(said(decide(none.ingress, flow("tcp 198.51.100.1 80"))), "allow podnet/default");
  t.is(said(decide(none.egress, flow("tcp 169.254.169.254 80"))), "deny podnet/metadata");
});

test("a policy chooses by name and by network, and all its conditions hold", (t) => {
  const facts = (name: string, ...networks: string[]): PodFacts => ({
    ...pod(name, "192.0.2.1", { app: name }),
    networks,
  });
  const all = [facts("web", "blue"), facts("db", "red", "blue"), facts("alone")];
  const chosen = (applies_to: object): string =>
    all
      .filter((one) => {
        const policy = readPolicy({ name: "p", default: "deny", applies_to });
        return policiesOf(one, [], [policy]).length > 0;
      })
      .map(({ name }) => name)
      .join(" ");
  t.is(chosen({}), "web db alone");
  t.is(chosen({ networks: ["blue", "green"] }), "web db");
  t.is(chosen({ networks: ["red"] }), "db");
  t.is(chosen({ pods: ["alone", "web", "none"] }), "web alone");
  t.is(chosen({ pods: ["alone", "web"], networks: ["blue"] }), "web");
  t.is(chosen({ labels: { app: "db" }, networks: ["blue"] }), "db");
  t.is(chosen({ labels: { app: "web" }, networks: ["red"] }), "");
  t.is(chosen({ pods: ["web"], namespace: "prod" }), "");
});

test("a policy that chooses by label comes after those that the pod names, and once", (t) => {
  const [a, b, c] = ["a", "b", "c"].map((name) =>
    readPolicy({
      name,
      default: "deny",
      ...(name === "b" ? {} : { applies_to: { labels: { app: "db" } } }),
    }),
  ) as [
    ReturnType<typeof readPolicy>,
    ReturnType<typeof readPolicy>,
    ReturnType<typeof readPolicy>,
  ];
  const [db, web] = surroundings.pods as [PodFacts, PodFacts];
  const names = (pod: PodFacts): string[] =>
    policiesOf(pod, [b, c], [a, b, c]).map(({ name }) => name);
  t.deepEqual(names(db), ["b", "c", "a"]);
  t.deepEqual(names(web), ["b", "c"]);
});
