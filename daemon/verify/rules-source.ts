/**
 * An independent check of the host's rules, for `podnet verify`: a separate program that reads the
 * output of iptables-save or nft and reports, as JSON, which ports are translated to which
 * addresses, which ports of a pod accept packets or mark them, which marks are accepted, and whose
 * connections are answered by way of the host; or what the guard lets each port send, and which
 * addresses lead to a policy; or where services lead. It shares no code with podnet, on purpose;
 * the readers are its own.
 *
 *   iptables-save | node daemon/verify/rules-source.ts iptables
 *   nft -j list table inet podnet_published | node daemon/verify/rules-source.ts nftables
 *   nft -j list table inet podnet | node daemon/verify/rules-source.ts nftables
 *   (nft -j list table bridge podnet; nft -j list table inet podnet_policy) |
 *     node daemon/verify/rules-source.ts guard
 *   nft -j list table inet podnet_services | node daemon/verify/rules-source.ts services
 */
import { readFileSync } from "node:fs";
import { readGuard, readServices } from "./rules-source-guard.ts";
import { readListedRules, readSavedRules } from "./rules-source-reader.ts";

const said = readFileSync(0, "utf8");
const readers = {
  guard: readGuard,
  nftables: readListedRules,
  iptables: readSavedRules,
  services: readServices,
};
const kind = process.argv[2] as keyof typeof readers;
process.stdout.write(JSON.stringify(readers[kind](said)));
