import { Metrics } from "../../daemon/main/metrics.ts";

/** What asks for a number gets none: only names, labels and help are wanted. */
const never = (): never => {
  throw new Error("A page of documentation has no numbers");
};

/** The page of every metric that podnetd shows but those of Node itself. */
export function metricsPage(): string {
  const metrics = new Metrics({ pods: never, pools: never });
  metrics.followAttachments(never);
  metrics.followServices({ list: never, healthChanges: [] });
  metrics.followConnections(never);
  metrics.followDefects(never);
  metrics.followQueues(never);
  const counts = { queries: 0, forwarded: 0, timeouts: 0, refused: 0, stale: 0 };
  metrics.followNames({ counts });
  metrics.followOverlays({ list: never, nodes: never, failures: never });
  metrics.followPods(never);
  metrics.followPool({ counts: never, unlike: 0 });
  metrics.followPorts({ counts: never, size: 0 });
  metrics.followTraffic(never);
  const rows = metrics.described().map(({ name, type, labels, help }) => {
    const cells = [`\`${name}\``, type, labels.map((label) => `\`${label}\``).join(", "), help];
    return `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  });
  return `# Metrics

\`GET /metrics\` on podnetd's socket, or on its TCP address, answers in Prometheus' text format. The
role \`viewer\` is enough. Counters begin at 0 when podnetd starts, those of a pod when its machine or
interface does. [How to see the traffic](../how-to/traffic.md) explains the metrics of pods;
\`metrics.pods = false\` leaves them out.

podnetd also shows its own memory, descriptors and event loop as \`process_*\` and \`nodejs_*\`.

| metric | type | labels | meaning |
|---|---|---|---|
${rows.join("\n")}
`;
}
