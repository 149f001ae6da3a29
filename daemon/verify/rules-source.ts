/**
 * An independent check of the host's rules for published ports, for `podnet verify`: a separate
 * program that reads the output of iptables-save or nft and reports, as JSON, which ports are
 * translated to which addresses, which ports of a pod accept packets, and whose connections are
 * answered by way of the host. It shares no code with podnet, on purpose; `rules-source-reader.ts`
 * is its own.
 *
 *   iptables-save | node daemon/verify/rules-source.ts iptables
 *   nft -j list table inet podnet | node daemon/verify/rules-source.ts nftables
 */
import { readFileSync } from "node:fs";
import { readListedRules, readSavedRules } from "./rules-source-reader.ts";

const said = readFileSync(0, "utf8");
const report = process.argv[2] === "nftables" ? readListedRules(said) : readSavedRules(said);
process.stdout.write(JSON.stringify(report));
