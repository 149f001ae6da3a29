/**
 * An independent source for what the host's rules do with published ports, for `podnet verify`: a
 * program of its own that reads what iptables-save or nft has printed and tells, as JSON, which
 * ports are translated to where, which of a pod's are let in, and whose questions are answered by
 * way of the host. It shares no code with podnet, on purpose; `source-rules-reader.ts` is its own.
 *
 *   iptables-save | node daemon/verify/rules-source.ts iptables
 *   nft -j list table inet podnet | node daemon/verify/rules-source.ts nftables
 */
import { readFileSync } from "node:fs";
import { readListedRules, readSavedRules } from "./rules-source-reader.ts";

const said = readFileSync(0, "utf8");
const report = process.argv[2] === "nftables" ? readListedRules(said) : readSavedRules(said);
process.stdout.write(JSON.stringify(report));
