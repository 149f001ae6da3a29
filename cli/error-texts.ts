import type { ErrorCode } from "../core/errors.ts";

// Made from docs/reference/errors by scripts/generate.

/** What each code means, and, after an empty line, what to do. */
export const errorTexts: Readonly<Record<ErrorCode, string>> = {
  INVALID_ARGUMENT: `
A field of the request, or a flag of the command, has a value that podnet does not accept.

field names it; the hint says which values are accepted.`,
  UNKNOWN_FIELD: `
The request or a pod file has a field that does not exist.

Correct the spelling: field is the path, and the hint suggests a name. Both memory_mib and
memoryMib are accepted.`,
  ADDRESS_INVALID: `
The value is not a valid IP address, or one that no single machine can have: loopback, multicast,
broadcast. Or a gateway is the address of the interface itself.

Write an address such as 192.168.123.2 or fd00::2, with /length where a prefix length is
needed.`,
  ADDRESS_OUT_OF_RANGE: `
An address is outside of its network, or a gateway is outside of the network of its interface.

Choose one inside: podnet network list shows the range of each network.`,
  ADDRESS_RESERVED: `
The address is reserved: network, broadcast or gateway address, or a range that the configuration
reserves.

Choose another address, or leave address out.`,
  ADDRESS_IN_USE: `
Another pod, or another interface of this request, has the address.

details.holder names it. Choose another address, or delete that pod.`,
  ADDRESS_NOT_ALLOCATED: `
podnet tried to release an address that nothing holds.

This is a defect of podnet or a damaged database: see podnetd's log, and report it.`,
  POOL_EXHAUSTED: `
The network has no free address. podnet has already used addresses in quarantine.

Delete pods, or configure a larger network.`,
  NAME_IN_USE: `
Another pod, network or interface has the name, or a link of the host that podnet has not made.

Choose another name, or delete what has it.`,
  PORT_IN_USE: `
Another pod or a program on the host uses the host port that is to be published.

details.holder names the pod, or the program with its pid, or its user where podnetd may not see
the program. Choose another host port, or let podnet choose one with 0.`,
  PORTS_EXHAUSTED: `
podnet was to choose a host port, and its range has no sequence of free ports that is long enough.

Unpublish ports, set publish_ports to a larger range, or name the host port.`,
  MAC_INVALID: `
The value is not an Ethernet address, or one that no single card can have.

Write six pairs of hexadecimal digits; the first must be even: 52:54:00:12:34:56.`,
  MAC_IN_USE: `
Another interface has the Ethernet address.

Choose another one, or leave mac out.`,
  MTU_OUT_OF_RANGE: `
The MTU is below 576 (1280 with IPv6), above 65535, or above the network's.

The hint gives the range. Without mtu the interface gets the network's MTU.`,
  GATEWAY_CONFLICT: `
The request has two default routes of one address family: two gateways, or a gateway and a default
route.

Keep one of them, and write routes for the networks behind the other.`,
  MEMORY_TOO_SMALL: `
The pod has too little memory. No guest boots with less than 32 MiB, the default image not with less
than 80, and other images not with less than their kernel and unpacked initramfs need.

Give at least what the hint says.`,
  REQUEST_CONFLICT: `
A different request used this request_id within the last 24 hours.

Use a new id for a new request. To join the old request, repeat it unchanged.`,
  POD_NOT_FOUND: `
No pod has this name or id, and no id begins with it. If several ids do, the error is
INVALID_ARGUMENT.

See podnet list.`,
  NETWORK_NOT_FOUND: `
No network has this name.

See podnet network list.`,
  POLICY_NOT_FOUND: `
No policy has this name.

See podnet policy list.`,
  SERVICE_NOT_FOUND: `
No service has this name.

See podnet service list.`,
  IMAGE_NOT_FOUND: `
No image of this host has this name or digest.

See podnet image list.`,
  INTERFACE_NOT_FOUND: `
The pod has no interface with this guest name, or the interface is being removed. For a container:
it has no attachment with this name, or its interface was renamed or moved inside of it.

See podnet interface list POD or podnet cni list. Give a container's interface its name back, or
end the container.`,
  DISK_NOT_FOUND: `
The pod has no plugged disk with this name. Disks that a pod boots with cannot be removed. As the
reason of a pod: the disk is not in the VM any more, because the guest or another program took it
out.

See podnet disk list POD. Remove the disk and add it again, or restart the pod.`,
  EXEC_NOT_FOUND: `
No program has this id. Ids end with the pod's machine, and with podnetd. A pod keeps the last 32
programs that podnet exec --detach started.

See podnet execs list.`,
  CONTAINER_NOT_FOUND: `
No container of a sandbox has this id. Ids in CRI are whole, and go with their sandbox.

See ListContainers, as crictl ps -a shows it.`,
  NETWORK_IN_USE: `
The network cannot be deleted because pods use it, or a subnet cannot be removed because its
addresses are in use.

Delete those pods, or remove their interfaces from the network. Details: network, pods, and
subnet for a subnet.`,
  NETWORK_OVERLAP: `
A subnet of the new network overlaps with a route or an address of the host, or with another
network. What is behind that would become unreachable.

Choose addresses that the host does not use, or use --force. Details: subnet, overlaps.`,
  WRONG_STATE: `
The state of the pod does not allow this. Examples: exec in a pod that is stopped or paused, a
capture on a NIC that its guest has released, a console on which another client types
(details.holder). Or the CNI plugin cannot be uninstalled or moved while containers are attached
(details.containers is their number).

podnet get POD shows the state and its reason, as does details.state. podnet resume continues
a paused pod; podnet start starts a stopped one. Stop containers (podnet cni list) before you
uninstall the plugin, or use --force.`,
  UNSUPPORTED: `
This podnetd, its driver, or the guest's agent cannot do this. The memory and the processors of a
pod cannot be changed. Rules of policies that match domains decide about TCP ports 80 and 443 alone.

Compare the versions (podnet version). podnet get lists under Cannot what a plain hyperstart
lacks. To change resources, delete the pod and create it again.`,
  PREFLIGHT_FAILED: `
podnet needs something that is missing or forbidden: a right, a program, a device, a kernel feature.

The hint names it.`,
  CONFIG_INVALID: `
A key of the configuration file, a PODNET_* variable or a flag is wrong.

field is the key; details says where it was set.`,
  ALREADY_RUNNING: `
Another podnetd uses the state directory, the run directory, the directory of disks, the control
group or the socket, or manages this network namespace. This podnetd has changed nothing.

Use the podnetd that runs. Or give this one its own directories, control group (qemu.cgroup),
network namespace and socket.`,
  STATE_CORRUPT: `
The database cannot be read, contradicts itself, has fewer commits than it had, or does not know VMs
that run (details: pods, pids, run_dirs). A running podnetd ends with exit code 1; a
starting one refuses. VMs keep running in any case. **Of a pod:** its record is damaged; the message
says how. The pod is shown as failed, calls for it get this error, and its VM keeps running, without
host ports and rules. All other pods work. **Of a container:** its record is damaged.
podnet cni list says how, its links stay as they are, and CHECK gets this error. All other
containers work.

**Of a pod:** podnetd state adopt, with podnetd stopped, recovers the VM from the plan that is
kept next to the database. podnet delete --force POD ends it and removes what it can find of the
pod. **Of a container:** remove it with its runtime. DEL, or the runtime's GC, removes its links,
rules and record, and releases its addresses. **Of the database:** podnetd state shows what
exists, podnetd state adopt recovers the VMs, podnetd state remove --yes ends the unknown ones:
see When the state is lost. Keep a copy of
the state directory, and report the error.`,
  STATE_NEWER: `
A newer podnet wrote the database.

Run that version, or delete the pods with it first.`,
  STATE_UNWRITABLE: `
The state directory or the run directory cannot be written: no permission, or no space. After a
forced delete: VM and disk are gone, and the record stays until there is space.

Free space, or correct the owner. While the state directory is nearly full, pods can be listed,
stopped, started and deleted, but not created. podnetd continues by itself when there is space.`,
  BRIDGE_CONFLICT: `
A link with the bridge's name exists and does not fit: it is not a bridge, or it has other
addresses.

Configure another bridge, or the real range of the network. podnet does not change what it did not
make.`,
  BRIDGE_FULL: `
The bridge has 1,023 ports, which is the kernel's limit.

Delete pods, or use a second network.`,
  TAP_CONFLICT: `
The foreign tap that an interface is to use (tap_kept) does not exist, is not a tap, is not
persistent, has several queues, or is in use.

Make one with ip tuntap add dev NAME mode tap, or end the program that has it open.`,
  OVERLAY_CONFLICT: `
A device that an overlay needs is foreign and does not fit, another device has its VNI, or the
public address is not the interface's, which host-gw needs. Or the overlay's network overlaps with
another overlay, or with addresses or routes of this host.

Remove the device, or configure another VNI; use the backend vxlan; or give the overlay addresses
that no host uses. overlay.allow_overlap accepts overlaps. details names the device, or what the
network overlaps with.`,
  NETNS_UNUSABLE: `
The network namespace for a container or a VM does not exist, is not a network namespace, is
podnetd's own, may not be opened by podnetd, or is not the one that the container was added in.

Create the sandbox again, with its own namespace. details has the path and the reason.`,
  CHAIN_CONFLICT: `
The iptables chain, or with firewall = "nftables" the table inet podnet, exists and is not
podnet's.

Configure another iptables_chain, or remove the other program's chain or table.`,
  FIREWALL_FAILED: `
iptables or nftables rejected podnet's rules, libnftables is missing, or podnetd may not read the
rules of iptables-legacy.

details has the message; the command prints it. Often a kernel module is missing, or another
program holds the lock. Without root, podnetd needs CAP_NET_RAW to read the rules of
iptables-legacy, and write access to /run/xtables.lock (daemon/share-xtables-lock USER as root);
or set iptables_variant.`,
  NETLINK_FAILED: `
The kernel rejected a change of links, addresses or routes.

details has the errno and the kernel's message.`,
  SYSCALL_FAILED: `
A system call failed.

details has its name and errno.`,
  COMMAND_FAILED: `
A program failed that podnetd ran, or that podnet cp ran in a guest.

details has its arguments, exit code and standard error.`,
  IMAGE_MISSING: `
The kernel, the initramfs or a disk does not exist; or the copy-on-write file of a pod's disk does
not.

Correct the path, or build the default image: scripts/build-image. A pod does not start without
its copy-on-write file: put it back, or delete the pod.`,
  IMAGE_UNREADABLE: `
The kernel, the initramfs or a disk cannot be read, or is not valid: empty, truncated, no whole
sectors, or a qcow2 image that is encrypted, corrupt or names other files. Or an image was changed
after a pod began to write on top of it. Or what is imported is no container image: the message says
what it is, such as a vmdk disk, and the hint what to do with it.

Check permissions and format; details.path names the file. qemu-img convert merges an image with
its backing file.`,
  IMAGE_IN_USE: `
Another pod (details.holder) or program writes to the file. Or the request asks to write through
(write_through) to a file that another pod uses as a disk or boots from, or that is the node's
default image.

Delete that pod, copy the image, or leave write_through out: any number of pods can share an image
that nothing writes to.`,
  SHARE_UNUSABLE: `
A directory that a pod is to have (shares) cannot be shared: it does not exist, is no directory,
may not be read by others, or a link has taken its place since the pod was created. One that the pod
writes to belongs to root or to podnetd's user, or its owner may not write to it. Or what served it
to a running pod has ended.

details.path names the directory. A machine is a user of its own, so only the permissions for
others count: chmod o+rx DIRECTORY. What a pod writes is the directory's owner's: give it a user
of its own. A pod that has lost a share has to be stopped and started.`,
  REGISTRY_UNREACHABLE: `
The registry of an image cannot be reached: its name has no address, nothing answers there, or its
certificate is not trusted.

details.reason has the system's word for it. For a certificate of an authority of your own set
images.ca; for a registry without TLS name it in images.insecure.`,
  REGISTRY_DENIED: `
The registry does not let podnet read the image.

Put credentials for it into images.auth_file. Some registries answer so for images that they do
not have.`,
  REGISTRY_FAILED: `
The registry answers, but not as the protocol says: an error of the server, a redirect to a place
without TLS, or more bytes than belong there.

Try again later, and see the registry's own log.`,
  QEMU_MISSING: `
The qemu-system program for this VM is not in PATH. podnetd runs without it, for containers only;
pods cannot be created or started.

Install it (apt-get install qemu-system-x86; for arm64 VMs qemu-system-arm), or configure its
path (qemu.path). podnetd need not be restarted.`,
  JAIL_FAILED: `
QEMU could not be confined: the launcher is missing, or the kernel refused one of its steps.

The message names the step. Build the launcher (scripts/build-jail). How to confine
VMs says what it needs.`,
  QEMU_EXITED: `
QEMU ended by itself.

details.console has the end of the guest's console. The command prints it, as does
podnet get POD for a pod that failed later. The console itself is kept only while the VM runs.`,
  QMP_FAILED: `
QEMU rejected a command.

details has the command, and QEMU's error class and description.`,
  QMP_PROTOCOL: `
QEMU's monitor sent something that is not QMP.

Report it, with QEMU's version.`,
  QMP_TIMEOUT: `
QEMU did not answer in time.

The host may be overloaded, or QEMU's process is stopped or waits for a device, which the hint says.
podnet stop --force POD ends the VM and keeps the pod.`,
  QMP_IN_USE: `
A QMP socket sends no greeting: another client uses it, or it is not a QMP socket.

QEMU serves one client per monitor. End the other client, or start the VM with a second -qmp for
podnet.`,
  NIC_SLOTS_FULL: `
The VM has no free slot for another NIC.

Remove an interface, or use fewer.`,
  NIC_UNPLUG_PENDING: `
The guest has not released a NIC that was removed. Its traffic is already cut.

Wait until the guest releases it; otherwise restart or delete the pod.`,
  BOOT_FAILED: `
The guest restarted before its agent was ready, as a kernel does one second after a panic.

details.console has the end of its console, which the command prints below the hint. Give the
guest more memory, or another kernel or initramfs.`,
  AGENT_TIMEOUT: `
The agent did not answer in time: the guest did not boot, or it has no agent. With a plain
hyperstart: a podnetd may have been killed in the middle of a command, and the hyperstart still
waits for the rest. With podnet cp: the guest neither sent nor accepted anything for a minute.

details.console has the end of the guest's console, which the command prints; podnet logs POD
has more while the pod runs. On a slow host, allow more time with --timeout. Delete a pod whose
hyperstart stays silent.`,
  AGENT_PROTOCOL: `
The agent broke the protocol, its answer contradicts the plan, or it sent meaningless messages or
more than it may. podnetd then disconnects it, and connects again after a pause that grows to half a
minute. With podnet cp: the guest's archive contains what was not asked for, or has no end.

Use an image with podnet's agent; if it was one, report the error. Do not trust a guest whose
archive is refused.`,
  AGENT_REFUSED: `
The agent answered with an error.

The message is the guest's own. Often a driver is missing in the guest.`,
  AGENT_DISCONNECTED: `
The agent's channel closed.

The guest or its agent has ended; see podnet get POD. While the VM runs, podnetd connects again:
the pod runs on, with this as its reason.`,
  HOST_RESTARTED: `
The pod ran before the host's last boot.

podnet start POD starts it with its addresses; or delete it.`,
  PROCESS_FAILED: `
The pod's main process could not be started, or it ended with an exit code other than 0.

exit_code in the details is the process's own, 128 + n for signal n, 137 when it ended with its
machine; of one that did not start 127 (no such program), 126 (it cannot be executed) or 125 (no
such user). See what it wrote with podnet logs POD.`,
  ETCD_UNREACHABLE: `
No endpoint of etcd answered, or those that answered have no leader. With uncertain in the
details, the request may have taken effect.

Check that etcd runs and that this host reaches it. podnetd tries again by itself.`,
  ETCD_DENIED: `
etcd and this host do not trust each other's certificates, or the user, password or permissions are
not sufficient.

Compare the certificates and authorities of both ends; look the user up with etcdctl user get. If
a right is missing, the message names it with the keys, the hint shows how to grant it, and
details.right is read, write or readwrite. The rights that podnet
needs.`,
  ETCD_COMPACTED: `
etcd has discarded the history before a revision.

podnetd reads the keys again by itself.`,
  ETCD_LEASE_GONE: `
A lease in etcd has ended, or was revoked.

podnetd requests a new one by itself.`,
  ETCD_FAILED: `
etcd refused for another reason: no space left, or a request that is too large.

The message is etcd's own; see its log.`,
  KUBERNETES_UNREACHABLE: `
The API server did not answer, or is overloaded.

Check that it runs, and that this host reaches the address in the kubeconfig. Routes to other hosts
stay as they are meanwhile.`,
  KUBERNETES_DENIED: `
The API server and this host do not trust each other's certificates, or the token or the RBAC rules
of podnetd's user are not sufficient. Or a file with a token or a certificate cannot be read.

The message is the API server's own, and names the missing right. The rights that podnetd
needs. podnetd reads its token and
certificates for each request, so that new ones need no restart.`,
  KUBERNETES_EXPIRED: `
The API server has discarded the changes after a version.

podnetd lists all Nodes again by itself.`,
  KUBERNETES_CONFLICT: `
Another program changed this host's Node at the same time, several times in a row.

podnetd reads the Node and decides again by itself. If the problem stays, look for a second program
that writes flannel's annotations of this Node.`,
  KUBERNETES_FAILED: `
The API server refused for another reason, or its answer is not one of an API server.

The message is the API server's own; see its log. Check the address in the kubeconfig.`,
  OVERLAY_NOT_FOUND: `
This host is in no overlay with this name, or in none at all.

See podnet overlay list. overlay.etcd.endpoints or overlay.subnet_manager in the
configuration makes the host part of one.`,
  OVERLAY_NOT_READY: `
The network takes its addresses from an overlay in which this host has no subnet yet, no longer has
one, or is about to get another one.

details.phase says which. Wait; see podnet overlay list for problems; or use
podnet overlay join after a leave. If the overlay's range changed, the network follows when the
last pod on the former subnet is gone. Running pods continue.`,
  OVERLAY_CONFIG_INVALID: `
The overlay's configuration, in etcd or in net-conf.json, breaks one of flannel's rules.

field is the key, and details.rule is the rule. Correct the configuration; podnetd looks again
by itself.`,
  SUBNET_TAKEN: `
Another host has the subnet, or one that overlaps with it; or the address belongs to another host.

Choose another subnet, or release that one: details names its holder.`,
  UNAUTHENTICATED: `
podnetd does not know who calls: the client's certificate has no name.

Use a certificate with a common name, or a DNS, URI or e-mail name.`,
  PERMISSION_DENIED: `
The caller's role does not allow the call, or the caller has none. The message names the caller and
the role that the call needs. Or a pod names a kernel, initrd or disk (field) that only
administrators may name. Or podnetd's user may not open a socket of the VM that is to be attached
(field, details.path).

Ask an administrator for an entry in [access]; podnet info shows who you are. Put files into one
of the directories that the message names (access.image_paths). Let podnetd's user write to the
socket, and search the directories above it.`,
  LIMIT_REACHED: `
The caller sends too many requests at once or too fast, or a request is too large. details.limit
names the key of the configuration. It is request_bytes or request_values for a message that is
longer, or has more fields and entries, than its method accepts. With
podnet cp: the guest sent more than --limit.

Wait (details.retry_after_ms says how long, where time helps), end concurrent calls, send less at
once, or raise the limit.`,
  EVENTS_LOST: `
The watch cannot continue: it was too slow, or asks for events that podnetd no longer keeps.

List again, or watch without a cursor.`,
  CANCELLED: `
The caller gave up, or podnetd is stopping.

A cancelled create is undone; repeat it. A command that signal n interrupted exits with 128+n.`,
  DEADLINE_EXCEEDED: `
The time limit was not enough.

Allow more time, or see in the log which step took it. A create is undone.`,
  DAEMON_UNREACHABLE: `
podnetd does not answer at its socket.

Start it, name its socket (--socket, PODNET_SOCKET), or join the group podnet; the hint says
which.`,
  VERIFY_MISMATCH: `
A CNI CHECK found that a container's network is not as podnetd added it. The message says what
differs.

podnetd repairs it by itself if drift_s is not 0. podnet cni list shows what it cannot repair.`,
  INTERNAL: `
A defect of podnet.

Report it with podnetd's log.`,
};
