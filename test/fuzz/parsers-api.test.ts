import { fuzz } from "./engine/suite.ts";

fuzz("api", async () => {
  const [{ api }, { networkSpecs }, { settingTexts }] = await Promise.all([
    import("./targets/api.ts"),
    import("./targets/networks.ts"),
    import("./targets/settings.ts"),
  ]);
  return [...api, networkSpecs, ...settingTexts];
});
