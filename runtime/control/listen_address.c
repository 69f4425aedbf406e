/* listen_address.c: the address of this host for others (see listen_address.h). */
#include "runtime/control/listen_address.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/check.h"

static socklen_t bytes_of(int family) {
  return family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

void pen_address_text(const struct sockaddr_storage *address, char *text, size_t bytes) {
  if (getnameinfo((const struct sockaddr *)address, bytes_of(address->ss_family), text,
                  (socklen_t)bytes, NULL, 0, NI_NUMERICHOST) != 0) {
    snprintf(text, bytes, "an unknown address");
  }
}

/* The first address of a name, or of a numeric address. False: it has none. */
static bool resolve(const char *name, int flags, struct sockaddr_storage *address) {
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
  struct addrinfo *found = NULL;
  if (getaddrinfo(name, NULL, &hints, &found) != 0) {
    return false;
  }
  memset(address, 0, sizeof *address);
  memcpy(address, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return true;
}

struct sockaddr_storage pen_address_of_text(const char *text) {
  struct sockaddr_storage address = {0};
  if (!resolve(text, AI_NUMERICHOST, &address)) {
    address.ss_family = AF_UNSPEC;
  }
  return address;
}

static bool is_loopback(const struct sockaddr_storage *address) {
  if (address->ss_family == AF_INET) {
    const struct sockaddr_in *ip4 = (const struct sockaddr_in *)address;
    return ntohl(ip4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static bool is_same_address(const struct sockaddr *a, const struct sockaddr_storage *b) {
  const struct sockaddr_in *a4 = (const struct sockaddr_in *)a, *b4 = (const void *)b;
  const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a, *b6 = (const void *)b;
  return a->sa_family == b->ss_family &&
         (a->sa_family == AF_INET
              ? a4->sin_addr.s_addr == b4->sin_addr.s_addr
              : memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr) == 0);
}

/* Of a network interface's addresses that which the host's name has, if any; else the first IPv4
 * address, else the first IPv6 address. */
static bool address_of_interface(const char *interface, const char *name,
                                 struct sockaddr_storage *address) {
  struct ifaddrs *all = NULL;
  struct sockaddr_storage named = {.ss_family = AF_UNSPEC};
  int best = 0;
  resolve(name, 0, &named);
  pen_check(getifaddrs(&all) == 0, "cannot list the network interfaces");
  for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
    const int family = i->ifa_addr == NULL ? AF_UNSPEC : i->ifa_addr->sa_family;
    if ((family != AF_INET && family != AF_INET6) || strcmp(i->ifa_name, interface) != 0) {
      continue;
    }
    const int worth = is_same_address(i->ifa_addr, &named) ? 3 : family == AF_INET ? 2 : 1;
    if (worth > best) {
      memset(address, 0, sizeof *address);
      memcpy(address, i->ifa_addr, bytes_of(family));
      best = worth;
    }
  }
  freeifaddrs(all);
  return best > 0;
}

/* Whether a host of the plan has an address that is not a loopback one. */
static bool is_any_host_elsewhere(const struct pen_plan *plan) {
  struct sockaddr_storage address;
  bool elsewhere = false;
  for (uint32_t h = 0; h < plan->host_count && !elsewhere; h++) {
    elsewhere = resolve(plan->hosts[h], 0, &address) && !is_loopback(&address);
  }
  return elsewhere;
}

struct sockaddr_storage pen_listen_address(const struct pen_plan *plan, uint32_t host) {
  struct sockaddr_storage address;
  const char *interface = plan->interface, *name = pen_host_name(plan, host);
  const bool named = interface[0] != '\0';
  if (named && !resolve(interface, AI_NUMERICHOST, &address) &&
      !address_of_interface(interface, name, &address)) {
    pen_fail(PEN_EXIT_USAGE,
             "cluster.interface = \"%s\": no network interface or address of this host", interface);
  }
  if (!named && !resolve(name, 0, &address)) {
    pen_fail(PEN_EXIT_USAGE, "the first host, %s (cluster.hosts, MASTER_ADDR): no such name", name);
  }
  if (is_loopback(&address) && (!named || is_any_host_elsewhere(plan))) {
    char text[64];
    pen_address_text(&address, text, sizeof text);
    pen_fail(PEN_EXIT_USAGE,
             "%s is %s on this host, which other hosts do not reach: name the interface or the "
             "address that they reach by cluster.interface",
             named ? interface : name, text);
  }
  return address;
}

void pen_message_address(const struct pen_membership *membership, char address[PEN_ADDRESS_BYTES]) {
  const struct pen_plan *plan = membership->current;
  if (plan->host_count > 1 && strcmp(plan->interface, membership->plan->interface) != 0) {
    const struct sockaddr_storage own = pen_listen_address(plan, membership->own);
    pen_address_text(&own, address, PEN_ADDRESS_BYTES);
  }
}
