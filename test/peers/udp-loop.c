/*
 * A tunnel by the method of flannel's udp backend: a tun, a UDP socket, one read and one send for
 * each packet, one receive and one write for each datagram. Written for benchmarks, from what
 * flannel does and not from its source. udp-loop DEVICE LOCAL-IP PORT TUN-ADDRESS {SUBNET
 * PREFIX-LENGTH HOST}...
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

struct route { uint32_t network, mask; struct sockaddr_in host; };
static struct route routes[64];
static int route_count;

static void fail(const char *what) { perror(what); exit(1); }

static struct sockaddr_in *find(uint32_t to) {
  for (int i = 0; i < route_count; i++)
    if ((to & routes[i].mask) == routes[i].network) {
      struct route hit = routes[i];
      if (i > 0) { routes[i] = routes[0]; routes[0] = hit; }
      return &routes[0].host;
    }
  return NULL;
}

static int lower_ttl(struct iphdr *ip) {
  if (--ip->ttl == 0) return 0;
  uint32_t sum = ip->check + htons(0x100);
  ip->check = sum + (sum >= 0xffff);
  return 1;
}

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  if (tun < 0) fail("tun");
  struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI };
  strncpy(request.ifr_name, argv[1], IFNAMSIZ - 1);
  if (ioctl(tun, TUNSETIFF, &request) < 0) fail("TUNSETIFF");
  int udp = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[3])) };
  inet_pton(AF_INET, argv[2], &own.sin_addr);
  if (bind(udp, (struct sockaddr *)&own, sizeof own) < 0) fail("bind");
  for (int i = 5; i + 2 < argc && route_count < 64; i += 3) {
    struct route *route = &routes[route_count++];
    inet_pton(AF_INET, argv[i], &route->network);
    route->mask = htonl(~0u << (32 - atoi(argv[i + 1])));
    route->host = own;
    inet_pton(AF_INET, argv[i + 2], &route->host.sin_addr);
  }
  puts("ready");
  fflush(stdout);
  static char packet[65536];
  struct iphdr *ip = (struct iphdr *)packet;
  struct pollfd ready[2] = { { tun, POLLIN, 0 }, { udp, POLLIN, 0 } };
  for (;;) {
    if (poll(ready, 2, -1) < 0 && errno != EINTR) fail("poll");
    for (int any = 1; any;) {
      any = 0;
      ssize_t size = read(tun, packet, sizeof packet);
      if (size >= (ssize_t)sizeof *ip) {
        any = 1;
        struct sockaddr_in *host = find(ip->daddr);
        if (ip->version == 4 && host != NULL && lower_ttl(ip))
          sendto(udp, packet, size, 0, (struct sockaddr *)host, sizeof *host);
      }
      size = recv(udp, packet, sizeof packet, MSG_DONTWAIT);
      if (size >= (ssize_t)sizeof *ip) {
        any = 1;
        if (lower_ttl(ip) && write(tun, packet, size) < 0 && errno == EBADFD) return 1;
      }
    }
  }
}
