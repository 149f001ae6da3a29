import type { Finding } from "./finding.ts";
import { firewallChecks } from "./firewall-checks.ts";
import type { Host } from "./host.ts";
import { kernelChecks } from "./kernel-checks.ts";
import { serviceChecks } from "./service-checks.ts";
import { settingsOf } from "./settings.ts";

/** What of a host keeps podnetd from its work; looks, and changes nothing. Needs no podnetd. */
export async function examine(host: Host): Promise<Finding[]> {
  const settings = await settingsOf(host);
  return [
    ...(await kernelChecks(host)),
    ...(await firewallChecks(host)),
    ...(await serviceChecks(host, settings)),
  ];
}
