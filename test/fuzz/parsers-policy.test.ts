import { fuzz } from "./engine/suite.ts";

fuzz("policy", async () => {
  const [{ policies }, { starts }] = await Promise.all([
    import("./targets/policy.ts"),
    import("./targets/starts.ts"),
  ]);
  return [...policies, ...starts];
});
