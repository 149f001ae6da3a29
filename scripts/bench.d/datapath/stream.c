/*
 * Traffic for `scripts/bench datapath`, the same program in guests and on hosts:
 *   stream receive PORT             a line of MB/s for each TCP connection and each burst of UDP
 *   stream tcp ADDRESS PORT MS      sends for so long
 *   stream udp ADDRESS PORT MS
 *   stream ping ADDRESS COUNT MS    microseconds of each ICMP echo, a line each, after so long of
 *                                   echoes that do not count
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char buffer[128 * 1024];

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static int fail(const char *what) {
  perror(what);
  exit(1);
}

static int opened(int type, int protocol) {
  int fd = socket(AF_INET, type, protocol);
  return fd < 0 ? fail("socket") : fd;
}

static struct sockaddr_in address(const char *ip, const char *port) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  if (ip && !inet_aton(ip, &to.sin_addr)) fail(ip);
  return to;
}

static int bound(int type, const char *port) {
  struct sockaddr_in to = address(NULL, port);
  int fd = opened(type, 0), on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr *)&to, sizeof to) < 0) fail("bind");
  return fd;
}

/*
 * Reads until the end: of TCP its own, of UDP a datagram of one byte, of which more than one comes.
 */
static void count(int fd, int datagrams) {
  double begin = 0, last = 0, bytes = 0;
  for (;;) {
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    if (poll(&wanted, 1, datagrams ? 5000 : -1) == 0) break;
    ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    if (datagrams && got == 1 && bytes == 0) return;
    if (got <= 0 || (datagrams && got == 1)) break;
    last = now();
    if (bytes == 0) begin = last;
    bytes += (double)got;
  }
  printf("%.3f\n", bytes / 1e3 / (last - begin));
  fflush(stdout);
}

static void receive(const char *port) {
  int listener = bound(SOCK_STREAM, port), datagrams = bound(SOCK_DGRAM, port);
  if (listen(listener, 8) < 0) fail("listen");
  puts("up");
  fflush(stdout);
  for (;;) {
    struct pollfd both[] = {{.fd = listener, .events = POLLIN}, {.fd = datagrams, .events = POLLIN}};
    poll(both, 2, -1);
    if (both[1].revents) count(datagrams, 1);
    if (!both[0].revents) continue;
    int fd = accept(listener, NULL, NULL);
    count(fd, 0);
    close(fd);
  }
}

static void transmit(int type, const char *ip, const char *port, double ms, size_t size) {
  struct sockaddr_in to = address(ip, port);
  int fd = opened(type, 0);
  if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) fail("connect");
  for (double end = now() + ms; now() < end;)
    if (send(fd, buffer, size, MSG_NOSIGNAL) < 0 && type == SOCK_STREAM) fail("send");
  for (int left = type == SOCK_DGRAM ? 10 : 0; left > 0; left--) {
    usleep(20000);
    (void)!send(fd, buffer, 1, MSG_NOSIGNAL);
  }
}

static uint16_t checksum(const uint16_t *words, size_t words_count) {
  uint32_t sum = 0;
  while (words_count--) sum += *words++;
  sum = (sum >> 16) + (sum & 0xffff);
  return (uint16_t)~(sum + (sum >> 16));
}

static void ping(const char *ip, int times, double warm) {
  struct sockaddr_in to = address(ip, "0");
  int fd = opened(SOCK_RAW, IPPROTO_ICMP);
  if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) fail("connect");
  const double start = now() + warm;
  for (uint16_t number = 1; times > 0; number++) {
    struct icmphdr echo = {.type = ICMP_ECHO, .un.echo = {.id = htons((uint16_t)getpid()), .sequence = htons(number)}};
    echo.checksum = checksum((uint16_t *)&echo, sizeof echo / 2);
    double begin = now();
    if (send(fd, &echo, sizeof echo, 0) < 0) fail("send");
    for (;;) {
      struct pollfd wanted = {.fd = fd, .events = POLLIN};
      if (poll(&wanted, 1, 1000) == 0) fail("no answer");
      ssize_t got = recv(fd, buffer, sizeof buffer, 0);
      struct icmphdr *answer = (struct icmphdr *)(buffer + 20);
      if (got < 28 || answer->type != ICMP_ECHOREPLY || answer->un.echo.sequence != htons(number)) continue;
      if (answer->un.echo.id == htons((uint16_t)getpid())) break;
    }
    if (begin < start) continue;
    printf("%.1f\n", (now() - begin) * 1e3);
    times--;
  }
}

int main(int argc, char **argv) {
  const char *what = argc > 2 ? argv[1] : "";
  if (!strcmp(what, "receive")) receive(argv[2]);
  else if (!strcmp(what, "ping") && argc > 4) ping(argv[2], atoi(argv[3]), atof(argv[4]));
  else if (!strcmp(what, "tcp") && argc > 4) transmit(SOCK_STREAM, argv[2], argv[3], atof(argv[4]), 65536);
  else if (!strcmp(what, "udp") && argc > 4) transmit(SOCK_DGRAM, argv[2], argv[3], atof(argv[4]), 1400);
  else return fputs("stream receive|tcp|udp|ping …\n", stderr), 2;
  return 0;
}
