/** README.txt of a report. */
export const about = `A report of podnet about one host, for whoever looks for a mistake.

doctor.json           what podnet doctor found
host.json             the host's answers to it; judge them again: podnet doctor --from host.json
config.txt            podnetd's configuration, each value with its origin
versions.json         versions of podnet, podnetd, Node.js, QEMU and kernel; paths of podnetd
pods.json             pods: specification, interfaces, state, steps of their creation
networks.json         networks and how full they are
plans-and-drift.json  what podnet planned for bridges, ports and rules, and what differs
events.json           the last 500 events of pods
journal.txt           the last 2000 lines of podnetd's log
rules.txt             podnet's tables of nftables, and rules of podnet in others
links.txt             links that podnet made
routes.txt            routes that podnet made

Left out: values of environments, arguments and files of programs; values of keys that are named
like a password, secret, token, key, credential or cookie; passwords in URLs; private keys; headers
of authorisation; consoles and disks of guests. "[redacted]" stands in their place. Names of pods
and hosts, labels, addresses and paths are in. A secret that looks like none can be: read the files
before you send them.

A maintainer makes the networks, the pods and their states again on a simulated host, in a checkout
of podnet: scripts/node test/sim/replay-report.ts REPORT.tar.gz. Events and the log are to read.
`;
