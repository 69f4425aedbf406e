/* arrivals.c: commands that have proved themselves and have not come (see arrivals.h). */
#include "runtime/control/arrivals.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/check.h"
#include "runtime/base/futex_counter.h"

/* Of one that is forgotten, or `count`. */
static uint32_t free_index(const struct pen_peers *peers) {
  uint32_t index = 0;
  while (index < peers->count && peers->command[index].link.socket >= 0) {
    index++;
  }
  return index;
}

bool pen_arrivals_have_room(const struct pen_peers *peers) {
  return free_index(peers) < peers->most;
}

void pen_arrivals_add(struct pen_peers *peers, const struct pen_peer_command *peer) {
  const uint32_t index = free_index(peers);
  pen_assert(index < peers->most);
  peers->command[index] = *peer;
  peers->count += index == peers->count;
}

int pen_arrivals_take(struct pen_peer_command *peer) {
  struct pen_control_message message;
  const int taken = pen_control_link_take(&peer->link, sizeof peer->place, &message);
  if (taken <= 0) {
    return taken;
  }
  errno = EBADMSG;
  if (message.kind != PEN_MESSAGE_PLACE || message.bytes != sizeof peer->place) {
    return -1;
  }
  memcpy(&peer->place, peer->link.arriving.bytes, sizeof peer->place);
  peer->place.host = peer->host;
  peer->arrives = false;
  return 1;
}

void pen_arrivals_take_all(const struct pen_control_config *config, struct pen_peers *peers) {
  for (uint32_t p = peers->count; p-- > 0;) {
    struct pen_peer_command *peer = &peers->command[p];
    const int taken = peer->arrives ? pen_arrivals_take(peer) : 1;
    if (taken > 0 || (taken == 0 && pen_now_ns() < peer->place_end_ns)) {
      continue;
    }
    if (peer->ranks.count > 0 || config->membership->held[peer->host]) {
      shutdown(peer->link.socket, SHUT_RDWR);
      peer->place = (struct pen_place){.host = peer->host};
      peer->arrives = false;
    } else {
      pen_control_refuse(&peers->server, &peer->link, "it said nothing after its proof");
      peers->count--;
      memmove(peer, peer + 1, (peers->count - p) * sizeof *peer);
    }
  }
}
