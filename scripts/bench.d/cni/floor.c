/*
 * The least that an ADD and a DEL can do: a CNI plugin of one process that makes the system calls
 * podnetd cannot do without, and waits until one row is on the disk. It makes a veth pair with one
 * end in the container, joins the host's end to the bridge, sets address and route inside, and
 * appends a row with fdatasync(2). It reads no configuration: the bridge is `floor0`, the rows
 * stand in `rows` of CNI_PATH, and the number at the end of the container's ID makes its address.
 * There are no rules, no looks at what exists, and nothing is undone after an error.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FIRST_ADDRESS = 0x0a580002, GATEWAY = 0x0a580001, PREFIX = 20, MOST_REPLY = 1 << 15 };

struct message {
  struct nlmsghdr header;
  char body[1024];
};

static void die(const char *what) {
  perror(what);
  exit(1);
}

static int open_netlink(void) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) die("socket");
  return fd;
}

/* Begins a message with its fixed header. */
static void begin(struct message *message, int type, int flags, const void *fixed, size_t size) {
  memset(message, 0, sizeof *message);
  message->header.nlmsg_type = type;
  message->header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
  message->header.nlmsg_len = NLMSG_LENGTH(size);
  memcpy(NLMSG_DATA(&message->header), fixed, size);
}

static struct rtattr *put(struct message *message, int type, const void *data, size_t size) {
  size_t at = NLMSG_ALIGN(message->header.nlmsg_len);
  struct rtattr *attribute = (struct rtattr *)((char *)message + at);
  attribute->rta_type = type;
  attribute->rta_len = RTA_LENGTH(size);
  if (size > 0) memcpy(RTA_DATA(attribute), data, size);
  message->header.nlmsg_len = at + RTA_ALIGN(attribute->rta_len);
  return attribute;
}

/* Ends an attribute that holds all attributes after it. */
static void close_nest(struct message *message, struct rtattr *nest) {
  nest->rta_len = (char *)message + message->header.nlmsg_len - (char *)nest;
}

/* Sends a message and waits until the kernel has carried it out. */
static void request(int fd, struct message *message, const char *what) {
  static char reply[MOST_REPLY];
  if (send(fd, message, message->header.nlmsg_len, 0) < 0) die(what);
  if (recv(fd, reply, sizeof reply, 0) < 0) die(what);
  const struct nlmsghdr *header = (const struct nlmsghdr *)reply;
  const struct nlmsgerr *answer = NLMSG_DATA(header);
  if (header->nlmsg_type != NLMSG_ERROR || answer->error != 0) {
    fprintf(stderr, "%s: %s\n", what, strerror(-answer->error));
    exit(1);
  }
}

static void make_veth(int fd, const char *name, int container) {
  struct ifinfomsg link = {.ifi_family = AF_UNSPEC};
  struct message message;
  begin(&message, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &link, sizeof link);
  put(&message, IFLA_IFNAME, name, strlen(name) + 1);
  struct rtattr *info = put(&message, IFLA_LINKINFO, NULL, 0);
  put(&message, IFLA_INFO_KIND, "veth", 4);
  struct rtattr *data = put(&message, IFLA_INFO_DATA, NULL, 0);
  struct rtattr *peer = put(&message, VETH_INFO_PEER, &link, sizeof link);
  put(&message, IFLA_IFNAME, "eth0", 5);
  put(&message, IFLA_NET_NS_FD, &container, sizeof container);
  close_nest(&message, peer);
  close_nest(&message, data);
  close_nest(&message, info);
  request(fd, &message, "veth");
}

/* Sets a link up, and joins it to a bridge unless `bridge` is 0. */
static void set_up(int fd, unsigned index, unsigned bridge) {
  struct ifinfomsg link = {.ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
  struct message message;
  begin(&message, RTM_NEWLINK, 0, &link, sizeof link);
  if (bridge != 0) put(&message, IFLA_MASTER, &bridge, sizeof bridge);
  request(fd, &message, "link up");
}

static void add_address(int fd, unsigned index, unsigned address) {
  struct ifaddrmsg header = {.ifa_family = AF_INET, .ifa_prefixlen = PREFIX, .ifa_index = index};
  struct message message;
  begin(&message, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &header, sizeof header);
  address = htonl(address);
  put(&message, IFA_LOCAL, &address, sizeof address);
  put(&message, IFA_ADDRESS, &address, sizeof address);
  request(fd, &message, "address");
}

static void add_route(int fd, unsigned index) {
  struct rtmsg header = {
      .rtm_family = AF_INET,
      .rtm_table = RT_TABLE_MAIN,
      .rtm_protocol = RTPROT_BOOT,
      .rtm_scope = RT_SCOPE_UNIVERSE,
      .rtm_type = RTN_UNICAST,
  };
  struct message message;
  begin(&message, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &header, sizeof header);
  unsigned gateway = htonl(GATEWAY);
  put(&message, RTA_GATEWAY, &gateway, sizeof gateway);
  put(&message, RTA_OIF, &index, sizeof index);
  request(fd, &message, "route");
}

static void delete_link(int fd, unsigned index) {
  struct ifinfomsg link = {.ifi_index = index};
  struct message message;
  begin(&message, RTM_DELLINK, 0, &link, sizeof link);
  request(fd, &message, "delete");
}

/* Appends a row, and waits until it is on the disk. */
static void note(const char *directory, const char *verb, const char *container) {
  char line[512], file[512];
  snprintf(file, sizeof file, "%s/rows", directory);
  int length = snprintf(line, sizeof line, "%s %s\n", verb, container);
  int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, line, length) != length || fdatasync(fd) != 0) die(file);
  close(fd);
}

static const char *required(const char *name) {
  const char *value = getenv(name);
  if (value != NULL) return value;
  fprintf(stderr, "%s is not set\n", name);
  exit(1);
}

int main(void) {
  const char *verb = required("CNI_COMMAND"), *container = required("CNI_CONTAINERID");
  const char *digits = container + strlen(container);
  while (digits > container && digits[-1] >= '0' && digits[-1] <= '9') digits--;
  unsigned number = strtoul(digits, NULL, 10);
  char name[IFNAMSIZ];
  snprintf(name, sizeof name, "fl%u", number);
  int host = open_netlink();
  if (strcmp(verb, "ADD") == 0) {
    const char *netns = required("CNI_NETNS");
    int namespace = open(netns, O_RDONLY | O_CLOEXEC);
    if (namespace < 0) die(netns);
    make_veth(host, name, namespace);
    set_up(host, if_nametoindex(name), if_nametoindex("floor0"));
    if (setns(namespace, CLONE_NEWNET) != 0) die("setns");
    int inside = open_netlink();
    unsigned index = if_nametoindex("eth0");
    add_address(inside, index, FIRST_ADDRESS + number);
    set_up(inside, index, 0);
    add_route(inside, index);
    note(required("CNI_PATH"), verb, container);
    printf("{\"cniVersion\":\"1.0.0\",\"interfaces\":[{\"name\":\"floor0\"},{\"name\":\"%s\"}]}\n",
           name);
  } else if (strcmp(verb, "DEL") == 0) {
    unsigned index = if_nametoindex(name);
    if (index != 0) delete_link(host, index);
    note(required("CNI_PATH"), verb, container);
  }
  return 0;
}
