import { fuzz } from "./engine/suite.ts";

fuzz("kernel", async () => {
  const [
    { rtnetlink },
    { conntrack },
    { packets },
    { qmp },
    { dhcp },
    { tunnels },
    { icmp },
    { trafficControl },
    { netfilterLog },
    { nftrace },
    { setElements },
  ] = await Promise.all([
    import("./targets/rtnetlink.ts"),
    import("./targets/conntrack.ts"),
    import("./targets/packets.ts"),
    import("./targets/qmp.ts"),
    import("./targets/dhcp.ts"),
    import("./targets/tunnels.ts"),
    import("./targets/icmp.ts"),
    import("./targets/traffic-control.ts"),
    import("./targets/netfilter-log.ts"),
    import("./targets/nftrace.ts"),
    import("./targets/set-elements.ts"),
  ]);
  return [
    ...rtnetlink,
    ...conntrack,
    ...packets,
    ...qmp,
    ...dhcp,
    ...tunnels,
    icmp,
    ...trafficControl,
    netfilterLog,
    nftrace,
    setElements,
  ];
});
