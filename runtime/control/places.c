/* places.c: where commands listen, and the messages that say so (see places.h). */
#include "runtime/control/places.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "runtime/base/check.h"
#include "runtime/base/futex_counter.h"
#include "runtime/control/listen_address.h"
#include "runtime/control/waiting.h"

static size_t places_bytes(const struct pen_control_config *config) {
  return pen_host_and_spare_count(config->plan) * sizeof *config->membership->places;
}

void pen_places_send(const struct pen_control_config *config, struct pen_peer_command *peer) {
  const struct pen_control_message message = {
      .kind = PEN_MESSAGE_PLACES,
      .number = pen_plan_index(config->plan, config->membership->current),
      .bytes = places_bytes(config)};
  pen_control_link_post(&peer->link, &message, config->membership->places);
}

struct pen_place pen_place_open(const struct pen_control_config *config, struct pen_peers *peers,
                                const char *address) {
  struct pen_place place = {.host = config->membership->own};
  snprintf(place.address, sizeof place.address, "%s", address);
  if (config->mirrors) {
    pen_control_server_open(&peers->mirror, config, address, 0);
    peers->mirrors = true;
    place.port = peers->mirror.port;
  }
  return place;
}

void pen_place_set(struct pen_membership *membership, const struct pen_place *place) {
  const uint32_t index = pen_host_place(membership, place->host);
  if (index != PEN_NONE) {
    membership->places[index] = *place;
  }
}

bool pen_places_receive(const struct pen_control_config *config, struct pen_control_link *link) {
  struct pen_membership *membership = config->membership;
  struct pen_control_message message;
  const struct pen_plan *plan = NULL;
  struct pen_place *places = pen_allocate(1, places_bytes(config), "the places of hosts");
  if (pen_control_link_receive_header(link, &message) && message.kind == PEN_MESSAGE_PLACES &&
      message.bytes == places_bytes(config) && pen_control_link_receive(link, &message, places)) {
    plan = pen_plan_of_index(config->plan, message.number);
  }
  const int error = errno;
  if (plan != NULL) {
    pen_membership_take_places(membership, plan, places);
  }
  free(places);
  errno = error;
  return plan != NULL;
}

bool pen_place_send(struct pen_control_link *link, const struct pen_place *place) {
  const struct pen_control_message message = {.kind = PEN_MESSAGE_PLACE, .bytes = sizeof *place};
  return pen_control_link_send(link, &message, place);
}

void pen_place_close(struct pen_peers *peers) {
  if (peers->mirrors) {
    pen_control_server_close(&peers->mirror);
    peers->mirrors = false;
  }
}

void pen_place_set_address(const struct pen_control_config *config,
                           const struct pen_control_link *link, char address[PEN_ADDRESS_BYTES]) {
  struct sockaddr_storage own = {0};
  socklen_t bytes = sizeof own;
  if (config->plan->interface[0] == '\0') {
    pen_check(getsockname(link->socket, (struct sockaddr *)&own, &bytes) == 0,
              "cannot get the address of a socket");
    pen_address_text(&own, address, PEN_ADDRESS_BYTES);
  }
}

bool pen_places_await(const struct pen_control_config *config, const struct pen_control_link *link,
                      uint32_t server, uint64_t end_ns) {
  struct pen_waiting waiting = pen_waiting_begin();
  struct pollfd polled = {.fd = link->socket, .events = POLLIN};
  while (poll(&polled, 1, pen_waiting_left_ms(&waiting)) == 0) {
    if (pen_now_ns() >= end_ns) {
      errno = EAGAIN;
      return false;
    }
    if (pen_waiting_is_long(&waiting)) {
      pen_warn("host %s waits until all hosts have come to host %s",
               pen_host_name(config->plan, config->membership->own),
               pen_host_name(config->plan, server));
    }
  }
  return true;
}

void pen_place_set_listen_address(const struct pen_control_config *config,
                                  struct pen_peers *peers) {
  const struct sockaddr_storage own = pen_listen_address(config->plan, config->membership->own);
  pen_address_text(&own, peers->address, sizeof peers->address);
}
