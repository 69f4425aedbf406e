/* lossy_link.c: a link of an emulated host that loses packets: lossy_link PORT PROCESS PERCENT SEED
 *
 * Makes the network devices PORT here and net0 in the network namespace of PROCESS, prints a line,
 * and moves packets between them. In each direction it drops PERCENT of them, chosen by a seeded
 * generator. Ends when a device is gone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int open_tap(const char *name) {
  struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
  const int device = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
  if (device < 0 || ioctl(device, TUNSETIFF, &request) != 0) {
    perror(name);
    exit(1);
  }
  return device;
}

static int open_tap_of(const char *process, const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/ns/net", process);
  const int there = open(path, O_RDONLY | O_CLOEXEC);
  if (there < 0 || setns(there, CLONE_NEWNET) != 0) {
    perror(path);
    exit(1);
  }
  return open_tap(name);
}

static int loses(uint64_t *state, int percent) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (int)((*state >> 33) % 100) < percent;
}

int main(int argc, char **argv) {
  static unsigned char packet[65536];
  if (argc != 5) {
    return 64;
  }
  const int percent = atoi(argv[3]);
  uint64_t state = strtoull(argv[4], NULL, 10);
  struct pollfd ends[2] = {{.fd = open_tap(argv[1]), .events = POLLIN},
                           {.fd = open_tap_of(argv[2], "net0"), .events = POLLIN}};
  puts("ready");
  fflush(stdout);
  while (poll(ends, 2, -1) > 0) {
    for (int i = 0; i < 2; i++) {
      const ssize_t bytes =
          (ends[i].revents & POLLIN) != 0 ? read(ends[i].fd, packet, sizeof packet) : 0;
      if (bytes < 0 || (ends[i].revents & (POLLERR | POLLHUP)) != 0) {
        return 0;
      }
      if (bytes > 0 && !loses(&state, percent)) {
        const ssize_t written = write(ends[!i].fd, packet, (size_t)bytes);
        (void)written; /* a device that is down loses it, too */
      }
    }
  }
  return 0;
}
