import { fuzz } from "./engine/suite.ts";

fuzz("api", async () => {
  const [{ api }, { settingTexts }] = await Promise.all([
    import("./targets/api.ts"),
    import("./targets/settings.ts"),
  ]);
  return [...api, ...settingTexts];
});
