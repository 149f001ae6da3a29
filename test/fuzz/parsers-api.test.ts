import { fuzz } from "./engine/suite.ts";

fuzz("api", async () => {
  const [
    { api },
    { hyperd },
    { jsonpath },
    { networkSpecs },
    { settingTexts },
    { storedPlans },
    { streams },
  ] = await Promise.all([
    import("./targets/api.ts"),
    import("./targets/hyperd.ts"),
    import("./targets/jsonpath.ts"),
    import("./targets/networks.ts"),
    import("./targets/settings.ts"),
    import("./targets/stored-plans.ts"),
    import("./targets/streams.ts"),
  ]);
  return [...api, ...hyperd, jsonpath, networkSpecs, ...settingTexts, storedPlans, streams];
});
