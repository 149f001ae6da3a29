/** Runs a command where the foreign things are, and answers its standard output. */
export type Run = (...argv: readonly [string, ...string[]]) => Promise<string>;

/**
 * Makes links, addresses, routes, rules and settings that are not podnet's, by chance; among them
 * some that look like its own: its link group, aliases and comments that are nearly marks, a chain
 * of nearly its name.
 */
export async function makeForeign(run: Run, random: (below: number) => number): Promise<void> {
  const ip = (command: string): Promise<string> => run("ip", ...command.split(" "));
  const pick = <T>(of: readonly T[]): T => of[random(of.length)] as T;
  await run("sysctl", "-q", "-w", "net.ipv6.conf.default.accept_dad=0");
  for (let i = 0; i < 6; i++) {
    const name = pick([`far${i}`, `pnaaaaaaaaaaa${i}`, `hyper1${i}`, `tap${i}x`]);
    await ip(`link add ${name} type veth peer name peer${i}`);
    if (random(2) === 0) await ip(`link set ${name} group 73`);
    const alias = pick(["podnet is nice", "podnet:", "podnet:pods:abc", "uplink"]);
    await run("ip", "link", "set", name, "alias", alias);
    await ip(`link set ${name} mtu ${1300 + random(200)}`);
    await ip(`addr add 10.${50 + i}.${random(250)}.1/24 dev ${name}`);
    if (random(2) === 0) await ip(`-6 addr add fd00:${50 + i}::${random(99) + 1}/64 dev ${name}`);
    if (random(4) > 0) {
      await ip(`link set peer${i} up`);
      await ip(`link set ${name} up`);
      await ip(`route add 10.${80 + i}.0.0/16 dev ${name} table ${100 + random(3)}`);
      await ip(`neigh add 10.${50 + i}.0.9 lladdr 02:00:00:00:00:0${i} dev ${name} nud permanent`);
    }
    await run("sysctl", "-q", "-w", `net.ipv4.conf.${name}.rp_filter=${random(3)}`);
    await run("sysctl", "-q", "-w", `net.ipv4.conf.${name}.arp_ignore=${random(3)}`);
  }
  await run("sysctl", "-q", "-w", `net.ipv4.ip_forward=${random(2)}`);
  // What follows ip_forward may have been set apart from it.
  await run("sysctl", "-q", "-w", `net.ipv4.conf.all.accept_redirects=${random(2)}`);
  await run("sysctl", "-q", "-w", `net.ipv4.conf.peer1.forwarding=${random(2)}`);
  await ip("link add br-far type bridge");
  await ip("link set br-far group 73");
  await ip("link set peer0 master br-far");
  await ip("link set br-far up");
  const station = `02:00:00:00:00:${10 + random(80)}`;
  await run("bridge", "fdb", "add", station, "dev", "peer0", "master", "static");
  await run(...words(`tc qdisc replace dev peer1 root handle 7: pfifo limit ${10 + random(90)}`));
  await ip(`rule add from 10.50.0.0/16 lookup ${100 + random(3)} priority ${1000 + random(99)}`);
  const targets = ["ACCEPT", "DROP", "HYPER2", "RETURN"];
  const comments = ["podnet: not a mark", "podnet:networks:x", "it's mine", "HYPER"];
  for (const variant of ["nft", "legacy"] as const) {
    const tables = ["filter", "nat"] as const;
    for (const table of tables) {
      const chains = { filter: ["INPUT", "FORWARD"], nat: ["PREROUTING", "POSTROUTING"] }[table];
      const rules = Array.from({ length: 4 + random(8) }, () => {
        const target = table === "nat" ? pick(["ACCEPT", "HYPER2", "RETURN"]) : pick(targets);
        const port = `-p ${pick(["tcp", "udp"])} --dport ${1 + random(60_000)}`;
        return `-A ${pick(chains)} ${port} -m comment --comment "${pick(comments)}" -j ${target}`;
      });
      // One in each table whose jump is sure to be there, so that the table is; and all of its
      // built-in chains, which iptables-nft makes when they are first used and never removes.
      const builtIn = {
        filter: ["INPUT", "FORWARD", "OUTPUT"],
        nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
      }[table].map((name) => `:${name} ACCEPT [0:0]`);
      const text = [
        `*${table}`,
        ...builtIn,
        ":HYPER2 - [0:0]",
        ...rules,
        "-A HYPER2 -j RETURN",
        "COMMIT",
        "",
      ];
      await run("sh", "-c", `iptables-${variant}-restore --noflush <<'END'\n${text.join("\n")}END`);
    }
  }
  for (const variant of ["nft", "legacy"]) {
    const port = `--dport ${1 + random(999)}`;
    await run(...words(`ip6tables-${variant} -A FORWARD -p tcp ${port} -j DROP`));
  }
  const sets = Array.from({ length: 3 }, () => `10.${random(200)}.0.0/16`);
  const hooks = ["prerouting", "input", "forward", "output", "postrouting"];
  const chains = ["one", "HYPER2", "podnet", "hyper0x"].slice(random(3)).map((name) => {
    const place = `hook ${pick(hooks)} priority ${random(600) - 300}`;
    return `chain ${name} {
      type filter ${place}; policy accept
      ip saddr @them counter drop comment "${pick(comments)}"
    }`;
  });
  await run(
    "nft",
    `table ${pick(["inet", "ip"])} ${pick(["far", "podnet", "HYPER2"])} {
       set them { type ipv4_addr; flags interval; auto-merge; elements = { ${sets.join(", ")} }; }
       ${chains.join("\n")}
     }`,
  );
}

