import { fuzz } from "./engine/suite.ts";

fuzz("policy", async () => {
  const { policies } = await import("./targets/policy.ts");
  return policies;
});
