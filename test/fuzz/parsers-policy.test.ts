import { fuzz } from "./engine/suite.ts";

fuzz("policy", async () => {
  const [{ policies }, { starts }, { dnsAnswers }, { relayReports }] = await Promise.all([
    import("./targets/policy.ts"),
    import("./targets/starts.ts"),
    import("./targets/dns-answers.ts"),
    import("./targets/relay-reports.ts"),
  ]);
  return [...policies, ...starts, dnsAnswers, relayReports];
});
