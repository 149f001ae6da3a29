/*
 * One TCP connection at full speed, for benchmarks; the receiver says how much came.
 *   tcp-load receive PORT SECONDS-TO-SKIP SECONDS    says "ready", then bits each second
 *   tcp-load send ADDRESS PORT                       until the other end closes
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char bytes[128 << 10];

static void fail(const char *what) { perror(what); exit(1); }

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  signal(SIGPIPE, SIG_IGN);
  int end = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = { .sin_family = AF_INET };
  if (strcmp(argv[1], "send") == 0) {
    address.sin_port = htons(atoi(argv[3]));
    inet_pton(AF_INET, argv[2], &address.sin_addr);
    if (connect(end, (struct sockaddr *)&address, sizeof address) < 0) fail("connect");
    while (write(end, bytes, sizeof bytes) > 0) {}
    return 0;
  }
  if (argc < 5) return 2;
  double skip = atof(argv[3]), seconds = atof(argv[4]);
  address.sin_port = htons(atoi(argv[2]));
  if (bind(end, (struct sockaddr *)&address, sizeof address) < 0) fail("bind");
  if (listen(end, 1) < 0) fail("listen");
  puts("ready");
  fflush(stdout);
  int connection = accept(end, NULL, NULL);
  if (connection < 0) fail("accept");
  double start = now() + skip, counted = 0;
  for (;;) {
    ssize_t got = read(connection, bytes, sizeof bytes);
    if (got <= 0) fail("read");
    double at = now();
    if (at < start) continue;
    counted += got;
    if (at >= start + seconds) {
      printf("%.0f\n", counted * 8 / (at - start));
      return 0;
    }
  }
}
