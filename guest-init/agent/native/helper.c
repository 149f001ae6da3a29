/*
 * The agent's program in processes of their own, which need no engine:
 *   --connect PORT        standard input and output are a connection to a port of this loopback,
 *                         from "connected" on the error output on
 *   --sysctl FILE VALUE…  writes settings of the kernel
 *   --hold                leads a process namespace for as long as the machine runs
 */
#define _GNU_SOURCE
#include "helper.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int complain(const char *what) {
  dprintf(2, "%s: %s\n", what, strerror(errno));
  return 1;
}

/* Open connections of both families at the loopback addresses, the first that answers. */
static int connect_loopback(int port) {
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&v4, sizeof v4) == 0) return fd;
  int why = errno;
  if (fd >= 0) close(fd);
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  fd = socket(AF_INET6, SOCK_STREAM, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&v6, sizeof v6) == 0) return fd;
  if (fd >= 0) close(fd);
  errno = why;
  return -1;
}

/* Copies until the end of `from`. Answers 0 there, and -1 for an error. */
static int copy(int from, int to) {
  static char buffer[65536];
  for (;;) {
    ssize_t got = read(from, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return (int)got;
    for (ssize_t at = 0, put; at < got; at += put) {
      put = write(to, buffer + at, (size_t)(got - at));
      if (put < 0 && errno != EINTR) return -1;
      if (put < 0) put = 0;
    }
  }
}

/*
 * Each direction has a process: one that waits for a reader does not hold up the other. The program
 * that listens may close its half and read on, and the other way round.
 */
static int carry(int port) {
  int fd = connect_loopback(port);
  if (fd < 0) return complain("connect");
  /* The host sends nothing before. */
  if (write(2, "connected\n", 10) != 10) return 1;
  pid_t other = fork();
  if (other < 0) return complain("fork");
  if (other == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(1);
    if (copy(0, fd) == 0) shutdown(fd, SHUT_WR);
    _exit(0);
  }
  close(0);
  int result = copy(fd, 1) < 0 ? complain("connection") : 0;
  kill(other, SIGKILL);
  return result;
}

static int set_kernel(char **words) {
  for (; words[0] && words[1]; words += 2) {
    int fd = open(words[0], O_WRONLY);
    size_t length = strlen(words[1]);
    /* One write: each is a value of its own. */
    if (fd < 0 || write(fd, words[1], length) != (ssize_t)length) return complain(words[0]);
    close(fd);
  }
  return 0;
}

/* Processes whose parents have ended become its children: the kernel drops them at their ends. */
static int hold(void) {
  signal(SIGCHLD, SIG_IGN);
  for (;;) pause();
}

int run_helper(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "--connect") && argc == 3) return carry(atoi(argv[2]));
  if (!strcmp(what, "--sysctl")) return set_kernel(argv + 2);
  if (!strcmp(what, "--hold")) return hold();
  return -1;
}
