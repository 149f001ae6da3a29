import type { Subnet } from "../../api/gen/podnet/v1/network_service_pb.ts";
import { bare } from "./format.ts";
import type { State } from "./model.ts";

/** Pools of more addresses are shown by their parts of 256 that have holders. */
const most = 1024;
const columns = 32;
const cell = 14;

interface Holder {
  readonly name: string;
  /** Absent for a container. */
  readonly pod?: string;
}

/** Who has which address: pods and containers. */
function holdersOf({ pods, containers }: State): ReadonlyMap<string, Holder> {
  const found = new Map<string, Holder>();
  for (const { id, name, interfaces } of pods.values())
    for (const address of interfaces.flatMap(({ addresses }) => addresses))
      found.set(bare(address), { name, pod: id });
  for (const { containerId, pod, addresses } of containers)
    for (const address of addresses)
      found.set(bare(address), { name: `container ${pod || containerId.slice(0, 12)}` });
  return found;
}

const toNumber = (ip: string): number =>
  ip.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
const toIp = (n: number): string => [24, 16, 8, 0].map((bits) => (n >>> bits) & 255).join(".");

/** What of a subnet is never given, as it was asked for: addresses, networks, FIRST-LAST. */
function reservedOf({ reservations }: Subnet): (address: number) => boolean {
  const ranges = reservations
    .filter((text) => !text.includes(":"))
    .map((text) => {
      const [from = "", to] = text.split("-");
      if (to !== undefined) return [toNumber(from), toNumber(to)] as const;
      const { first, size } = rangeOf(from);
      return [first, first + size - 1] as const;
    });
  return (address) => ranges.some(([from, to]) => address >= from && address <= to);
}

/** The first address of a subnet of IPv4, and how many it has. */
function rangeOf(cidr: string): { first: number; size: number } {
  const [ip = "", length = "32"] = cidr.split("/");
  const size = 2 ** (32 - Number(length));
  return { first: Math.floor(toNumber(ip) / size) * size, size };
}

/** Parts of a pool to draw: all of it, or those of 256 addresses that have holders. */
function partsOf(subnet: Subnet, holders: ReadonlyMap<string, Holder>): number[][] {
  const { first, size } = rangeOf(subnet.cidr);
  const addresses = (from: number, length: number): number[] =>
    Array.from({ length }, (_each, i) => from + i);
  if (size <= most) return [addresses(first, size)];
  const starts = new Set<number>([first]);
  for (const address of holders.keys()) {
    const at = address.includes(":") ? -1 : toNumber(address);
    if (at >= first && at < first + size) starts.add(at - (at % 256));
  }
  return [...starts].toSorted((a, b) => a - b).map((start) => addresses(start, 256));
}

function Bitmap({
  subnet,
  addresses,
  holders,
  choose,
}: {
  subnet: Subnet;
  addresses: readonly number[];
  holders: ReadonlyMap<string, Holder>;
  choose: (id: string) => void;
}) {
  const rows = Math.ceil(addresses.length / columns);
  const { first, size } = rangeOf(subnet.cidr);
  const quarantined = new Set(subnet.quarantinedAddresses);
  const isReserved = reservedOf(subnet);
  const about = (address: number): { tone: string; text: string; pod?: string | undefined } => {
    const ip = toIp(address);
    const holder = holders.get(ip);
    if (holder !== undefined) return { tone: "used", text: `${ip}: ${holder.name}`, ...holder };
    if (ip === subnet.gateway) return { tone: "gateway", text: `${ip}: gateway` };
    if (address === first || address === first + size - 1)
      return { tone: "reserved", text: `${ip}: network or broadcast address` };
    if (isReserved(address)) return { tone: "reserved", text: `${ip}: reserved` };
    if (quarantined.has(ip))
      return { tone: "quarantined", text: `${ip}: in quarantine since its holder gave it back` };
    return { tone: "free", text: `${ip}: free` };
  };
  return (
    <svg
      class="bitmap"
      viewBox={`0 0 ${columns * cell} ${rows * cell}`}
      style={{ width: `${columns * cell}px` }}
      role="img"
      aria-label={`Addresses from ${toIp(addresses[0] ?? 0)}; the table below names the holders`}
    >
      {addresses.map((address, i) => {
        const { tone, text, pod } = about(address);
        return (
          <rect
            key={address}
            class={`cell ${tone}`}
            x={(i % columns) * cell + 1}
            y={Math.floor(i / columns) * cell + 1}
            width={cell - 2}
            height={cell - 2}
            rx={2}
            onClick={() => pod !== undefined && choose(pod)}
          >
            <title>{text}</title>
          </rect>
        );
      })}
    </svg>
  );
}

/** Counts of IPv6 have twenty digits and more. */
const amount = (text: string): string =>
  text.length > 12 ? `about 2^${Math.round(Math.log2(Number(text)))}` : text;

function Usage({ subnet }: { subnet: Subnet }) {
  const { size, used, free, reserved, quarantined } = subnet;
  const part = (text: string): number => (100 * Number(text)) / Math.max(1, Number(size));
  return (
    <>
      <div class="bar" aria-hidden="true">
        <span class="used" style={{ width: `${part(used)}%` }} />
        <span class="quarantined" style={{ width: `${part(quarantined)}%` }} />
        <span class="reserved" style={{ width: `${part(reserved)}%` }} />
      </div>
      <p class="muted">
        {used} used, {quarantined} in quarantine, {reserved} reserved, {amount(free)} free of{" "}
        {amount(size)}
      </p>
    </>
  );
}

const legend = [
  ["used", "pod or container"],
  ["gateway", "gateway"],
  ["reserved", "reserved"],
  ["quarantined", "in quarantine"],
  ["free", "free"],
] as const;

function Legend() {
  return (
    <ul class="legend" aria-label="Colours of the pictures">
      {legend.map(([tone, text]) => (
        <li key={tone}>
          <svg width="12" height="12" aria-hidden="true">
            <rect class={`cell ${tone}`} width="12" height="12" rx="2" />
          </svg>{" "}
          {text}
        </li>
      ))}
    </ul>
  );
}

/** Each pool of addresses as a picture, with a table of who has which. */
export function Pools({ state, choose }: { state: State; choose: (id: string) => void }) {
  const holders = holdersOf(state);
  return (
    <>
      <Legend />
      <div class="pools">
      {state.networks.flatMap((network) =>
        network.subnets.map((subnet) => {
          const isIpv4 = !subnet.cidr.includes(":");
          const parts = isIpv4 ? partsOf(subnet, holders) : [];
          return (
            <section class="card" key={`${network.name} ${subnet.cidr}`} aria-label={`Pool ${subnet.cidr}`}>
              <h3>
                {network.name} <span class="muted">{subnet.cidr}</span>
              </h3>
              <Usage subnet={subnet} />
              {parts.map((addresses) => (
                <Bitmap
                  key={addresses[0]}
                  subnet={subnet}
                  addresses={addresses}
                  holders={holders}
                  choose={choose}
                />
              ))}
            </section>
          );
        }),
      )}
      </div>
      <h3>Holders</h3>
      <div class="card scroll fit">
      <table class="narrow">
        <thead>
          <tr>
            <th scope="col">Address</th>
            <th scope="col">Holder</th>
          </tr>
        </thead>
        <tbody>
          {[...holders].slice(0, 2000).map(([address, { name, pod }]) => (
            <tr key={address}>
              <td>{address}</td>
              <td>
                {pod === undefined ? (
                  name
                ) : (
                  <button type="button" class="link" onClick={() => choose(pod)}>
                    {name}
                  </button>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      </div>
    </>
  );
}