const words = (command: string): [string, ...string[]] =>
  command.split(" ") as [string, ...string[]];

const links = String.raw`hyper0|pn[a-z2-7]{12}[0-9]|our[0-9]+`;
const ours = new RegExp(
  String.raw`\b(?:${links})\b|\btable (?:bridge podnet|inet podnet_(?:guard|shares|hosts|published)) |podnet:(?:network|chain|pod):[a-zA-Z0-9]|\bHYPER\b(?!"|2)`,
);
/** Follow net.ipv4.ip_forward, which podnet sets while it works. */
const forwarding =
  /^net\.ipv4\.(?:ip_forward|conf\.[^ ]+\.forwarding|conf\.all\.accept_redirects) /;

/**
 * Each line with the table and chain that it stands in, so that it says of itself whether it is
 * podnet's.
 */
function withPlaces(ruleset: string): string {
  const place: string[] = [];
  const lines = ruleset.split("\n").flatMap((line) => {
    const text = line.trim();
    if (text.startsWith("}")) place.pop();
    if (text === "" || text.startsWith("}")) return [];
    const whole = `${place.join(" > ")} > ${text}`;
    if (text.replace(/ # handle \d+$/, "").endsWith("{")) place.push(text);
    return [whole];
  });
  return lines.join("\n");
}

/** What a bridge has learned and which groups a link listens to come and go by themselves. */
const lastingStations = (fdb: string): string =>
  fdb
    .split("\n")
    .filter((line) => /\b(?:static|permanent)\b/.test(line) && !/^(?:33:33|01:00:5e)/.test(line))
    .join("\n");

/**
 * All of a host's network that podnet must not change, as text, indexes and nftables' handles
 * included; counters and timers left out. `whole` leaves nothing out that podnet may have changed
 * for the time that it works.
 */
export async function foreignText(run: Run, whole: boolean): Promise<string> {
  const texts = await Promise.all([
    run("ip", "-d", "-o", "link", "show"),
    run("ip", "-o", "address", "show"),
    run("ip", "rule", "show"),
    run("ip", "route", "show", "table", "all"),
    run("ip", "-6", "route", "show", "table", "all"),
    run("ip", "neigh", "show", "nud", "permanent"),
    run("nft", "-s", "-a", "list", "ruleset").then(withPlaces),
    run("bridge", "fdb", "show").then(lastingStations),
    run("tc", "qdisc", "show"),
    run("iptables-nft-save"),
    run("ip6tables-nft-save"),
    run("iptables-legacy-save"),
    run("ip6tables-legacy-save"),
    run("sysctl", "-a", "-r", String.raw`^net\.(ipv4|ipv6|bridge)\.`),
  ]);
  return texts
    .join("\n")
    .split("\n")
    .filter(
      (line) => !line.startsWith("#") && (whole || !(ours.test(line) || forwarding.test(line))),
    )
    .map((line) =>
      line.replace(/^\[?\d+:\d+\]? /, "").replaceAll(/\[\d+:\d+\]|\b\w+_timer +\S+/g, ""),
    )
    .join("\n");
}

/** The rules that are podnet's, in order, a line each with its variant and table. */
export async function ownRules(run: Run): Promise<string[]> {
  const lines: string[] = [];
  for (const variant of ["nft", "legacy"]) {
    let table = "";
    for (const line of (await run(`iptables-${variant}-save`)).split("\n")) {
      if (line.startsWith("*")) table = line;
      if (/^-A .*podnet:(?:network|chain|pod):[a-zA-Z0-9]|^-A HYPER |-j HYPER$|^:HYPER /.test(line))
        lines.push(`${variant} ${table} ${line.replace(/ ?\[\d+:\d+\]/, "")}`);
    }
  }
  return lines;
}
