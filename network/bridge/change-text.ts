import { assertNever } from "../../core/brand.ts";
import { commands } from "../firewall/nftables/edit.ts";
import { type Change, commitName, onOff, portText, settingsText } from "../model/change.ts";
import { fdbMaxLearned, mark } from "../model/desired.ts";
import { bucketText } from "../model/rates.ts";

/** A change as people read it in `--plan` and in the log; one line, more for a firewall commit. */
function changeText(change: Change): string[] {
  switch (change.kind) {
    case "create-bridge":
      return [
        `link + ${change.name} bridge ${settingsText({ alias: change.alias, group: mark.linkGroup, mtu: change.mtu, mac: change.mac, fdbMaxLearned, noLinkLocalLearn: true })}`,
        ...change.settings.map(({ key, value }) => `sysctl + ${key} ${value}`),
      ];
    case "set-link":
      return [`link ~ ${change.name} ${settingsText(change.set)}`];
    case "end-bridge-filter":
      return [`link ~ ${change.name} ${settingsText({ nfCall: false })}`];
    case "set-adopted":
      return [`link ~ ${change.name} ${change.up ? "up" : "down"} (not ours)`];
    case "pin-mac":
      return [`link ~ ${change.name} keeps mac ${change.mac} (not ours)`];
    case "add-address":
      return [`address + ${change.prefix} on ${change.link}`];
    case "remove-address":
      return [`address - ${change.prefix} on ${change.link}`];
    case "attach-port": {
      const settings = portText(change);
      return [`port + ${change.link} on ${change.bridge}${settings}, then up`];
    }
    case "set-port":
      return Object.entries(change.set).map(
        ([name, value]) => `port ~ ${change.link} ${name} ${onOff(value)}`,
      );
    case "detach-port":
      return [`port - ${change.link}`];
    case "forget-neighbour":
      return [`neighbour - ${change.ip} on ${change.link}`];
    case "create-ifb": {
      const { name, mtu, alias } = change;
      return [
        `link + ${name} ifb ${settingsText({ alias, group: mark.linkGroup, mtu, up: true })}`,
      ];
    }
    case "set-rate": {
      const { link, place, bucket } = change;
      const inside = place === "root" ? "" : " inside";
      return [`rate ~ ${link}${inside} ${bucket === undefined ? "none" : bucketText(bucket)}`];
    }
    case "redirect":
      return [
        change.to === undefined
          ? `redirect - ${change.from}`
          : `redirect + ${change.from} to ${change.to}`,
      ];
    case "delete-links":
      return change.links.map((link) => `link - ${link}`);
    case "set-sysctl":
      return [`sysctl ~ ${change.key} ${change.from} → ${change.to}`];
    case "iptables":
      return change.lines.map((line) => `${commitName(change)} ${line}`);
    case "nftables":
      return commands(change).map((command) => `nftables ${command}`);
    default:
      return assertNever(change);
  }
}

export const changesText = (changes: readonly Change[]): string[] => changes.flatMap(changeText);
