// What one packet costs on its way between two network namespaces of a host, in both directions:
//   packets NAMESPACE ADDRESS NAMESPACE ADDRESS BURSTS
// The first end sends a datagram to the second one and gets an answer, so that the connection is
// known. Then each sends bursts of small datagrams to the other. All of the way — links, bridges,
// routes, rules — is walked within the call that sends. The fastest twentieth of the bursts counts:
// slower ones had to share their processor. Prints nanoseconds a packet there, and back.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { burst = 64, most = 100000 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

static int open_end(const char *space, struct sockaddr_in *at) {
  int ns = open(space, O_RDONLY | O_CLOEXEC);
  if (ns < 0 || setns(ns, CLONE_NEWNET) != 0) err(1, "%s", space);
  close(ns);
  int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  int room = 1 << 20;
  struct timeval wait = {2, 0};
  setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
  setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  socklen_t n = sizeof *at;
  if (bind(s, (void *)at, n) != 0) err(1, "bind");
  if (getsockname(s, (void *)at, &n) != 0) err(1, "getsockname");
  return s;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double cost(int from, int to, int bursts) {
  static double times[most];
  char data[18] = "packet";
  for (int i = 0; i < bursts; i++) {
    double begin = now();
    for (int n = 0; n < burst; n++)
      if (send(from, data, sizeof data, 0) < 0) err(1, "send");
    times[i] = (now() - begin) / burst;
    int arrived = 0;
    while (recv(to, data, sizeof data, arrived < burst ? 0 : MSG_DONTWAIT) > 0)
      if (++arrived == burst) break;
    if (arrived != burst) errx(1, "%d of %d packets arrived", arrived, burst);
  }
  qsort(times, bursts, sizeof *times, compare);
  return times[bursts / 20];
}

int main(int argc, char **argv) {
  if (argc != 6) errx(2, "usage: packets NAMESPACE ADDRESS NAMESPACE ADDRESS BURSTS");
  struct sockaddr_in a = {.sin_family = AF_INET}, b = {.sin_family = AF_INET}, seen;
  if (!inet_aton(argv[2], &a.sin_addr) || !inet_aton(argv[4], &b.sin_addr)) errx(2, "address");
  int bursts = atoi(argv[5]);
  if (bursts < 1 || bursts > most) errx(2, "bursts");
  b.sin_port = htons(7002);
  int one = open_end(argv[1], &a), two = open_end(argv[3], &b);
  char data[18] = "packet";
  socklen_t n = sizeof seen;
  if (connect(one, (void *)&b, sizeof b) != 0) err(1, "connect");
  if (send(one, data, sizeof data, 0) < 0) err(1, "send");
  if (recvfrom(two, data, sizeof data, 0, (void *)&seen, &n) < 0) err(1, "recvfrom");
  // (The sender as it is seen here: its address may have been translated.)
  if (connect(two, (void *)&seen, n) != 0) err(1, "connect");
  if (send(two, data, sizeof data, 0) < 0 || recv(one, data, sizeof data, 0) < 0) err(1, "answer");
  cost(one, two, bursts / 10 + 1);
  printf("%.0f %.0f\n", cost(one, two, bursts), cost(two, one, bursts));
}
